#include "libcore/checkpoint/synthetic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/synthetic_fill.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/exl3/matrix.h"

namespace tp2 {
namespace {

// Standard deviations of the codebooks over all 65536 states.
constexpr float kMul1Std = 1.0003102f;
constexpr float k3InstStd = 1.2437109f;
constexpr float kMcgStd = 1.2441119f;
constexpr uint32_t kMul1Flag = 0x83DCD12Du;
constexpr uint32_t kMcgFlag = 0xCBAC1FEDu;

constexpr int64_t kPieceBytes = 1 << 20;  // one thread's piece of work
constexpr int64_t kRunBytes = 32 << 20;   // written at once

struct SyntheticTensor {
  TensorSpec spec;
  Fill fill;
};

// IEEE square root is correctly rounded, hence the same everywhere.
float InverseRoot(int count) { return 1.0f / std::sqrt(static_cast<float>(count)); }

bool EndsWithAny(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&name](const char* ending) { return name.ends_with(ending); });
}

// Output magnitude for inputs of magnitude 1: large enough in w1 and w3 that a few percent of the
// activations meet the clamp at 10, about 2.5 in the head so that top-2 margins spread.
float GainOf(const std::string& name) {
  const bool is_shared = name.find(".shared_experts.") != std::string::npos;
  if (name == "head") return 2.5f;
  if (name.ends_with(".w1")) return is_shared ? 4.0f : 4.5f;
  if (name.ends_with(".w3")) return is_shared ? 3.1f : 3.5f;
  if (name.ends_with(".w2")) return is_shared ? 0.11f : 0.135f;
  if (name.ends_with(".main_proj")) return 0.6f;
  if (EndsWithAny(name, {".wkv", ".wq_b"})) return 1.6f;
  if (name.ends_with(".wq_a")) return 1.0f;
  return 1.2f;  // wo_a and wo_b
}

// Distribution of the tensors that are stored plain.
Fill PlainFill(const TensorRule& rule) {
  const auto bell = [](float center, float spread) {
    return Fill{.kind = FillKind::kBell, .center = center, .spread = spread};
  };
  const std::string& name = rule.name;
  const float by_inputs = InverseRoot(rule.inputs());
  if (name == "embed.weight") return bell(0, 0.7f);
  if (name.ends_with("norm.weight")) return bell(1, 0.25f);
  if (name.ends_with("gate.weight")) return bell(0, 1.5f * by_inputs);
  if (name.ends_with("gate.bias")) return bell(0, 0.3f);
  if (name.ends_with("gate.bias_vl")) return bell(0, 3.0f);
  if (name.ends_with("attn_sink")) return bell(0, 1.2f);
  if (name.ends_with("_fn")) return bell(0, by_inputs);
  if (name.ends_with("_base")) return bell(0, 1.0f);
  if (name.ends_with("hc_head_scale")) return bell(1, 0.05f);
  if (name.ends_with("_scale")) return {.kind = FillKind::kThree};
  if (EndsWithAny(name, {"markov_head.embed.weight", "markov_w1.weight"})) return bell(0, 1.0f);
  if (EndsWithAny(name, {"markov_head.head.weight", "markov_w2.weight"})) {
    return bell(0, 1.7f * by_inputs);
  }
  return bell(0, 0.3f * by_inputs);  // the confidence head: logits of about 2
}

class Plan {
 public:
  explicit Plan(const SyntheticShape& shape) : shape_(shape) {
    for (const TensorRule& rule : ExpectedTensors(shape.config)) AddRule(rule);
  }
  std::vector<SyntheticTensor> Take() { return std::move(tensors_); }

 private:
  void Add(std::string name, DType dtype, std::vector<int64_t> extents, const Fill& fill) {
    tensors_.push_back({{std::move(name), dtype, std::move(extents)}, fill});
  }

  void AddRule(const TensorRule& rule) {
    switch (rule.storage) {
      case Storage::kExl3:
        return AddExl3(rule.name, rule.outputs(), rule.inputs());
      case Storage::kOutputProjection:
        return AddOutputProjection(rule);
      case Storage::kHalf: {
        const bool is_fp16 = shape_.is_mixed && rule.name.find("markov_head.") != std::string::npos;
        return Add(rule.name, is_fp16 ? DType::kF16 : DType::kBf16, rule.shape, PlainFill(rule));
      }
      case Storage::kFloat:
      case Storage::kUnusedFloat:
        return Add(rule.name, DType::kF32, rule.shape, PlainFill(rule));
    }
  }

  int BitsOf(const std::string& name) const {
    if (shape_.is_mixed) return 1 + static_cast<int>(StreamOf(1, name) % exl3::kMaxBits);
    if (name == "head") return shape_.head_bits;
    return name.find(".experts.") != std::string::npos ? shape_.expert_bits : shape_.dense_bits;
  }

  exl3::Codebook CodebookOf(const std::string& name) const {
    if (!shape_.is_mixed) return exl3::Codebook::kMul1;
    return static_cast<exl3::Codebook>(StreamOf(2, name) % 3);
  }

  void AddExl3(const std::string& name, int outputs, int inputs) {
    const exl3::Codebook codebook = CodebookOf(name);
    float std_of_codes = kMul1Std;
    if (codebook == exl3::Codebook::k3Inst) std_of_codes = k3InstStd;
    if (codebook == exl3::Codebook::kMcg) std_of_codes = kMcgStd;
    Add(name + ".trellis", DType::kI16,
        {inputs / exl3::kTile, outputs / exl3::kTile, exl3::kTile * BitsOf(name)},
        {.kind = FillKind::kBits});
    Add(name + ".suh", DType::kF16, {inputs},
        {.kind = FillKind::kSigned, .center = InverseRoot(inputs) / std_of_codes});
    Add(name + ".svh", DType::kF16, {outputs}, {.kind = FillKind::kSigned, .center = GainOf(name)});
    if (codebook == exl3::Codebook::kMul1) {
      Add(name + ".mul1", DType::kI32, {}, {.kind = FillKind::kConstant, .constant = kMul1Flag});
    } else if (codebook == exl3::Codebook::kMcg) {
      Add(name + ".mcg", DType::kI32, {}, {.kind = FillKind::kConstant, .constant = kMcgFlag});
    }
  }

  void AddOutputProjection(const TensorRule& rule) {
    const DrafterConfig& config = shape_.config;
    if (shape_.is_mixed) {
      for (int group = 0; group < config.o_groups; ++group) {
        AddExl3(absl::StrCat(rule.name, ".slice.", group), config.o_lora_rank,
                config.group_inputs());
      }
      return;
    }
    // Codes of standard deviation 64 .. 128 under the largest power of two that allows it. Blocks
    // have that scale or half of it: sqrt((1 + 1/4) / 2) of it on average.
    constexpr float kHalvedBlocks = 0.790569f;
    float code_spread = GainOf(rule.name) * InverseRoot(rule.inputs()) / kHalvedBlocks;
    int exponent = 0;
    for (; code_spread < 64.0f; --exponent) code_spread *= 2.0f;
    const int block = config.fp8_block();
    Add(rule.name + ".weight", DType::kFp8E4m3, rule.shape,
        {.kind = FillKind::kFp8Bell, .spread = code_spread});
    Add(rule.name + ".scale", DType::kF32,
        {(rule.outputs() + block - 1) / block, (rule.inputs() + block - 1) / block},
        {.kind = FillKind::kBlockScales, .exponent = exponent});
  }

  const SyntheticShape& shape_;
  std::vector<SyntheticTensor> tensors_;
};

// Fills and sends one tensor in runs; every run's pieces are made in parallel.
absl::Status ProduceTensor(const SyntheticTensor& tensor, uint64_t seed, ThreadPool& pool,
                           std::vector<std::byte>& buffer, const ByteSink& sink) {
  const uint64_t stream = StreamOf(seed, tensor.spec.name);
  const int64_t element_bytes = DTypeBytes(tensor.spec.dtype);
  const int64_t total_bytes = tensor.spec.byte_count();
  for (int64_t begin = 0; begin < total_bytes; begin += kRunBytes) {
    const int64_t run_bytes = std::min(kRunBytes, total_bytes - begin);
    buffer.resize(static_cast<size_t>(std::max<int64_t>(run_bytes, buffer.size())));
    const std::span<std::byte> run(buffer.data(), static_cast<size_t>(run_bytes));
    const auto fill_piece = [&](int64_t piece) {
      const int64_t offset = piece * kPieceBytes;
      const int64_t piece_bytes = std::min(kPieceBytes, run_bytes - offset);
      FillElements(tensor.fill, tensor.spec.dtype, stream, (begin + offset) / element_bytes,
                   run.subspan(offset, piece_bytes));
    };
    const int64_t pieces = (run_bytes + kPieceBytes - 1) / kPieceBytes;
    if (pieces == 1) {
      fill_piece(0);
    } else {
      pool.ParallelFor(pieces, fill_piece);
    }
    TP2_RETURN_IF_ERROR(sink(run));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TensorSpec> SyntheticSpecs(const SyntheticShape& shape) {
  std::vector<TensorSpec> specs;
  for (SyntheticTensor& tensor : Plan(shape).Take()) specs.push_back(std::move(tensor.spec));
  return specs;
}

int64_t SyntheticBytes(const SyntheticShape& shape) {
  int64_t total_bytes = 0;
  for (const TensorSpec& spec : SyntheticSpecs(shape)) total_bytes += spec.byte_count();
  return total_bytes;
}

absl::Status WriteSynthetic(const SyntheticShape& shape, uint64_t seed, const std::string& dir,
                            ThreadPool& pool) {
  std::map<std::string, SyntheticTensor> by_name;
  std::vector<TensorSpec> specs;
  for (SyntheticTensor& tensor : Plan(shape).Take()) {
    specs.push_back(tensor.spec);
    by_name.emplace(tensor.spec.name, std::move(tensor));
  }
  TP2_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(dir, "/config.json"),
                                          SyntheticConfigText(shape, seed), IfExists::kRefuse));
  std::vector<std::byte> buffer;
  return WriteShards(dir, std::move(specs), kMaxShardBytes,
                     [&](const TensorSpec& spec, const ByteSink& sink) {
                       return ProduceTensor(by_name.at(spec.name), seed, pool, buffer, sink);
                     });
}

}  // namespace tp2
