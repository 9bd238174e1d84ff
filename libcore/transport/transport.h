// Moves frames between two parties: a fixed-size header and a body whose length a function of the
// caller reads from the header. Knows no messages. Back ends: inproc.h, tcp.h, verbs.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::transport {

// Body bytes that follow a header, or nothing when the header is to be refused.
using FrameSizer = std::optional<uint32_t> (*)(std::span<const std::byte> header);

// What a party accepts; fixed for the life of a connection.
struct FrameRule {
  size_t header_bytes = 64;
  size_t max_body_bytes = 0;  // checked before a body byte is read
  FrameSizer sizer = nullptr;
  int64_t frame_timeout_ms = 5000;  // from a frame's first byte to its last
  int64_t spin_us = 0;              // how long Receive polls before it sleeps
};

enum class Event {
  kFrame,      // a whole frame
  kBadHeader,  // the sizer refused, or the body would be too large; `frame` is the header only and
               // nothing more can be received
  kWoken,      // Wake() was called
  kTimeout,    // nothing complete yet; what has arrived is kept
  kClosed,     // the peer ended the stream between two frames
  kTruncated,  // the peer ended the stream, or the connection broke, inside a frame
  kStalled,    // a frame was not complete within frame_timeout_ms
};

struct Received {
  Event event = Event::kClosed;
  // Valid until Release; aligned to 64 bytes; empty unless kFrame or kBadHeader.
  std::span<std::byte> frame;
};

// Shown a frame's body while it arrives, in order, by the thread in Receive: work that goes over
// all of it is done when the frame is whole. Bytes of a frame that never becomes whole are shown
// too.
class BodyObserver {
 public:
  virtual ~BodyObserver() = default;
  virtual void BeginFrame() = 0;
  virtual void See(std::span<const std::byte> bytes) = 0;
};

// One thread receives and sends; Wake and Shutdown may be called from any thread. Two receive
// buffers of header + max_body bytes are allocated with the connection and never grow, so that one
// frame can be held while another arrives.
class Connection {
 public:
  virtual ~Connection() = default;

  // Negative timeout: no limit. Never returns kFrame while both buffers are held; then kTimeout.
  virtual Received Receive(int64_t timeout_ms) = 0;
  // The largest body from the next frame on; the rule's limit, until this is called, and never
  // more. A stranger gets less room than a client.
  virtual void LimitBody(size_t max_body_bytes) = 0;
  // From the next Receive on: how long it polls before it sleeps. The rule's, until this is called.
  virtual void SpinFor(int64_t spin_us) = 0;
  // From the next frame on; outlives the connection. Where bodies arrive at once it is shown
  // nothing.
  virtual void ObserveBodies(BodyObserver* observer) {}
  virtual void Release(std::span<std::byte> frame) = 0;

  // Sends header and body as one frame, or fails with kDeadlineExceeded or kUnavailable; after a
  // failure the connection is of no use.
  virtual absl::Status Send(std::span<const std::byte> header, std::span<const std::byte> body,
                            int64_t timeout_ms) = 0;

  // Makes the current or next Receive return kWoken. Wakes do not add up.
  virtual void Wake() = 0;
  // Ends both directions; the peer sees kClosed or kTruncated.
  virtual void Shutdown() = 0;

  virtual std::string peer() const = 0;  // "127.0.0.1:40112", "inproc"
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Null when the time is over or Stop was called. Errors: kUnavailable.
  virtual absl::StatusOr<std::unique_ptr<Connection>> Accept(int64_t timeout_ms) = 0;
  // From any thread: no connection is accepted any more.
  virtual void Stop() = 0;
  virtual std::string address() const = 0;  // with the port that was picked
};

}  // namespace tp2::transport
