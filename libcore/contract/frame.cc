#include "libcore/contract/frame.h"

#include <array>
#include <cstring>

#include "libcore/base/digest.h"
#include "libcore/contract/crc32c.h"
#include "libcore/contract/wire.h"

namespace tp2::contract {
namespace {

constexpr std::array<char, 4> kMagic = {'D', 'S', 'P', 'K'};
constexpr size_t kCrcOffset = 12;

using HeaderCopy = std::array<std::byte, kHeaderBytes>;

HeaderCopy CopyOf(std::span<const std::byte> bytes) {
  HeaderCopy copy;
  std::memcpy(copy.data(), bytes.data(), copy.size());
  return copy;
}

uint32_t HeaderCrc(HeaderCopy header) {
  std::memset(header.data() + kCrcOffset, 0, sizeof(uint32_t));
  return Crc32c(header);
}

}  // namespace

Code DecodeHeader(std::span<const std::byte> bytes, Direction direction, FrameHeader* out) {
  if (bytes.size() < kHeaderBytes) return Code::kBadFrame;
  // Over RDMA the peer can still write there: what is checked is what is returned.
  const HeaderCopy header = CopyOf(bytes);
  const WireReader reader(header);
  if (reader.At<std::array<char, 4>>(0) != kMagic) return Code::kBadFrame;
  if (reader.At<uint32_t>(kCrcOffset) != HeaderCrc(header)) return Code::kBadFrame;
  *out = {.version = reader.At<uint16_t>(4),
          .type = reader.At<uint16_t>(6),
          .flags = reader.At<uint32_t>(8),
          .session = reader.At<uint64_t>(16),
          .seq = reader.At<uint64_t>(24),
          .body_bytes = reader.At<uint32_t>(32),
          .status = reader.At<uint32_t>(36),
          .time_us = reader.At<uint64_t>(40),
          .body_hash = reader.At<uint64_t>(48),
          .trace_id = reader.At<uint64_t>(56)};
  if (out->version != kVersion) return Code::kVersionUnsupported;
  const uint32_t allowed = direction == Direction::kRequest ? kRequestFlags : kReplyFlags;
  if ((out->flags & ~allowed) != 0) return Code::kBadFrame;
  if (direction == Direction::kRequest && out->status != 0) return Code::kBadFrame;
  if ((out->flags & kFlagBodyHash) == 0 && out->body_hash != 0) return Code::kBadFrame;
  const uint32_t limit =
      direction == Direction::kRequest ? kMaxBodyBytes : kMaxReplyBytes - kHeaderBytes;
  return out->body_bytes > limit ? Code::kTooLarge : Code::kOk;
}

void EncodeHeader(const FrameHeader& header, std::span<std::byte> out) {
  WireWriter writer(out.first(kHeaderBytes));
  writer.Put(0, kMagic);
  writer.Put(4, header.version);
  writer.Put(6, header.type);
  writer.Put(8, header.flags);
  writer.Put(16, header.session);
  writer.Put(24, header.seq);
  writer.Put(32, header.body_bytes);
  writer.Put(36, header.status);
  writer.Put(40, header.time_us);
  writer.Put(48, header.body_hash);
  writer.Put(56, header.trace_id);
  writer.Put(kCrcOffset, HeaderCrc(CopyOf(out)));
}

std::optional<uint32_t> RequestBodyBytes(std::span<const std::byte> header) {
  FrameHeader decoded;
  if (DecodeHeader(header, Direction::kRequest, &decoded) != Code::kOk) return std::nullopt;
  return decoded.body_bytes;
}

std::optional<uint32_t> ReplyBodyBytes(std::span<const std::byte> header) {
  FrameHeader decoded;
  if (DecodeHeader(header, Direction::kReply, &decoded) != Code::kOk) return std::nullopt;
  return decoded.body_bytes;
}

uint64_t HashBody(std::span<const std::byte> body) { return Xxh3::Of(body); }

std::optional<Type> RequestType(const FrameHeader& header) {
  if (header.type < static_cast<uint16_t>(Type::kHello) ||
      header.type > static_cast<uint16_t>(Type::kBye)) {
    return std::nullopt;
  }
  return static_cast<Type>(header.type);
}

}  // namespace tp2::contract
