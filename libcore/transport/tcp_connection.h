// One TCP connection, from a connected socket on.
#pragma once

#include <atomic>
#include <string>

#include "libcore/base/unique_fd.h"
#include "libcore/transport/frame_buffers.h"
#include "libcore/transport/transport.h"

namespace tp2::transport {

class TcpConnection final : public Connection {
 public:
  // The socket is connected and tuned.
  TcpConnection(UniqueFd socket, std::string peer, const FrameRule& rule);
  ~TcpConnection() override { Shutdown(); }
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  Received Receive(int64_t timeout_ms) override;
  void LimitBody(size_t max_body_bytes) override;
  void SpinFor(int64_t spin_us) override { spin_us_ = spin_us; }
  void ObserveBodies(BodyObserver* observer) override { observer_ = observer; }
  void Release(std::span<std::byte> frame) override { buffers_.Release(frame.data()); }
  absl::Status Send(std::span<const std::byte> header, std::span<const std::byte> body,
                    int64_t timeout_ms) override;
  void Wake() override;
  void Shutdown() override;
  std::string peer() const override { return peer_; }

 private:
  enum class Progress { kComplete, kBadHeader, kWouldBlock, kEnded };
  // Reads what the socket has, up to the end of the frame.
  Progress ReadSome();
  // What to report once the socket has nothing (more); nothing to report: waits and returns false.
  bool WaitOrReport(int64_t deadline_ms, Received* report);
  Received TakeFrame(Event event);

  const FrameRule rule_;
  const std::string peer_;
  UniqueFd socket_;
  UniqueFd wake_fd_;
  std::atomic<bool> is_woken_{false};
  FrameBuffers buffers_;
  std::byte* filling_ = nullptr;  // buffer of the frame that is arriving
  size_t filled_bytes_ = 0;
  size_t wanted_bytes_ = 0;  // of the header, then of the frame
  int64_t frame_deadline_ms_ = 0;
  size_t max_body_bytes_ = 0;
  int64_t spin_us_ = 0;
  BodyObserver* observer_ = nullptr;
  bool is_ended_ = false;
};

}  // namespace tp2::transport
