// The 64-byte header in front of every body.
//
// off size field           off size field
//   0   4  "DSPK"           24   8  seq
//   4   2  version          32   4  body bytes
//   6   2  type             36   4  status
//   8   4  flags            40   8  time_us
//  12   4  header CRC-32C   48   8  body XXH3-64, zero without BODY_HASH
//  16   8  session          56   8  trace id
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "libcore/contract/messages.h"

namespace tp2::contract {

enum class Direction { kRequest, kReply };

// Checks in order: length, magic, CRC, version, flags, status, body hash without its flag, body
// bytes. Returns kOk, kBadFrame, kVersionUnsupported or kTooLarge; `out` holds what the header says
// unless magic or CRC failed.
Code DecodeHeader(std::span<const std::byte> bytes, Direction direction, FrameHeader* out);

// Computes the CRC; out must hold kHeaderBytes.
void EncodeHeader(const FrameHeader& header, std::span<std::byte> out);

// How many body bytes follow a header, for transports, which know no messages. Nothing when the
// header is refused.
std::optional<uint32_t> RequestBodyBytes(std::span<const std::byte> header);
std::optional<uint32_t> ReplyBodyBytes(std::span<const std::byte> header);

uint64_t HashBody(std::span<const std::byte> body);

// The request type, or nothing when the number is none or carries the reply bit.
std::optional<Type> RequestType(const FrameHeader& header);

}  // namespace tp2::contract
