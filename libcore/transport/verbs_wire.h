// What two RDMA ends tell each other beside frames: the private data of connection requests,
// acceptances and rejections, and the 32 bits that come with every write. Little-endian, reserved
// bytes zero. Bytes in, values out: needs no device and trusts nothing.
//
// request, 56 bytes        acceptance, 48 bytes     rejection, 8 bytes
//  off bytes field          off bytes field          off bytes field
//    0   4  "DSPR"            0   4  "DSPR"            0   4  "DSPR"
//    4   2  version           4   2  version           4   2  version
//    6   2  zero              6   2  ring slots, 2     6   2  Refusal
//    8  16  client uuid       8  16  instance uuid
//   24  16  identity         24   8  ring address
//   40   8  ring address     32   4  remote key
//   48   4  remote key       36   4  slot bytes
//   52   4  slot bytes       40   8  zero
//
// 56 bytes are all that a request can carry. The identity is an opaque value that both ends must
// hold; slot i of a ring begins at its address + i * SlotStride(slot bytes).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tp2::transport {

inline constexpr uint16_t kVerbsVersion = 0x0100;
inline constexpr int kRingSlots = 2;
inline constexpr size_t kRequestDataBytes = 56;
inline constexpr size_t kAcceptDataBytes = 48;
inline constexpr size_t kRejectDataBytes = 8;

using VerbsUuid = std::array<uint8_t, 16>;

// Why a connection request is turned away; the number is what crosses the wire.
enum class Refusal : uint16_t {
  kNone = 0,
  kNotOurs = 1,  // no such private data
  kVersion = 2,
  kIdentity = 3,
  kRing = 4,        // a ring that no frame fits into, or that is not in memory
  kNotAllowed = 5,  // not from an allowed network
  kTooMany = 6,     // requests at once
  kResources = 7,   // the listener's device or memory has no room
};
const char* RefusalName(Refusal refusal);

// Where a party takes frames.
struct RingAddress {
  uint64_t address = 0;
  uint32_t remote_key = 0;
  uint32_t slot_bytes = 0;
};

// Whole pages, so that both slots are aligned and a stray write stays in its own.
constexpr uint64_t SlotStride(uint64_t slot_bytes) { return (slot_bytes + 4095) / 4096 * 4096; }

struct ConnectRequest {
  VerbsUuid client{};
  VerbsUuid identity{};
  RingAddress ring;
};

struct Acceptance {
  VerbsUuid instance{};
  RingAddress ring;
};

std::array<std::byte, kRequestDataBytes> EncodeRequest(const ConnectRequest& request);
std::array<std::byte, kAcceptDataBytes> EncodeAcceptance(const Acceptance& acceptance);
std::array<std::byte, kRejectDataBytes> EncodeRejection(Refusal refusal);

// Bytes behind the defined ones are the connection manager's padding. `least_slot_bytes`: what a
// slot of the peer's ring must hold. Fields are checked in the order of Refusal.
Refusal DecodeRequest(std::span<const std::byte> data, const VerbsUuid& identity,
                      size_t least_slot_bytes, ConnectRequest* request);
Refusal DecodeAcceptance(std::span<const std::byte> data, size_t least_slot_bytes,
                         Acceptance* acceptance);
// kNotOurs for what is no rejection of ours.
Refusal DecodeRejection(std::span<const std::byte> data);

// The immediate of a write. A frame lies in `slot` of the receiver's ring; a release gives the
// sender's slot back. Bits 0-23: number, 24: slot, 31: release; the rest zero.
struct Immediate {
  int slot = 0;
  bool is_release = false;
  uint32_t number = 0;  // of the frame, counted from 0 by its sender, modulo 2^24
};
inline constexpr uint32_t kFrameNumbers = 1u << 24;

uint32_t PackImmediate(const Immediate& immediate);
std::optional<Immediate> UnpackImmediate(uint32_t bits);

}  // namespace tp2::transport
