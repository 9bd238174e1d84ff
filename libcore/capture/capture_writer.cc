#include "libcore/capture/capture_writer.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/capture/capture_index.h"
#include "libcore/checkpoint/safetensors_writer.h"

namespace tp2 {
namespace {

template <class T>
void Append(std::vector<T>& to, std::span<const T> values, int64_t expected) {
  TP2_CHECK(static_cast<int64_t>(values.size()) == expected);
  to.insert(to.end(), values.begin(), values.end());
}

// The tensors of one shard with their bytes.
class TensorList {
 public:
  template <class T>
  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    specs_.push_back({name, dtype, std::move(shape)});
    bytes_.emplace_back(name, std::as_bytes(std::span(values)));
  }

  absl::Status Write(const std::string& path) const {
    return WriteSafetensors(
        path, specs_,
        [this](const TensorSpec& spec, const ByteSink& sink) {
          for (const auto& [name, bytes] : bytes_) {
            if (name == spec.name) return sink(bytes);
          }
          return absl::InternalError("capture: no such tensor");
        },
        IfExists::kRefuse);
  }

 private:
  std::vector<TensorSpec> specs_;
  std::vector<std::pair<std::string, std::span<const std::byte>>> bytes_;
};

}  // namespace

CaptureWriter::CaptureWriter(StagedFolder folder, const CaptureInfo& info, int64_t shard_bytes)
    : folder_(std::move(folder)), info_(info), shard_bytes_(shard_bytes) {}

absl::StatusOr<CaptureWriter> CaptureWriter::Create(const std::string& dir, const CaptureInfo& info,
                                                    int64_t shard_bytes) {
  TP2_ASSIGN_OR_RETURN(StagedFolder folder, StagedFolder::Create(dir, IfExists::kRefuse));
  return CaptureWriter(std::move(folder), info, shard_bytes);
}

absl::Status CaptureWriter::Add(const CaptureRound& round) {
  gathered_.n_out.push_back(round.n_out);
  for (const CaptureBlock& block : round.blocks) AddBlock(block);
  gathered_.round_blocks.push_back(static_cast<int64_t>(gathered_.slots.size()));
  ++round_count_;
  return gathered_bytes_ < shard_bytes_ ? absl::OkStatus() : WriteShard();
}

void CaptureWriter::AddBlock(const CaptureBlock& block) {
  Gathered& g = gathered_;
  g.slots.push_back(block.slot);
  g.bases.push_back(block.base.value_or(-1));
  g.positions.push_back(block.position);
  g.row_offsets.push_back(g.row_offsets.back() + block.row_count);
  g.anchors.push_back(block.anchor);
  g.drafts.insert(g.drafts.end(), block.drafts.begin(), block.drafts.end());
  const int64_t rows = block.row_count;
  if (info_.has_main_x) Append(g.main_x, block.main_x, rows * info_.dim);
  if (info_.has_taps) Append(g.taps, block.taps, rows * info_.tap_values);
  if (info_.has_logits) Append(g.logits, block.logits, int64_t{kBlockRows} * info_.vocab);
  if (info_.has_confidence) Append(g.confidence, block.confidence, kBlockRows);
  if (info_.has_margins) Append(g.margins, block.margins, kBlockRows);
  if (info_.has_routing) {
    const int64_t routed = int64_t{info_.stages} * kBlockRows;
    Append(g.experts, block.experts, routed * info_.experts_per_token);
    Append(g.route_margins, block.route_margins, routed);
  }
  gathered_bytes_ += static_cast<int64_t>(block.main_x.size_bytes() + block.taps.size_bytes() +
                                          block.logits.size_bytes());
}

absl::Status CaptureWriter::WriteShard() {
  const Gathered& g = gathered_;
  const auto rounds = static_cast<int64_t>(g.n_out.size());
  const auto blocks = static_cast<int64_t>(g.slots.size());
  const int64_t rows = g.row_offsets.back();
  TensorList list;
  list.Add("round_blocks", DType::kI64, {rounds + 1}, g.round_blocks);
  list.Add("n_out", DType::kI32, {rounds}, g.n_out);
  list.Add("slots", DType::kI32, {blocks}, g.slots);
  list.Add("bases", DType::kI64, {blocks}, g.bases);
  list.Add("positions", DType::kI64, {blocks}, g.positions);
  list.Add("row_offsets", DType::kI64, {blocks + 1}, g.row_offsets);
  list.Add("anchors", DType::kI32, {blocks}, g.anchors);
  list.Add("drafts", DType::kI32, {blocks, kBlockRows}, g.drafts);
  if (info_.has_main_x) list.Add("rows.A", DType::kBf16, {rows, info_.dim}, g.main_x);
  if (info_.has_taps) list.Add("rows.B", DType::kBf16, {rows, info_.tap_values}, g.taps);
  if (info_.has_logits) {
    list.Add("logits", DType::kF32, {blocks, kBlockRows, info_.vocab}, g.logits);
  }
  if (info_.has_confidence) {
    list.Add("confidence", DType::kF32, {blocks, kBlockRows}, g.confidence);
  }
  if (info_.has_margins) list.Add("margins", DType::kF32, {blocks, kBlockRows}, g.margins);
  if (info_.has_routing) {
    list.Add("experts", DType::kI32, {blocks, info_.stages, kBlockRows, info_.experts_per_token},
             g.experts);
    list.Add("route_margins", DType::kF32, {blocks, info_.stages, kBlockRows}, g.route_margins);
  }
  const std::string name = absl::StrFormat("capture-%05d.safetensors", shard_names_.size() + 1);
  TP2_RETURN_IF_ERROR(list.Write(absl::StrCat(folder_.path(), "/", name)));
  shard_names_.push_back(name);
  gathered_ = {};
  gathered_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status CaptureWriter::Finish() {
  if (round_count_ == 0) {
    return MakeError(absl::StatusCode::kFailedPrecondition, {.what = "capture",
                                                             .expected = "at least one round",
                                                             .got = "none",
                                                             .where = "",
                                                             .next = ""});
  }
  if (!gathered_.n_out.empty()) TP2_RETURN_IF_ERROR(WriteShard());
  const CaptureIndex index = {info_, round_count_, shard_names_};
  TP2_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder_.path(), "/", kCaptureIndexFile),
                                          CaptureIndexText(index), IfExists::kRefuse));
  return folder_.Commit();
}

}  // namespace tp2
