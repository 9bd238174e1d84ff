#include "libcore/transport/verbs_events.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/transport/socket_util.h"

namespace tp2::transport {
namespace {

void SetNonBlocking(int fd) { (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

// librdmacm complains on stderr where there is no device: it is asked only where there is one.
bool HasDevice() {
  int count = 0;
  ibv_device** devices = ::ibv_get_device_list(&count);
  if (devices != nullptr) ::ibv_free_device_list(devices);
  return devices != nullptr && count > 0;
}

}  // namespace

absl::Status VerbsError(const std::string& what, int error_number) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "RDMA " + what,
                    .expected = "success",
                    .got = std::generic_category().message(error_number)});
}

absl::StatusOr<CmChannel> CmChannel::Open() {
  const absl::Status missing = MakeError(absl::StatusCode::kUnavailable,
                                         {.what = "RDMA",
                                          .expected = "a device and its connection manager",
                                          .got = "none on this machine",
                                          .next = "use TCP, or check `rdma link` and rdma_ucm"});
  if (!HasDevice()) return missing;
  CmChannel channel;
  channel.channel_.reset(::rdma_create_event_channel());
  if (channel.channel_ == nullptr) return missing;
  SetNonBlocking(channel.fd());
  return channel;
}

std::optional<CmEvent> CmChannel::Next() {
  rdma_cm_event* event = nullptr;
  if (::rdma_get_cm_event(channel_.get(), &event) != 0) return std::nullopt;
  CmEvent copy{.type = event->event, .status = event->status, .id = event->id};
  const auto* data = static_cast<const std::byte*>(event->param.conn.private_data);
  if (data != nullptr) {
    copy.data_bytes = std::min<size_t>(event->param.conn.private_data_len, copy.data.size());
    std::copy_n(data, copy.data_bytes, copy.data.begin());
  }
  (void)::rdma_ack_cm_event(event);
  return copy;
}

std::optional<CmEvent> CmChannel::Wait(int64_t deadline_ms, int wake_fd) {
  while (true) {
    if (std::optional<CmEvent> event = Next()) return event;
    if (!WaitForFd(fd(), POLLIN, wake_fd, deadline_ms)) return std::nullopt;
    pollfd wake{.fd = wake_fd, .events = POLLIN, .revents = 0};
    if (wake_fd >= 0 && ::poll(&wake, 1, 0) > 0) return Next();
  }
}

std::shared_ptr<AsyncWatch> AsyncWatch::Of(ibv_context* device) {
  static std::mutex mutex;
  static std::map<ibv_context*, std::weak_ptr<AsyncWatch>> watches;
  const std::lock_guard lock(mutex);
  std::weak_ptr<AsyncWatch>& known = watches[device];
  std::shared_ptr<AsyncWatch> watch = known.lock();
  if (watch == nullptr) known = watch = std::make_shared<AsyncWatch>(device);
  return watch;
}

AsyncWatch::AsyncWatch(ibv_context* device) : device_(device) { SetNonBlocking(fd()); }

void AsyncWatch::Add(AsyncSink* sink) {
  const std::lock_guard lock(mutex_);
  sinks_.push_back(sink);
}

void AsyncWatch::Remove(AsyncSink* sink) {
  const std::lock_guard lock(mutex_);
  std::erase(sinks_, sink);
}

void AsyncWatch::Drain() {
  ibv_async_event event{};
  while (::ibv_get_async_event(device_, &event) == 0) {
    Dispatch(event);
    // A queue pair cannot be destroyed before its events are acknowledged.
    ::ibv_ack_async_event(&event);
  }
}

void AsyncWatch::Dispatch(const ibv_async_event& event) {
  const std::lock_guard lock(mutex_);
  for (AsyncSink* sink : sinks_) {
    bool is_lost = false;
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_PATH_MIG_ERR:
        is_lost = event.element.qp->qp_num == sink->queue_pair;
        break;
      case IBV_EVENT_CQ_ERR:
        is_lost = event.element.cq == sink->completions;
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_GID_CHANGE:  // the address may be at another index now, or nowhere
        is_lost = true;
        break;
      default:
        break;
    }
    if (!is_lost) continue;
    sink->is_lost.store(true);
    SignalWakeFd(sink->wake_fd);
  }
}

}  // namespace tp2::transport
