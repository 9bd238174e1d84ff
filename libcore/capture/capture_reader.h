// A capture folder, opened and checked whole: nothing that Open lets through can be refused later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/file.h"
#include "libcore/capture/capture.h"
#include "libcore/capture/capture_shard.h"

namespace tp2 {

// Owns the maps that rounds point into. Thread-safe once open.
class CaptureReader {
 public:
  // Reads every byte once. Refuses, one line each: an unknown schema, a missing or malformed shard,
  // wrong offsets, position gaps and rollbacks beyond the ring, rows that are not finite, anything
  // out of range. Errors: kInvalidArgument, kDataLoss.
  static absl::StatusOr<CaptureReader> Open(const std::string& dir);

  const CaptureInfo& info() const { return info_; }
  int64_t round_count() const { return round_count_; }
  int64_t block_count() const { return block_count_; }
  int64_t row_count() const { return row_count_; }
  // Longest sequence, anchor excluded.
  int64_t max_length() const { return max_length_; }
  int shard_count() const { return static_cast<int>(shards_.size()); }

  CaptureRound Round(int64_t round) const;

  // Errors: kFailedPrecondition when the capture was made with another checkpoint or other sizes.
  absl::Status CheckModel(const std::string& identity_hex, const DrafterConfig& config) const;

 private:
  CaptureReader() = default;
  absl::Status CheckSequence(const std::string& dir);

  CaptureInfo info_;
  std::vector<MappedFile> files_;
  std::vector<CaptureShard> shards_;
  std::vector<int64_t> first_round_;  // of every shard
  int64_t round_count_ = 0;
  int64_t block_count_ = 0;
  int64_t row_count_ = 0;
  int64_t max_length_ = 0;
};

}  // namespace tp2
