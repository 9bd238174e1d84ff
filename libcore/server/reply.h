// A reply frame under construction, and the answers that need no engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libcore/contract/codec.h"
#include "libcore/contract/frame.h"
#include "libcore/server/health.h"

namespace tp2::server {

struct ReplyFrame {
  std::array<std::byte, contract::kMaxReplyBytes> bytes;
  size_t body_bytes = 0;
  contract::Code code = contract::Code::kOk;

  // The body area of `count` bytes, to be filled by an encoder.
  std::span<std::byte> Body(size_t count) {
    body_bytes = count;
    return std::span(bytes).subspan(contract::kHeaderBytes, count);
  }
  std::span<const std::byte> body() const {
    return std::span(bytes).subspan(contract::kHeaderBytes, body_bytes);
  }
  std::span<const std::byte> header() const {
    return std::span(bytes).first(contract::kHeaderBytes);
  }
  std::span<const std::byte> frame() const {
    return std::span(bytes).first(contract::kHeaderBytes + body_bytes);
  }
  void Refuse(contract::Code refusal) {
    code = refusal;
    body_bytes = 0;
  }
};

struct ReplyContext {
  bool is_draining = false;
  int64_t spent_us = 0;  // since the request was complete
};

// Writes the header for the reply's code and body; the body is hashed when the request was.
void FinishReply(const contract::FrameHeader& request, const ReplyContext& context,
                 ReplyFrame* reply);

// Turns a stored reply into its resend: the same bytes but for CACHED_REPLY and the header's CRC.
void LoadCachedReply(std::span<const std::byte> stored, ReplyFrame* reply);

// HEALTH and PING, which may overtake and carry no seq. `session` is the connection's, 0 before
// HELLO.
void AnswerUnsequenced(contract::Type type, const contract::FrameHeader& request,
                       std::span<const std::byte> body, uint64_t session, const Health& health,
                       ReplyFrame* reply);

}  // namespace tp2::server
