// One lock file per card, held with flock by run-owned and its guard: all cards of a run or none.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"

namespace tp2::owned {

// Thread-compatible. The descriptors close on exec: a job that leaves a daemon behind never holds
// a lock.
class CardLocks {
 public:
  // Never waits. Locks in the order of UUIDs, whatever the ranks. Errors: kUnavailable when a lock
  // is busy (the holder is named), kInvalidArgument when a lock file cannot be used.
  static absl::StatusOr<CardLocks> Take(const std::string& folder,
                                        std::span<const std::string> uuids);

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status TakeOne(const std::string& path, const std::string& ordinal);

  std::vector<UniqueFd> fds_;
  std::vector<std::string> warnings_;
};

std::string LockPath(const std::string& folder, const std::string& uuid);

// Who holds a lock on this file, as the system tells it: "pid 123 (tp2-bench)"; empty when nobody.
// Takes nothing itself.
std::string LockHolder(const std::string& path);

}  // namespace tp2::owned
