// Writes a capture while rounds happen. The folder appears under its name complete or not at all,
// and is never replaced.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/capture/capture.h"
#include "libcore/checkpoint/staged_folder.h"

namespace tp2 {

// Thread-compatible.
class CaptureWriter {
 public:
  static constexpr int64_t kDefaultShardBytes = int64_t{256} << 20;

  // `info` says which rows and optional tensors every block will have. A shard is written whenever
  // about `shard_bytes` have been gathered; that is all the memory the writer holds. Errors:
  // kInvalidArgument when `dir` exists and is not empty.
  static absl::StatusOr<CaptureWriter> Create(const std::string& dir, const CaptureInfo& info,
                                              int64_t shard_bytes = kDefaultShardBytes);

  // Copies the round. Its tensors must have the sizes that `info` implies (TP2_CHECK).
  absl::Status Add(const CaptureRound& round);

  // Writes the rest and puts the folder in place. Errors: kFailedPrecondition without any round.
  absl::Status Finish();

  int64_t round_count() const { return round_count_; }

 private:
  struct Gathered {
    std::vector<int64_t> round_blocks = {0};
    std::vector<int32_t> n_out, slots, anchors, drafts, experts;
    std::vector<int64_t> bases, positions;
    std::vector<int64_t> row_offsets = {0};
    std::vector<Bf16> main_x, taps;
    std::vector<float> logits, confidence, margins, route_margins;
  };

  CaptureWriter(StagedFolder folder, const CaptureInfo& info, int64_t shard_bytes);
  void AddBlock(const CaptureBlock& block);
  absl::Status WriteShard();

  StagedFolder folder_;
  CaptureInfo info_;
  int64_t shard_bytes_;
  Gathered gathered_;
  int64_t gathered_bytes_ = 0;
  int64_t round_count_ = 0;
  std::vector<std::string> shard_names_;
};

}  // namespace tp2
