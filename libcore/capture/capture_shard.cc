#include "libcore/capture/capture_shard.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/safetensors.h"

namespace tp2 {
namespace {

template <class T>
constexpr DType kDTypeOf = DType::kOther;
template <>
constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
constexpr DType kDTypeOf<float> = DType::kF32;
template <>
constexpr DType kDTypeOf<Bf16> = DType::kBf16;

constexpr int64_t kAny = -1;

// Takes tensors one after the other and keeps the first complaint.
class ShardParser {
 public:
  ShardParser(std::vector<TensorView> tensors, std::string where) : where_(std::move(where)) {
    for (TensorView& view : tensors) {
      std::string name = view.name;
      tensors_.emplace(std::move(name), std::move(view));
    }
  }

  void Refuse(const std::string& what, const std::string& expected, const std::string& got) {
    if (!status_.ok()) return;
    status_ = MakeError(absl::StatusCode::kInvalidArgument,
                        {.what = absl::StrCat("capture: ", what),
                         .expected = expected,
                         .got = got,
                         .where = where_,
                         .next = "fix the writer; cmd/tp2-parity/README.md has the format"});
  }

  // kAny in front of `shape`: any number.
  template <class T>
  std::span<const T> Take(const std::string& name, std::vector<int64_t> shape) {
    if (!status_.ok()) return {};
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      Refuse(absl::StrCat("tensor ", name), DTypeName(kDTypeOf<T>), "nothing");
      return {};
    }
    const TensorView view = std::move(found->second);
    tensors_.erase(found);
    if (shape.front() == kAny && !view.shape.empty()) shape.front() = view.shape.front();
    if (view.dtype != kDTypeOf<T> || view.shape != shape) {
      Refuse(absl::StrCat("tensor ", name),
             absl::StrCat(DTypeName(kDTypeOf<T>), " ", ShapeText(shape)),
             absl::StrCat(DTypeName(view.dtype), " ", ShapeText(view.shape)));
      return {};
    }
    if (reinterpret_cast<uintptr_t>(view.bytes.data()) % alignof(T) != 0) {
      Refuse(absl::StrCat("tensor ", name), "its own alignment", "an unaligned place in the file");
      return {};
    }
    return {view.As<T>(), static_cast<size_t>(view.element_count())};
  }

  // `offsets` must start at 0, end at `total` and grow by `low` to `high` per step.
  void CheckOffsets(const char* name, std::span<const int64_t> offsets, int64_t total, int64_t low,
                    int64_t high) {
    if (!status_.ok()) return;
    if (offsets.empty() || offsets.front() != 0 || offsets.back() != total) {
      return Refuse(
          absl::StrCat("offsets ", name), absl::StrCat("0 to ", total),
          offsets.empty() ? "none" : absl::StrCat(offsets.front(), " to ", offsets.back()));
    }
    for (size_t i = 1; i < offsets.size(); ++i) {
      // Unsigned: the difference of hostile numbers may overflow.
      const uint64_t step =
          static_cast<uint64_t>(offsets[i]) - static_cast<uint64_t>(offsets[i - 1]);
      if (offsets[i] < offsets[i - 1] || step < static_cast<uint64_t>(low) ||
          step > static_cast<uint64_t>(high)) {
        return Refuse(absl::StrCat("offsets ", name, "[", i, "]"),
                      absl::StrCat("a step of ", low, " to ", high),
                      absl::StrCat(offsets[i - 1], " to ", offsets[i]));
      }
    }
  }

  template <class T>
  void CheckRange(const char* name, std::span<const T> values, int64_t low, int64_t high) {
    for (size_t i = 0; i < values.size() && status_.ok(); ++i) {
      if (values[i] < low || values[i] > high) {
        Refuse(absl::StrCat(name, "[", i, "]"), absl::StrCat(low, " to ", high),
               absl::StrCat(values[i]));
      }
    }
  }

  void CheckFinite(const char* name, std::span<const Bf16> values) {
    for (size_t i = 0; i < values.size() && status_.ok(); ++i) {
      if ((values[i].bits & 0x7F80u) == 0x7F80u) NotFinite(name, i);
    }
  }
  void CheckFinite(const char* name, std::span<const float> values) {
    for (size_t i = 0; i < values.size() && status_.ok(); ++i) {
      if (!std::isfinite(values[i])) NotFinite(name, i);
    }
  }

  void CheckNothingLeft() {
    if (!tensors_.empty()) {
      Refuse(absl::StrCat("tensor ", tensors_.begin()->first), "no such tensor", "one");
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  void NotFinite(const char* name, size_t index) {
    Refuse(absl::StrCat(name, "[", index, "]"), "a finite value", "NaN or infinity");
  }

  std::string where_;
  std::map<std::string, TensorView> tensors_;
  absl::Status status_;
};

void TakeRows(ShardParser& parser, const CaptureInfo& info, CaptureShard& shard) {
  if (!parser.status().ok()) return;
  int64_t rows = shard.row_offsets.back();
  if (rows < 0) rows = 0;
  if (info.has_main_x) shard.main_x = parser.Take<Bf16>("rows.A", {rows, info.dim});
  if (info.has_taps) shard.taps = parser.Take<Bf16>("rows.B", {rows, info.tap_values});
  parser.CheckOffsets("row_offsets", shard.row_offsets, rows, 0, kMaxRowsPerMessage);
}

void TakeOptional(ShardParser& parser, const CaptureInfo& info, int64_t blocks,
                  CaptureShard& shard) {
  if (info.has_logits)
    shard.logits = parser.Take<float>("logits", {blocks, kBlockRows, info.vocab});
  if (info.has_confidence) {
    shard.confidence = parser.Take<float>("confidence", {blocks, kBlockRows});
  }
  if (info.has_margins) shard.margins = parser.Take<float>("margins", {blocks, kBlockRows});
  if (info.has_routing) {
    shard.experts =
        parser.Take<int32_t>("experts", {blocks, info.stages, kBlockRows, info.experts_per_token});
    shard.route_margins = parser.Take<float>("route_margins", {blocks, info.stages, kBlockRows});
    parser.CheckRange("experts", shard.experts, 0, info.experts - 1);
  }
  parser.CheckFinite("logits", shard.logits);
  parser.CheckFinite("confidence", shard.confidence);
  parser.CheckFinite("margins", shard.margins);
  parser.CheckFinite("route_margins", shard.route_margins);
}

// Drafts below n_out are tokens, the others -1; slots of a round are distinct.
void CheckRounds(ShardParser& parser, const CaptureInfo& info, const CaptureShard& shard) {
  for (int64_t round = 0; round < shard.round_count() && parser.status().ok(); ++round) {
    unsigned taken = 0;
    for (int64_t b = shard.round_blocks[round]; b < shard.round_blocks[round + 1]; ++b) {
      const unsigned bit = 1u << shard.slots[b];
      if ((taken & bit) != 0) {
        parser.Refuse(absl::StrCat("round ", round), "each slot once",
                      absl::StrCat("slot ", shard.slots[b], " twice"));
      }
      taken |= bit;
      for (int i = 0; i < kBlockRows; ++i) {
        const int32_t draft = shard.drafts[b * kBlockRows + i];
        const bool is_asked = i < shard.n_out[round];
        if (is_asked ? draft < 0 || draft >= info.vocab : draft != -1) {
          parser.Refuse(absl::StrCat("drafts[", b, "][", i, "]"),
                        is_asked ? absl::StrCat("a token below ", info.vocab)
                                 : absl::StrCat("-1 beyond n_out ", shard.n_out[round]),
                        absl::StrCat(draft));
        }
      }
    }
  }
}

}  // namespace

absl::StatusOr<CaptureShard> ParseCaptureShard(std::span<const std::byte> bytes,
                                               const CaptureInfo& info, const std::string& where) {
  TP2_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, ParseSafetensors(bytes, where));
  ShardParser parser(std::move(tensors), where);
  CaptureShard shard;
  shard.n_out = parser.Take<int32_t>("n_out", {kAny});
  shard.slots = parser.Take<int32_t>("slots", {kAny});
  const int64_t blocks = shard.block_count();
  shard.round_blocks = parser.Take<int64_t>("round_blocks", {shard.round_count() + 1});
  shard.bases = parser.Take<int64_t>("bases", {blocks});
  shard.positions = parser.Take<int64_t>("positions", {blocks});
  shard.row_offsets = parser.Take<int64_t>("row_offsets", {blocks + 1});
  shard.anchors = parser.Take<int32_t>("anchors", {blocks});
  shard.drafts = parser.Take<int32_t>("drafts", {blocks, kBlockRows});
  parser.CheckOffsets("round_blocks", shard.round_blocks, blocks, 1, kMaxRequests);
  TakeRows(parser, info, shard);
  TakeOptional(parser, info, blocks, shard);
  parser.CheckNothingLeft();
  parser.CheckRange("n_out", shard.n_out, 1, kBlockRows);
  parser.CheckRange("slots", shard.slots, 0, kSlotCount - 1);
  parser.CheckRange("anchors", shard.anchors, 0, info.vocab - 1);
  constexpr int64_t kMaxPosition = int64_t{1} << 40;
  parser.CheckRange("bases", shard.bases, -1, kMaxPosition);
  parser.CheckRange("positions", shard.positions, 0, kMaxPosition);
  parser.CheckFinite("rows.A", shard.main_x);
  parser.CheckFinite("rows.B", shard.taps);
  if (parser.status().ok()) CheckRounds(parser, info, shard);
  TP2_RETURN_IF_ERROR(parser.status());
  return shard;
}

CaptureRound RoundOf(const CaptureShard& shard, const CaptureInfo& info, int64_t round) {
  CaptureRound result;
  result.n_out = shard.n_out[round];
  const auto part = [](auto values, int64_t index, int64_t count) {
    return values.empty() ? values : values.subspan(index * count, count);
  };
  for (int64_t b = shard.round_blocks[round]; b < shard.round_blocks[round + 1]; ++b) {
    CaptureBlock block;
    block.slot = shard.slots[b];
    if (shard.bases[b] >= 0) block.base = shard.bases[b];
    block.position = shard.positions[b];
    const int64_t row = shard.row_offsets[b];
    block.row_count = static_cast<int>(shard.row_offsets[b + 1] - row);
    const auto rows = [&](std::span<const Bf16> values, int64_t width) {
      return values.empty() ? values : values.subspan(row * width, block.row_count * width);
    };
    block.main_x = rows(shard.main_x, info.dim);
    block.taps = rows(shard.taps, info.tap_values);
    block.anchor = shard.anchors[b];
    for (int i = 0; i < kBlockRows; ++i) block.drafts[i] = shard.drafts[b * kBlockRows + i];
    block.logits = part(shard.logits, b, int64_t{kBlockRows} * info.vocab);
    block.confidence = part(shard.confidence, b, kBlockRows);
    block.margins = part(shard.margins, b, kBlockRows);
    const int64_t routed_rows = int64_t{info.stages} * kBlockRows;
    block.experts = part(shard.experts, b, routed_rows * info.experts_per_token);
    block.route_margins = part(shard.route_margins, b, routed_rows);
    result.blocks.push_back(block);
  }
  return result;
}

}  // namespace tp2
