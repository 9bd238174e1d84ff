#include "libcore/capture/capture_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/capture/capture_index.h"
#include "libcore/model/slot_window.h"

namespace tp2 {
namespace {

constexpr size_t kMaxIndexBytes = 16 << 20;

absl::Status BadSequence(const std::string& dir, int64_t round, const std::string& expected,
                         const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat("capture: round ", round),
                    .expected = expected,
                    .got = got,
                    .where = dir,
                    .next = "fix the writer; cmd/tp2-parity/README.md has the format"});
}

// Follows one slot through the rounds, as the drafter's contract would.
class SlotFollower {
 public:
  absl::Status Apply(const std::string& dir, int64_t round, const CaptureBlock& block,
                     int ring_rows) {
    if (block.base) {
      window_ = SlotWindow(*block.base);
      is_open_ = true;
    }
    const std::string slot = absl::StrCat("slot ", block.slot);
    if (!is_open_) return BadSequence(dir, round, absl::StrCat("a base for ", slot), "none yet");
    switch (window_.Check(block.position)) {
      case InsertVerdict::kOk:
        break;
      case InsertVerdict::kPositionGap:
        return BadSequence(dir, round,
                           absl::StrCat(slot, " to go on at most at ", window_.length()),
                           absl::StrCat("a gap up to ", block.position));
      case InsertVerdict::kRollbackTooFar:
        return BadSequence(dir, round,
                           absl::StrCat(slot, " to roll back at most to ", window_.oldest()),
                           absl::StrCat(block.position));
    }
    window_.Insert(block.position, block.row_count, ring_rows);
    if (window_.is_empty()) {
      return BadSequence(dir, round, absl::StrCat("a context row in ", slot), "none");
    }
    return absl::OkStatus();
  }

  int64_t length() const { return window_.length(); }

 private:
  SlotWindow window_;
  bool is_open_ = false;
};

}  // namespace

absl::StatusOr<CaptureReader> CaptureReader::Open(const std::string& dir) {
  const std::string index_path = absl::StrCat(dir, "/", kCaptureIndexFile);
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, kMaxIndexBytes));
  TP2_ASSIGN_OR_RETURN(const CaptureIndex index, ParseCaptureIndex(text, index_path));
  CaptureReader reader;
  reader.info_ = index.info;
  for (const std::string& name : index.shards) {
    const std::string path = absl::StrCat(dir, "/", name);
    TP2_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    TP2_ASSIGN_OR_RETURN(const CaptureShard shard,
                         ParseCaptureShard(file.bytes(), index.info, path));
    reader.files_.push_back(std::move(file));
    reader.shards_.push_back(shard);
    reader.first_round_.push_back(reader.round_count_);
    reader.round_count_ += shard.round_count();
    reader.block_count_ += shard.block_count();
    reader.row_count_ += shard.row_offsets.back();
  }
  if (reader.round_count_ != index.rounds) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "capture: rounds",
                      .expected = absl::StrCat(index.rounds),
                      .got = absl::StrCat(reader.round_count_, " in the shards"),
                      .where = index_path,
                      .next = ""});
  }
  TP2_RETURN_IF_ERROR(reader.CheckSequence(dir));
  return reader;
}

absl::Status CaptureReader::CheckSequence(const std::string& dir) {
  std::array<SlotFollower, kSlotCount> slots;
  for (int64_t round = 0; round < round_count_; ++round) {
    for (const CaptureBlock& block : Round(round).blocks) {
      SlotFollower& slot = slots[block.slot];
      TP2_RETURN_IF_ERROR(slot.Apply(dir, round, block, info_.window + kRingSlack));
      max_length_ = std::max(max_length_, slot.length());
    }
  }
  return absl::OkStatus();
}

CaptureRound CaptureReader::Round(int64_t round) const {
  const auto after = std::upper_bound(first_round_.begin(), first_round_.end(), round);
  const size_t shard = static_cast<size_t>(after - first_round_.begin()) - 1;
  return RoundOf(shards_[shard], info_, round - first_round_[shard]);
}

absl::Status CaptureReader::CheckModel(const std::string& identity_hex,
                                       const DrafterConfig& config) const {
  if (identity_hex != info_.model_identity) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {.what = "capture: model identity",
                      .expected = identity_hex,
                      .got = info_.model_identity,
                      .where = "",
                      .next = "use the checkpoint that the capture was made with"});
  }
  const CaptureInfo own = CaptureInfoOf(config);
  const auto sizes = [](const CaptureInfo& info) {
    return absl::StrCat("dim ", info.dim, ", taps ", info.tap_values, ", vocab ", info.vocab,
                        ", stages ", info.stages, ", experts ", info.experts, " top ",
                        info.experts_per_token, ", window ", info.window);
  };
  if (sizes(own) != sizes(info_)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, {.what = "capture: sizes",
                                                             .expected = sizes(own),
                                                             .got = sizes(info_),
                                                             .where = "",
                                                             .next = ""});
  }
  return absl::OkStatus();
}

}  // namespace tp2
