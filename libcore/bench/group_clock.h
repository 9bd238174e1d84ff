// Time per group of operations: a clock that is read wherever one group of a body's operations ends
// and another begins. Knows no operations; timed_ops.h feeds it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/clock.h"
#include "libcore/bench/groups.h"

namespace tp2::bench {

struct GroupTimes {
  PerGroup<int64_t> ns = {};
  int mark_count = 0;  // borders at which the clock was read
};

// Thread-compatible. A body is known by its key; it runs once and may be replayed without running.
class GroupClock {
 public:
  virtual ~GroupClock() = default;

  virtual void Begin(int key) = 0;
  // What follows belongs to `group`. Only between Begin and End, when the group changes.
  virtual void Mark(KernelGroup group) = 0;
  virtual void End() = 0;

  // Of the body's latest run or replay, which must have ended.
  // Errors: kInternal for a key without a body, kAborted for device faults.
  virtual absl::StatusOr<GroupTimes> Read(int key) const = 0;

  // The body that ran or was replayed last.
  void set_latest_key(int key) { latest_key_ = key; }
  int latest_key() const { return latest_key_; }

 private:
  int latest_key_ = -1;
};

// For op sets whose operations end before they return.
class HostGroupClock final : public GroupClock {
 public:
  explicit HostGroupClock(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  void Begin(int key) override;
  void Mark(KernelGroup group) override;
  void End() override;
  absl::StatusOr<GroupTimes> Read(int key) const override;

 private:
  std::shared_ptr<const Clock> clock_;
  std::map<int, GroupTimes> times_;
  GroupTimes* current_ = nullptr;
  KernelGroup group_ = KernelGroup::kOther;
  int64_t since_ns_ = 0;
};

}  // namespace tp2::bench
