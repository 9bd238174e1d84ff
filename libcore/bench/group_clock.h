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
#include "libcore/ops/graph_key.h"

namespace tp2::bench {

struct GroupTimes {
  PerGroup<int64_t> ns = {};
  int mark_count = 0;  // borders at which the clock was read
};

// Thread-compatible. A body is known by its key; it runs once and may be replayed without running.
class GroupClock {
 public:
  virtual ~GroupClock() = default;

  // Before a body runs, outside of it: may allocate what the body's marks need.
  virtual void Prepare() {}
  virtual void Begin(const GraphKey& key) = 0;
  // What follows belongs to `group`. Only between Begin and End, when the group changes.
  virtual void Mark(KernelGroup group) = 0;
  virtual void End() = 0;

  // Of the body's latest run or replay, which must have ended.
  // Errors: kInternal for a key without a body, kAborted for device faults.
  virtual absl::StatusOr<GroupTimes> Read(const GraphKey& key) const = 0;

  // The body that ran or was replayed last.
  void set_latest_key(const GraphKey& key) { latest_key_ = key; }
  const GraphKey& latest_key() const { return latest_key_; }

 private:
  GraphKey latest_key_;
};

// For op sets whose operations end before they return.
class HostGroupClock final : public GroupClock {
 public:
  explicit HostGroupClock(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  void Begin(const GraphKey& key) override;
  void Mark(KernelGroup group) override;
  void End() override;
  absl::StatusOr<GroupTimes> Read(const GraphKey& key) const override;

 private:
  std::shared_ptr<const Clock> clock_;
  std::map<GraphKey, GroupTimes> times_;
  GroupTimes* current_ = nullptr;
  KernelGroup group_ = KernelGroup::kOther;
  int64_t since_ns_ = 0;
};

}  // namespace tp2::bench
