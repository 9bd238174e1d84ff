// One queue pair with what it needs: a protection domain of its own, so that no other connection's
// keys are worth anything on it; a ring of two slots that the peer writes; staging memory of the
// same shape that is sent from; one completion queue for both directions. Knows no protocol.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/transport/verbs_events.h"
#include "libcore/transport/verbs_wire.h"

namespace tp2::transport {

class VerbsLink {
 public:
  // Enough for two frames and two releases under way.
  static constexpr int kReceives = 2 * kRingSlots;
  // Frames, releases and one probe, whose completions come later than the peer's next frame.
  static constexpr int kSends = 16;

  struct Sizes {
    size_t receive_slot_bytes = 0;
    size_t send_slot_bytes = 0;
  };
  // `id` is bound to a device and has no queue pair yet; all receives are posted when it returns.
  // Errors: kUnavailable.
  static absl::StatusOr<std::unique_ptr<VerbsLink>> Create(CmId id, const Sizes& sizes);
  ~VerbsLink();
  VerbsLink(const VerbsLink&) = delete;
  VerbsLink& operator=(const VerbsLink&) = delete;

  rdma_cm_id* id() const { return id_.get(); }
  std::span<std::byte> ring_slot(int slot) const { return ring_.Slot(slot); }
  std::span<std::byte> staging_slot(int slot) const { return staging_.Slot(slot); }
  RingAddress ring_address() const;
  uint32_t queue_pair() const { return id_->qp->qp_num; }
  const ibv_cq* completions() const { return completions_.get(); }

  // One RDMA WRITE, reported by a completion with `tag`. False when the queue is full or dead.
  struct Write {
    uint64_t tag = 0;
    std::span<const std::byte> bytes = {};  // of a staging slot
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
    std::optional<uint32_t> immediate = {};
  };
  bool Post(const Write& write);
  // Its completion has the tag kReceiveTag.
  static constexpr uint64_t kReceiveTag = ~uint64_t{0};
  bool PostReceive();

  // Completions that have come; how many.
  int Poll(std::span<ibv_wc> out) {
    return ::ibv_poll_cq(completions_.get(), static_cast<int>(out.size()), out.data());
  }
  // From now on a new completion makes completion_fd readable; Poll once more before sleeping.
  void ArmCompletions() { (void)::ibv_req_notify_cq(completions_.get(), 0); }
  int completion_fd() const { return channel_->fd; }
  void TakeCompletionEvents();

 private:
  // Anonymous pages: nothing of the process beside them.
  class SlotMemory {
   public:
    ~SlotMemory();
    bool Allocate(size_t slot_bytes);
    bool Register(ibv_pd* domain, int access);
    std::span<std::byte> Slot(int slot) const {
      return {bytes_ + static_cast<size_t>(slot) * SlotStride(slot_bytes_), slot_bytes_};
    }
    const ibv_mr* region() const { return region_; }

   private:
    std::byte* bytes_ = nullptr;
    size_t slot_bytes_ = 0;
    ibv_mr* region_ = nullptr;
  };
  template <auto kDestroy>
  struct Deleter {
    template <class T>
    void operator()(T* object) const {
      (void)kDestroy(object);
    }
  };

  explicit VerbsLink(CmId id) : id_(std::move(id)) {}
  absl::Status Prepare(const Sizes& sizes);

  // Destroyed from the last to the first, after the queue pair.
  CmId id_;
  std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>> domain_;
  std::unique_ptr<ibv_comp_channel, Deleter<ibv_destroy_comp_channel>> channel_;
  std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>> completions_;
  SlotMemory ring_;
  SlotMemory staging_;
};

}  // namespace tp2::transport
