#include "libcore/transport/inproc.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "libcore/base/error.h"
#include "libcore/transport/frame_buffers.h"

namespace tp2::transport {
namespace {

// Frames on their way to one end.
class Mailbox {
 public:
  explicit Mailbox(const FrameRule& rule)
      : rule_(rule), buffers_(rule.header_bytes + rule.max_body_bytes) {}

  absl::Status Put(std::span<const std::byte> header, std::span<const std::byte> body,
                   int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const bool has_room =
        WaitFor(lock, timeout_ms, [&] { return is_closed_ || buffers_.Free() != nullptr; });
    if (is_closed_) {
      return MakeError(absl::StatusCode::kUnavailable,
                       {.what = "inproc send", .expected = "an open peer", .got = "closed"});
    }
    if (!has_room) {
      return MakeError(absl::StatusCode::kDeadlineExceeded,
                       {.what = "inproc send",
                        .expected = "a free buffer",
                        .got = "none in " + std::to_string(timeout_ms) + " ms"});
    }
    Message message{.buffer = buffers_.Free(), .stored_bytes = 0, .event = Event::kFrame};
    const size_t sent_bytes = header.size() + body.size();
    message.stored_bytes = std::min(sent_bytes, buffers_.frame_bytes());
    const size_t header_part = std::min(header.size(), message.stored_bytes);
    std::copy_n(header.begin(), header_part, message.buffer);
    std::copy_n(body.begin(), message.stored_bytes - header_part, message.buffer + header_part);
    message.event = Classify(&message, sent_bytes);
    buffers_.Hold(message.buffer);
    queue_.push_back(message);
    changed_.notify_all();
    return absl::OkStatus();
  }

  Received Take(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    WaitFor(lock, timeout_ms, [&] { return is_woken_ || is_closed_ || !queue_.empty(); });
    if (is_woken_) {
      is_woken_ = false;
      return {Event::kWoken, {}};
    }
    if (queue_.empty()) return {is_closed_ ? Event::kClosed : Event::kTimeout, {}};
    const Message message = queue_.front();
    queue_.pop_front();
    if (message.event == Event::kFrame || message.event == Event::kBadHeader) {
      return {message.event, {message.buffer, message.stored_bytes}};
    }
    ReleaseLocked(message.buffer);
    return {message.event, {}};
  }

  void Release(const std::byte* buffer) {
    const std::lock_guard lock(mutex_);
    ReleaseLocked(buffer);
  }

  void LimitBody(size_t max_body_bytes) {
    const std::lock_guard lock(mutex_);
    max_body_bytes_ = std::min(max_body_bytes, rule_.max_body_bytes);
  }

  void Wake() {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    changed_.notify_all();
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  struct Message {
    std::byte* buffer;
    size_t stored_bytes;
    Event event;
  };

  template <class Predicate>
  bool WaitFor(std::unique_lock<std::mutex>& lock, int64_t timeout_ms, Predicate predicate) {
    if (timeout_ms >= 0) {
      return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), predicate);
    }
    changed_.wait(lock, predicate);
    return true;
  }

  // What a stream would have made of the same bytes.
  Event Classify(Message* message, size_t sent_bytes) const {
    if (sent_bytes < rule_.header_bytes) return Event::kTruncated;
    const std::optional<uint32_t> body_bytes = rule_.sizer({message->buffer, rule_.header_bytes});
    if (!body_bytes.has_value() || *body_bytes > max_body_bytes_) {
      message->stored_bytes = rule_.header_bytes;
      return Event::kBadHeader;
    }
    return sent_bytes == rule_.header_bytes + *body_bytes ? Event::kFrame : Event::kTruncated;
  }

  void ReleaseLocked(const std::byte* buffer) {
    buffers_.Release(buffer);
    changed_.notify_all();
  }

  const FrameRule rule_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t max_body_bytes_ = rule_.max_body_bytes;  // guarded by mutex_
  FrameBuffers buffers_;                          // guarded by mutex_
  std::deque<Message> queue_;                     // guarded by mutex_; at most one per buffer
  bool is_woken_ = false;                         // guarded by mutex_
  bool is_closed_ = false;                        // guarded by mutex_
};

class InprocConnection final : public Connection {
 public:
  InprocConnection(std::shared_ptr<Mailbox> in, std::shared_ptr<Mailbox> out)
      : in_(std::move(in)), out_(std::move(out)) {}
  ~InprocConnection() override { Shutdown(); }
  InprocConnection(const InprocConnection&) = delete;
  InprocConnection& operator=(const InprocConnection&) = delete;

  Received Receive(int64_t timeout_ms) override { return in_->Take(timeout_ms); }
  void LimitBody(size_t max_body_bytes) override { in_->LimitBody(max_body_bytes); }
  void SpinFor(int64_t spin_us) override {}  // a wake through the mutex is what this one measures
  void Release(std::span<std::byte> frame) override { in_->Release(frame.data()); }
  absl::Status Send(std::span<const std::byte> header, std::span<const std::byte> body,
                    int64_t timeout_ms) override {
    return out_->Put(header, body, timeout_ms);
  }
  void Wake() override { in_->Wake(); }
  void Shutdown() override {
    in_->Close();
    out_->Close();
  }
  std::string peer() const override { return "inproc"; }

 private:
  std::shared_ptr<Mailbox> in_;
  std::shared_ptr<Mailbox> out_;
};

}  // namespace

std::pair<std::unique_ptr<Connection>, std::unique_ptr<Connection>> MakeInprocPair(
    const FrameRule& first, const FrameRule& second) {
  auto to_first = std::make_shared<Mailbox>(first);
  auto to_second = std::make_shared<Mailbox>(second);
  return {std::make_unique<InprocConnection>(to_first, to_second),
          std::make_unique<InprocConnection>(to_second, to_first)};
}

}  // namespace tp2::transport
