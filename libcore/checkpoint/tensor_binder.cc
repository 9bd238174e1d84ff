#include "libcore/checkpoint/tensor_binder.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace tp2 {
namespace {

constexpr char kConvertAgain[] = "convert the checkpoint again for this config.json";
constexpr char kIncomplete[] = "the folder is incomplete; copy or convert it again";
constexpr int kSignsPerWord = 16;  // of the legacy su and sv

std::string TypeText(const std::vector<DType>& dtypes, const std::vector<int64_t>& shape) {
  const std::string names = absl::StrJoin(
      dtypes, " or ", [](std::string* out, DType dtype) { out->append(DTypeName(dtype)); });
  return absl::StrCat(names, " ", ShapeText(shape));
}

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Set bit = -1; bit b of word w is channel 16 w + b.
void ExpandSigns(const TensorView& view, std::span<Fp16> out) {
  const uint16_t* words = view.As<uint16_t>();
  for (size_t i = 0; i < out.size(); ++i) {
    const bool is_negative = ((words[i / kSignsPerWord] >> (i % kSignsPerWord)) & 1u) != 0;
    out[i] = Fp16{static_cast<uint16_t>(is_negative ? 0xBC00u : 0x3C00u)};
  }
}

}  // namespace

TensorBinder::TensorBinder(const DrafterConfig& config, const std::vector<TensorView>& tensors,
                           std::string model_dir, ExpandedTensors& expanded)
    : config_(config), model_dir_(std::move(model_dir)), expanded_(expanded) {
  for (TensorRule& rule : ExpectedTensors(config)) {
    is_bound_[rule.name] = false;
    std::string name = rule.name;
    rules_.emplace(std::move(name), std::move(rule));
  }
  for (const TensorView& view : tensors) {
    tensors_[view.name] = &view;
    is_taken_[view.name] = false;
  }
}

void TensorBinder::Complain(const TensorView& view, const std::string& expected,
                            const std::string& got, const std::string& next) {
  if (!status_.ok()) return;
  status_ =
      MakeError(absl::StatusCode::kInvalidArgument, {.what = absl::StrCat("tensor ", view.name),
                                                     .expected = expected,
                                                     .got = got,
                                                     .where = view.file,
                                                     .next = next});
}

void TensorBinder::Missing(const std::string& name, const Wanted& wanted) {
  if (!status_.ok()) return;
  ErrorText text = {.what = absl::StrCat("tensor ", name),
                    .expected = TypeText(wanted.dtypes, wanted.shape),
                    .got = "no such tensor",
                    .where = model_dir_,
                    .next = kIncomplete};
  // The commonest wrong folder: DeepSeek's own, not yet quantized.
  const std::string plain = absl::StrCat(name.substr(0, name.rfind('.')), ".weight");
  if (name.ends_with(".trellis") && Find(plain) != nullptr) {
    text.got = absl::StrCat("an unquantized ", plain);
    text.next = "quantize the drafter to EXL3 first";
  }
  status_ = MakeError(absl::StatusCode::kInvalidArgument, text);
}

const TensorRule& TensorBinder::Rule(const std::string& name, Storage storage) {
  const auto it = rules_.find(name);
  TP2_CHECK(it != rules_.end() && it->second.storage == storage);
  is_bound_[name] = true;
  return it->second;
}

const TensorView* TensorBinder::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

const TensorView* TensorBinder::Take(const std::string& name, const Wanted& wanted) {
  if (!status_.ok()) return nullptr;
  const TensorView* view = Find(name);
  if (view == nullptr) {
    Missing(name, wanted);
    return nullptr;
  }
  is_taken_[view->name] = true;
  bool is_good = false;
  for (const DType dtype : wanted.dtypes) is_good = is_good || view->dtype == dtype;
  if (!is_good || view->shape != wanted.shape) {
    Complain(*view, TypeText(wanted.dtypes, wanted.shape), TypeText({view->dtype}, view->shape),
             kConvertAgain);
    return nullptr;
  }
  const auto address = reinterpret_cast<uintptr_t>(view->bytes.data());
  if (address % static_cast<uintptr_t>(DTypeBytes(view->dtype)) != 0) {
    Complain(*view, absl::StrCat("data aligned to ", DTypeBytes(view->dtype), " bytes"),
             absl::StrCat("data at address ", address % 16, " modulo 16"),
             "write the file again with a safetensors library");
    return nullptr;
  }
  return view;
}

exl3::MatrixView TensorBinder::Matrix(const std::string& name) {
  const TensorRule& rule = Rule(name, Storage::kExl3);
  return BindExl3(name, rule.outputs(), rule.inputs());
}

exl3::MatrixView TensorBinder::BindExl3(const std::string& name, int outputs, int inputs) {
  exl3::MatrixView matrix;
  matrix.k = inputs;
  matrix.n = outputs;
  if (const TensorView* bias = Find(name + ".bias"); bias != nullptr) {
    Complain(*bias, "no bias: this model has none", "a bias", kConvertAgain);
  }
  BindTrellis(name, matrix);
  BindCodebook(name, matrix);
  matrix.suh = BindChannelScales(name, ".suh", ".su", inputs);
  matrix.svh = BindChannelScales(name, ".svh", ".sv", outputs);
  return matrix;
}

void TensorBinder::BindTrellis(const std::string& name, exl3::MatrixView& matrix) {
  const std::string full_name = name + ".trellis";
  const int64_t k_tiles = matrix.k / exl3::kTile;
  const int64_t n_tiles = matrix.n / exl3::kTile;
  const TensorView* view = Find(full_name);
  if (view != nullptr && view->shape.size() == 3) {
    const int64_t units = view->shape[2];
    const std::string got = absl::StrCat(units, " units per tile");
    const std::string expected = "16 * K units per tile, K = 1 .. 8";
    if (units > 0 && units < exl3::kTile * exl3::kMaxBits && units % exl3::kTile == 8) {
      Complain(*view, expected, absl::StrCat(got, ", a half-integer K"),
               "convert with whole bits per weight");
    } else if (units % exl3::kTile != 0 || units < exl3::kTile ||
               units > exl3::kTile * exl3::kMaxBits) {
      Complain(*view, expected, got, kConvertAgain);
    } else {
      matrix.bits = static_cast<int>(units / exl3::kTile);
    }
  }
  // With no or an unusable third extent, K = 1 stands for "any" in the complaint about the rest.
  const int64_t units = exl3::kTile * (matrix.bits == 0 ? 1 : matrix.bits);
  view = Take(full_name, {.shape = {k_tiles, n_tiles, units}, .dtypes = {DType::kI16}});
  if (view == nullptr) return;
  matrix.trellis = view->As<uint16_t>();
  matrix.tile_row_pitch = static_cast<ptrdiff_t>(n_tiles * units);
}

void TensorBinder::BindCodebook(const std::string& name, exl3::MatrixView& matrix) {
  const TensorView* mul1 = Find(name + ".mul1");
  const TensorView* mcg = Find(name + ".mcg");
  if (mul1 != nullptr && mcg != nullptr) {
    Complain(*mul1, "one codebook flag", absl::StrCat("both ", mul1->name, " and ", mcg->name),
             kConvertAgain);
    return;
  }
  matrix.codebook = exl3::Codebook::k3Inst;
  const TensorView* flag = mul1 != nullptr ? mul1 : mcg;
  if (flag == nullptr) return;
  Take(flag->name, {.shape = {}, .dtypes = {DType::kI32}});
  matrix.codebook = mul1 != nullptr ? exl3::Codebook::kMul1 : exl3::Codebook::kMcg;
}

const Fp16* TensorBinder::BindChannelScales(const std::string& name, const char* full,
                                            const char* legacy, int count) {
  const TensorView* signs = Find(name + legacy);
  if (signs != nullptr && Find(name + full) != nullptr) {
    Complain(*signs, absl::StrCat("one of ", full, " and ", legacy), "both", kConvertAgain);
    return nullptr;
  }
  if (signs != nullptr) {
    const TensorView* view =
        Take(name + legacy, {.shape = {count / kSignsPerWord}, .dtypes = {DType::kI16}});
    if (view == nullptr) return nullptr;
    const std::span<Fp16> values = expanded_.Make<Fp16>(static_cast<size_t>(count));
    ExpandSigns(*view, values);
    return values.data();
  }
  const TensorView* view = Take(name + full, {.shape = {count}, .dtypes = {DType::kF16}});
  if (view == nullptr) return nullptr;
  Note(*view, ValueRule::kChannelScales);
  return view->As<Fp16>();
}

const float* TensorBinder::BindBlockScales(const std::string& name,
                                           const std::vector<int64_t>& shape) {
  const TensorView* view =
      Take(name, {.shape = shape, .dtypes = {DType::kF32, DType::kFp8E8m0, DType::kU8}});
  if (view == nullptr) return nullptr;
  if (view->dtype == DType::kF32) {
    Note(*view, ValueRule::kPowersOfTwo);
    return view->As<float>();
  }
  // E8M0: one exponent byte e stands for 2^(e - 127), which is an fp32 with e as its exponent.
  const std::span<float> values = expanded_.Make<float>(view->bytes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto exponent = static_cast<uint32_t>(view->bytes[i]);
    if (exponent < 27 || exponent > 227) {
      Complain(*view, "powers of two from 2^-100 to 2^100",
               absl::StrCat("exponent byte ", exponent, " at element ", i), kConvertAgain);
      return nullptr;
    }
    values[i] = std::bit_cast<float>(exponent << 23);
  }
  return values.data();
}

OutputProjection TensorBinder::GroupedProjection(const std::string& name) {
  const TensorRule& rule = Rule(name, Storage::kOutputProjection);
  OutputProjection projection;
  const TensorView* weight = Find(name + ".weight");
  const bool has_slices = Find(name + ".slice.0.trellis") != nullptr;
  if (has_slices && weight != nullptr) {
    Complain(*weight, "one form of the projection", "both e4m3 bytes and EXL3 slices",
             kConvertAgain);
  }
  if (has_slices) {
    for (int group = 0; group < config_.o_groups; ++group) {
      projection.slices.push_back(BindExl3(absl::StrCat(name, ".slice.", group),
                                           config_.o_lora_rank, config_.group_inputs()));
    }
    return projection;
  }
  weight = Take(name + ".weight", {.shape = rule.shape, .dtypes = {DType::kFp8E4m3}});
  if (weight == nullptr) return projection;
  Note(*weight, ValueRule::kFinite);
  const int block = config_.fp8_block();
  projection.fp8 = weight->As<Fp8E4m3>();
  projection.fp8_scale = BindBlockScales(
      name + ".scale", {CeilDiv(rule.outputs(), block), CeilDiv(rule.inputs(), block)});
  projection.fp8_block = block;
  return projection;
}

Half16View TensorBinder::Half(const std::string& name) {
  const TensorRule& rule = Rule(name, Storage::kHalf);
  const TensorView* view = Take(name, {.shape = rule.shape, .dtypes = {DType::kBf16, DType::kF16}});
  if (view == nullptr) return {};
  Note(*view, ValueRule::kFinite);
  return {.bits = view->As<uint16_t>(),
          .is_fp16 = view->dtype == DType::kF16,
          .rows = rule.shape.size() == 2 ? rule.outputs() : 1,
          .columns = rule.inputs()};
}

const float* TensorBinder::Floats(const std::string& name) {
  const TensorRule& rule = Rule(name, Storage::kFloat);
  const TensorView* view = Take(name, {.shape = rule.shape, .dtypes = {DType::kF32}});
  if (view == nullptr) return nullptr;
  Note(*view, ValueRule::kFinite);
  return view->As<float>();
}

void TensorBinder::SkipUnused(const std::string& name) {
  const TensorRule& rule = Rule(name, Storage::kUnusedFloat);
  if (Find(name) != nullptr) Take(name, {.shape = rule.shape, .dtypes = {DType::kF32}});
}

void TensorBinder::Finish() {
  if (!status_.ok()) return;
  for (const auto& [name, was_bound] : is_bound_) TP2_CHECK(was_bound);
  for (const auto& [name, was_taken] : is_taken_) {
    if (was_taken) continue;
    Complain(*tensors_.at(name), "only tensors of this drafter", "an unexpected tensor",
             "check that config.json belongs to these files");
    return;
  }
}

}  // namespace tp2
