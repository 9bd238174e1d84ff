// What RDMA reports beside completions: events of the connection manager, and asynchronous events
// of the device, which one descriptor brings to all connections of a process.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::transport {

// "RDMA what: expected success, got <errno text>", kUnavailable.
absl::Status VerbsError(const std::string& what, int error_number);

struct CmIdDeleter {
  void operator()(rdma_cm_id* id) const { (void)::rdma_destroy_id(id); }
};
using CmId = std::unique_ptr<rdma_cm_id, CmIdDeleter>;

// An event of the connection manager, already acknowledged; what it pointed to is copied.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_ERROR;
  int status = 0;
  rdma_cm_id* id = nullptr;  // CONNECT_REQUEST: new, and the receiver's to destroy
  std::array<std::byte, 255> data{};
  size_t data_bytes = 0;

  std::span<const std::byte> private_data() const { return std::span(data).first(data_bytes); }
};

// Ids must be destroyed before their channel.
class CmChannel {
 public:
  // Errors: kUnavailable on a machine without RDMA devices.
  static absl::StatusOr<CmChannel> Open();

  rdma_event_channel* get() const { return channel_.get(); }
  int fd() const { return channel_->fd; }
  // What has come, without waiting.
  std::optional<CmEvent> Next();
  // Waits; nothing when the time is over or `wake_fd` (-1: none) is readable.
  std::optional<CmEvent> Wait(int64_t deadline_ms, int wake_fd = -1);

 private:
  struct Deleter {
    void operator()(rdma_event_channel* channel) const { ::rdma_destroy_event_channel(channel); }
  };
  std::unique_ptr<rdma_event_channel, Deleter> channel_;
};

// Whom a device's asynchronous events concern.
struct AsyncSink {
  uint32_t queue_pair = 0;
  const ibv_cq* completions = nullptr;
  int wake_fd = -1;                  // signalled when is_lost becomes true
  std::atomic<bool> is_lost{false};  // the queue pair, its port or its address is gone
};

// Asynchronous events of one device; whoever reads one tells everybody it concerns. Thread-safe.
class AsyncWatch {
 public:
  // The watch of a device as librdmacm has it open; shared by all connections.
  static std::shared_ptr<AsyncWatch> Of(ibv_context* device);
  explicit AsyncWatch(ibv_context* device);

  int fd() const { return device_->async_fd; }
  void Add(AsyncSink* sink);
  void Remove(AsyncSink* sink);
  // Handles what has come, without waiting.
  void Drain();

 private:
  void Dispatch(const ibv_async_event& event);

  ibv_context* device_;
  std::mutex mutex_;
  std::vector<AsyncSink*> sinks_;  // guarded by mutex_
};

}  // namespace tp2::transport
