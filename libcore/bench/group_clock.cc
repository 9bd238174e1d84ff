#include "libcore/bench/group_clock.h"

#include "absl/strings/str_cat.h"

namespace tp2::bench {

void HostGroupClock::Begin(const GraphKey& key) {
  current_ = &times_[key];
  *current_ = {};
}

void HostGroupClock::Mark(KernelGroup group) {
  const int64_t now_ns = clock_->NowNs();
  if (current_->mark_count > 0) At(current_->ns, group_) += now_ns - since_ns_;
  ++current_->mark_count;
  group_ = group;
  since_ns_ = now_ns;
}

void HostGroupClock::End() {
  if (current_->mark_count > 0) At(current_->ns, group_) += clock_->NowNs() - since_ns_;
  ++current_->mark_count;
  current_ = nullptr;
}

absl::StatusOr<GroupTimes> HostGroupClock::Read(const GraphKey& key) const {
  const auto found = times_.find(key);
  if (found == times_.end()) {
    return absl::InternalError(absl::StrCat("group clock: no body with key ", key.Name()));
  }
  return found->second;
}

}  // namespace tp2::bench
