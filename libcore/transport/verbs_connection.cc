#include "libcore/transport/verbs_connection.h"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/transport/socket_util.h"

namespace tp2::transport {
namespace {

// Tags of writes; frames have their slot.
constexpr uint64_t kReleaseTag = 16;
constexpr uint64_t kProbeTag = 17;

// Events cost a system call each: a poller asks for them so often, a sleeper is woken by them.
constexpr int64_t kEventCheckMs = 1;
// The device of a peer that is there answers an empty write, whatever its process does.
constexpr int64_t kProbeAfterMs = 1000;
// A release and the completion of the write that it answers cross: even a send that may not wait
// for its peer waits so long for its own device.
constexpr int64_t kCompletionMs = 20;
// How long Shutdown waits until the device of the peer has what was sent.
constexpr int64_t kLingerMs = 200;

}  // namespace

VerbsConnection::VerbsConnection(CmChannel channel, std::unique_ptr<VerbsLink> link,
                                 const RingAddress& remote, std::string peer, const FrameRule& rule)
    : rule_(rule),
      peer_(std::move(peer)),
      remote_(remote),
      max_body_bytes_(rule.max_body_bytes),
      spin_us_(rule.spin_us),
      wake_fd_(MakeWakeFd()),
      async_watch_(AsyncWatch::Of(link->id()->verbs)),
      channel_(std::move(channel)),
      link_(std::move(link)),
      last_heard_ms_(NowMs()) {
  async_sink_.queue_pair = link_->queue_pair();
  async_sink_.completions = link_->completions();
  async_sink_.wake_fd = wake_fd_.get();
  async_watch_->Add(&async_sink_);
}

VerbsConnection::~VerbsConnection() {
  Shutdown();
  async_watch_->Remove(&async_sink_);
  // Its destruction waits for events that only a reader acknowledges.
  async_watch_->Drain();
  link_.reset();
}

void VerbsConnection::LimitBody(size_t max_body_bytes) {
  max_body_bytes_ = std::min(max_body_bytes, rule_.max_body_bytes);
}

void VerbsConnection::Disconnect() {
  if (is_disconnected_) return;
  is_disconnected_ = true;
  (void)::rdma_disconnect(link_->id());
}

void VerbsConnection::Finish(End end, const std::string& reason) {
  if (end_ == End::kNone) {
    end_ = end;
    end_reason_ = reason;
  }
  Disconnect();
}

bool VerbsConnection::Pump() {
  bool has_progress = PollCompletions();
  const int64_t now_ms = NowMs();
  if (now_ms >= next_event_check_ms_) {
    next_event_check_ms_ = now_ms + kEventCheckMs;
    const End before = end_;
    CheckEvents(now_ms);
    has_progress |= end_ != before;
  }
  return has_progress;
}

bool VerbsConnection::PollCompletions() {
  std::array<ibv_wc, 8> completions{};
  bool has_progress = false;
  while (true) {
    const int count = link_->Poll(completions);
    if (count < 0) Finish(End::kBroken, "the completion queue failed");
    if (count <= 0) return has_progress;
    has_progress = true;
    for (int i = 0; i < count; ++i) OnCompletion(completions[static_cast<size_t>(i)]);
  }
}

void VerbsConnection::OnCompletion(const ibv_wc& completion) {
  // Of a completion that failed only the tag and the status mean anything.
  if (completion.status != IBV_WC_SUCCESS) {
    const bool is_flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
    return Finish(is_flushed ? End::kClosed : End::kBroken, ::ibv_wc_status_str(completion.status));
  }
  last_heard_ms_ = NowMs();
  if (completion.wr_id == kProbeTag) is_probing_ = false;
  if (completion.wr_id < kRingSlots) outgoing_[completion.wr_id].is_written = true;
  if (completion.wr_id != VerbsLink::kReceiveTag || end_ != End::kNone) return;
  if (!link_->PostReceive()) return Finish(End::kBroken, "the receive queue failed");
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
    return Finish(End::kBroken, "the peer sent what is no frame");
  }
  OnImmediate(ntohl(completion.imm_data), completion.byte_len);
}

void VerbsConnection::OnImmediate(uint32_t bits, size_t written_bytes) {
  const std::optional<Immediate> immediate = UnpackImmediate(bits);
  if (!immediate.has_value()) return Finish(End::kBroken, "the peer sent a senseless immediate");
  if (immediate->is_release) {
    Outgoing& slot = outgoing_[static_cast<size_t>(immediate->slot)];
    if (slot.is_released || slot.number != immediate->number) {
      return Finish(End::kBroken, "the peer released what it does not have");
    }
    slot.is_released = true;
    return;
  }
  Incoming& slot = incoming_[static_cast<size_t>(immediate->slot)];
  if (slot.state != InSlot::kFree || immediate->number != next_in_) {
    return Finish(End::kBroken, "the peer wrote into a slot that it does not have");
  }
  next_in_ = (next_in_ + 1) % kFrameNumbers;
  slot = {.state = InSlot::kArrived, .frame_bytes = written_bytes, .number = immediate->number};
}

void VerbsConnection::CheckEvents(int64_t now_ms) {
  while (const std::optional<CmEvent> event = channel_.Next()) {
    if (event->type == RDMA_CM_EVENT_ESTABLISHED || event->type == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
      continue;
    }
    (void)PollCompletions();  // what the peer wrote before it left
    Finish(event->type == RDMA_CM_EVENT_DISCONNECTED ? End::kClosed : End::kBroken,
           ::rdma_event_str(event->type));
  }
  async_watch_->Drain();
  if (async_sink_.is_lost.load()) Finish(End::kBroken, "the RDMA device, port or address is gone");
  ProbeIfSilent(now_ms);
}

void VerbsConnection::ProbeIfSilent(int64_t now_ms) {
  if (end_ != End::kNone || is_probing_ || now_ms - last_heard_ms_ < kProbeAfterMs) return;
  is_probing_ = link_->Post(
      {.tag = kProbeTag, .remote_address = remote_.address, .remote_key = remote_.remote_key});
}

void VerbsConnection::Sleep(std::unique_lock<std::mutex>* lock, int64_t deadline_ms,
                            bool heeds_wake) {
  link_->ArmCompletions();
  if (Pump()) return;
  std::array<pollfd, 4> fds = {
      pollfd{link_->completion_fd(), POLLIN, 0}, pollfd{channel_.fd(), POLLIN, 0},
      pollfd{async_watch_->fd(), POLLIN, 0}, pollfd{wake_fd_.get(), POLLIN, 0}};
  const int left_ms = LeftMs(deadline_ms);
  const int timeout_ms =
      left_ms < 0 ? int{kProbeAfterMs} : std::min(left_ms, static_cast<int>(kProbeAfterMs));
  lock->unlock();
  (void)::poll(fds.data(), heeds_wake ? fds.size() : fds.size() - 1, timeout_ms);
  lock->lock();
  link_->TakeCompletionEvents();
  // Whose wake it was, the flags say.
  if (heeds_wake) DrainWakeFd(wake_fd_.get());
  next_event_check_ms_ = 0;
}

Received VerbsConnection::TakeFrame() {
  const auto by_number = [this](const Incoming& slot) {
    return slot.state == InSlot::kArrived ? (slot.number - next_in_) % kFrameNumbers
                                          : kFrameNumbers;
  };
  const size_t index = by_number(incoming_[0]) <= by_number(incoming_[1]) ? 0 : 1;
  Incoming& slot = incoming_[index];
  const std::span<std::byte> bytes = link_->ring_slot(static_cast<int>(index));
  slot.state = InSlot::kHeld;
  is_deaf_ = true;  // unless the frame is a good one
  if (slot.frame_bytes < rule_.header_bytes || slot.frame_bytes > bytes.size()) {
    return {Event::kTruncated, {}};
  }
  // The peer can still write there: what is checked is a copy.
  const std::vector<std::byte> header(bytes.begin(),
                                      bytes.begin() + static_cast<ptrdiff_t>(rule_.header_bytes));
  const std::optional<uint32_t> body_bytes = rule_.sizer(header);
  if (!body_bytes.has_value() || *body_bytes > max_body_bytes_) {
    return {Event::kBadHeader, bytes.first(rule_.header_bytes)};
  }
  if (slot.frame_bytes != rule_.header_bytes + *body_bytes) return {Event::kTruncated, {}};
  is_deaf_ = false;
  return {Event::kFrame, bytes.first(slot.frame_bytes)};
}

Received VerbsConnection::Receive(int64_t timeout_ms) {
  const int64_t deadline_ms = DeadlineFrom(timeout_ms);
  const SteadyClock clock;
  const int64_t spin_us = timeout_ms < 0 ? spin_us_ : std::min(spin_us_, timeout_ms * 1000);
  const int64_t spin_end_ns = spin_us > 0 ? clock.NowNs() + spin_us * 1000 : 0;
  const auto has = [this](InSlot state) {
    return std::any_of(incoming_.begin(), incoming_.end(),
                       [state](const Incoming& slot) { return slot.state == state; });
  };
  std::unique_lock lock(mutex_);
  while (true) {
    if (is_woken_.exchange(false)) {
      DrainWakeFd(wake_fd_.get());
      return {Event::kWoken, {}};
    }
    if (is_deaf_) return {Event::kClosed, {}};
    (void)Pump();
    // What arrived before the end counts.
    if (has(InSlot::kArrived)) return TakeFrame();
    if (end_ != End::kNone) {
      is_deaf_ = true;
      return {end_ == End::kBroken ? Event::kTruncated : Event::kClosed, {}};
    }
    if (!has(InSlot::kFree)) return {Event::kTimeout, {}};
    if (spin_us > 0 && clock.NowNs() < spin_end_ns) {
      lock.unlock();
      lock.lock();
      continue;
    }
    if (deadline_ms != kNoDeadline && NowMs() >= deadline_ms) return {Event::kTimeout, {}};
    Sleep(&lock, deadline_ms, /*heeds_wake=*/true);
  }
}

void VerbsConnection::Release(std::span<std::byte> frame) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kRingSlots; ++i) {
    if (link_->ring_slot(i).data() != frame.data()) continue;
    Incoming& slot = incoming_[static_cast<size_t>(i)];
    slot.state = InSlot::kFree;
    if (end_ != End::kNone) return;
    const bool is_posted = link_->Post(
        {.tag = kReleaseTag,
         .remote_address = remote_.address,
         .remote_key = remote_.remote_key,
         .immediate = PackImmediate({.slot = i, .is_release = true, .number = slot.number})});
    if (!is_posted) Finish(End::kBroken, "the send queue is full");
    return;
  }
  TP2_CHECK(false && "a frame of this connection");
}

int VerbsConnection::WritableSlot() const {
  for (int i = 0; i < kRingSlots; ++i) {
    const Outgoing& slot = outgoing_[static_cast<size_t>(i)];
    if (slot.is_released && slot.is_written) return i;
  }
  return -1;
}

bool VerbsConnection::PostFrame(int slot, std::span<const std::byte> header,
                                std::span<const std::byte> body) {
  const std::span<std::byte> staged = link_->staging_slot(slot).first(header.size() + body.size());
  std::copy(header.begin(), header.end(), staged.begin());
  std::copy(body.begin(), body.end(), staged.begin() + static_cast<ptrdiff_t>(header.size()));
  outgoing_[static_cast<size_t>(slot)] = {
      .is_released = false, .is_written = false, .number = next_out_};
  const uint64_t offset = static_cast<uint64_t>(slot) * SlotStride(remote_.slot_bytes);
  const bool is_posted =
      link_->Post({.tag = static_cast<uint64_t>(slot),
                   .bytes = staged,
                   .remote_address = remote_.address + offset,
                   .remote_key = remote_.remote_key,
                   .immediate = PackImmediate({.slot = slot, .number = next_out_})});
  next_out_ = (next_out_ + 1) % kFrameNumbers;
  return is_posted;
}

absl::Status VerbsConnection::Send(std::span<const std::byte> header,
                                   std::span<const std::byte> body, int64_t timeout_ms) {
  const int64_t deadline_ms = DeadlineFrom(timeout_ms);
  const int64_t completion_deadline_ms = DeadlineFrom(kCompletionMs);
  std::unique_lock lock(mutex_);
  const size_t most_bytes = std::min<size_t>(remote_.slot_bytes, link_->staging_slot(0).size());
  const auto refuse = [&](absl::StatusCode code, const std::string& expected,
                          const std::string& got) {
    return MakeError(code, {.what = "send to " + peer_, .expected = expected, .got = got});
  };
  if (header.size() + body.size() > most_bytes) {
    return refuse(absl::StatusCode::kUnavailable,
                  "at most " + std::to_string(most_bytes) + " bytes",
                  std::to_string(header.size() + body.size()));
  }
  while (true) {
    (void)Pump();
    if (end_ != End::kNone) {
      return refuse(absl::StatusCode::kUnavailable, "an open connection", end_reason_);
    }
    if (const int slot = WritableSlot(); slot >= 0) {
      if (PostFrame(slot, header, body)) return absl::OkStatus();
      Finish(End::kBroken, "the send queue is full");
      continue;
    }
    const bool is_released = std::any_of(outgoing_.begin(), outgoing_.end(),
                                         [](const Outgoing& slot) { return slot.is_released; });
    const int64_t until_ms = is_released && deadline_ms != kNoDeadline
                                 ? std::max(deadline_ms, completion_deadline_ms)
                                 : deadline_ms;
    if (until_ms != kNoDeadline && NowMs() >= until_ms) {
      return refuse(absl::StatusCode::kDeadlineExceeded,
                    "a released slot in " + std::to_string(timeout_ms) + " ms", "none");
    }
    Sleep(&lock, until_ms, /*heeds_wake=*/false);
  }
}

void VerbsConnection::Wake() {
  is_woken_.store(true);
  SignalWakeFd(wake_fd_.get());
}

void VerbsConnection::Shutdown() {
  const int64_t deadline_ms = DeadlineFrom(kLingerMs);
  std::unique_lock lock(mutex_);
  const auto is_under_way = [this] {
    return std::any_of(outgoing_.begin(), outgoing_.end(),
                       [](const Outgoing& slot) { return !slot.is_written; });
  };
  while (end_ == End::kNone && is_under_way() && NowMs() < deadline_ms) {
    if (!Pump()) Sleep(&lock, deadline_ms, /*heeds_wake=*/false);
  }
  Finish(End::kClosed, "closed here");
  SignalWakeFd(wake_fd_.get());
}

}  // namespace tp2::transport
