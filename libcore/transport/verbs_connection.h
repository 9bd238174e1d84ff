// One RDMA connection, from an established queue pair on: frames, releases and the end, over a
// VerbsLink. verbs.h has the rules.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "libcore/base/unique_fd.h"
#include "libcore/transport/transport.h"
#include "libcore/transport/verbs_events.h"
#include "libcore/transport/verbs_link.h"
#include "libcore/transport/verbs_wire.h"

namespace tp2::transport {

class VerbsConnection final : public Connection {
 public:
  // The id of the link has moved to `channel`.
  VerbsConnection(CmChannel channel, std::unique_ptr<VerbsLink> link, const RingAddress& remote,
                  std::string peer, const FrameRule& rule);
  ~VerbsConnection() override;
  VerbsConnection(const VerbsConnection&) = delete;
  VerbsConnection& operator=(const VerbsConnection&) = delete;

  Received Receive(int64_t timeout_ms) override;
  void LimitBody(size_t max_body_bytes) override;
  void SpinFor(int64_t spin_us) override { spin_us_ = spin_us; }
  void Release(std::span<std::byte> frame) override;
  absl::Status Send(std::span<const std::byte> header, std::span<const std::byte> body,
                    int64_t timeout_ms) override;
  void Wake() override;
  // Waits a moment for what was sent to be taken.
  void Shutdown() override;
  std::string peer() const override { return peer_; }

 private:
  enum class End { kNone, kClosed, kBroken };
  enum class InSlot { kFree, kArrived, kHeld };
  // A slot of our ring.
  struct Incoming {
    InSlot state = InSlot::kFree;
    size_t frame_bytes = 0;
    uint32_t number = 0;
  };
  // A slot of the peer's ring, and the staging slot that goes with it.
  struct Outgoing {
    bool is_released = true;
    bool is_written = true;  // the completion of the last write has come
    uint32_t number = 0;
  };

  // Handles everything that has come; true when that was something. The caller holds mutex_.
  bool Pump();
  bool PollCompletions();
  void CheckEvents(int64_t now_ms);
  void ProbeIfSilent(int64_t now_ms);
  void OnCompletion(const ibv_wc& completion);
  void OnImmediate(uint32_t bits, size_t written_bytes);
  // Ends the connection; the first reason counts.
  void Finish(End end, const std::string& reason);
  void Disconnect();
  // Waits for anything to happen, without mutex_; a wake ends it only if it is heeded.
  void Sleep(std::unique_lock<std::mutex>* lock, int64_t deadline_ms, bool heeds_wake);
  Received TakeFrame();
  int WritableSlot() const;
  bool PostFrame(int slot, std::span<const std::byte> header, std::span<const std::byte> body);

  const FrameRule rule_;
  const std::string peer_;
  const RingAddress remote_;
  size_t max_body_bytes_ = 0;
  int64_t spin_us_ = 0;
  UniqueFd wake_fd_;
  std::atomic<bool> is_woken_{false};
  AsyncSink async_sink_;
  std::shared_ptr<AsyncWatch> async_watch_;

  // Shutdown may come from another thread; nobody holds it while asleep.
  std::mutex mutex_;
  CmChannel channel_;                            // guarded by mutex_
  std::unique_ptr<VerbsLink> link_;              // guarded by mutex_; gone before its channel
  std::array<Incoming, kRingSlots> incoming_{};  // guarded by mutex_
  std::array<Outgoing, kRingSlots> outgoing_{};  // guarded by mutex_
  uint32_t next_in_ = 0;                         // guarded by mutex_; number of the next frame
  uint32_t next_out_ = 0;                        // guarded by mutex_
  int64_t next_event_check_ms_ = 0;              // guarded by mutex_
  int64_t last_heard_ms_ = 0;                    // guarded by mutex_; from the peer or its device
  bool is_probing_ = false;                      // guarded by mutex_
  bool is_disconnected_ = false;                 // guarded by mutex_
  bool is_deaf_ = false;                         // guarded by mutex_; a frame was not acceptable
  End end_ = End::kNone;                         // guarded by mutex_
  std::string end_reason_;                       // guarded by mutex_
};

}  // namespace tp2::transport
