#include "libcore/transport/verbs_wire.h"

#include <bit>
#include <cstring>
#include <limits>

namespace tp2::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "private data is written as it lies");

constexpr std::array<char, 4> kMagic = {'D', 'S', 'P', 'R'};
constexpr uint32_t kMaxSlotBytes = 1u << 30;
constexpr uint32_t kNumberBits = kFrameNumbers - 1;
constexpr uint32_t kSlotBit = 1u << 24;
constexpr uint32_t kReleaseBit = 1u << 31;

struct RequestData {
  std::array<char, 4> magic{};
  uint16_t version = 0;
  uint16_t zero = 0;
  VerbsUuid client{};
  VerbsUuid identity{};
  RingAddress ring;
};
static_assert(sizeof(RequestData) == kRequestDataBytes);

struct AcceptData {
  std::array<char, 4> magic{};
  uint16_t version = 0;
  uint16_t ring_slots = 0;
  VerbsUuid instance{};
  RingAddress ring;
  uint64_t zero = 0;
};
static_assert(sizeof(AcceptData) == kAcceptDataBytes);

struct RejectData {
  std::array<char, 4> magic{};
  uint16_t version = 0;
  uint16_t refusal = 0;
};
static_assert(sizeof(RejectData) == kRejectDataBytes);

template <class Data>
auto ToBytes(const Data& data) {
  std::array<std::byte, sizeof(Data)> bytes{};
  std::memcpy(bytes.data(), &data, sizeof(data));
  return bytes;
}

// Everything but the ring and what is special to a kind.
template <class Data>
Refusal Read(std::span<const std::byte> bytes, Data* data) {
  if (bytes.size() < sizeof(Data)) return Refusal::kNotOurs;
  std::memcpy(data, bytes.data(), sizeof(Data));
  if (data->magic != kMagic) return Refusal::kNotOurs;
  return data->version == kVerbsVersion ? Refusal::kNone : Refusal::kVersion;
}

bool IsUsable(const RingAddress& ring, size_t least_slot_bytes) {
  if (ring.address == 0 || ring.slot_bytes < least_slot_bytes || ring.slot_bytes > kMaxSlotBytes) {
    return false;
  }
  const uint64_t ring_bytes = kRingSlots * SlotStride(ring.slot_bytes);
  return ring.address <= std::numeric_limits<uint64_t>::max() - ring_bytes;
}

}  // namespace

const char* RefusalName(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kNotOurs:
      return "not a DSPK/1 client";
    case Refusal::kVersion:
      return "another version";
    case Refusal::kIdentity:
      return "another identity";
    case Refusal::kRing:
      return "an impossible ring";
    case Refusal::kNotAllowed:
      return "not an allowed network";
    case Refusal::kTooMany:
      return "too many requests at once";
    case Refusal::kResources:
      return "no resources";
  }
  return "an unknown reason";
}

std::array<std::byte, kRequestDataBytes> EncodeRequest(const ConnectRequest& request) {
  return ToBytes(RequestData{.magic = kMagic,
                             .version = kVerbsVersion,
                             .zero = 0,
                             .client = request.client,
                             .identity = request.identity,
                             .ring = request.ring});
}

std::array<std::byte, kAcceptDataBytes> EncodeAcceptance(const Acceptance& acceptance) {
  return ToBytes(AcceptData{.magic = kMagic,
                            .version = kVerbsVersion,
                            .ring_slots = kRingSlots,
                            .instance = acceptance.instance,
                            .ring = acceptance.ring,
                            .zero = 0});
}

std::array<std::byte, kRejectDataBytes> EncodeRejection(Refusal refusal) {
  return ToBytes(RejectData{
      .magic = kMagic, .version = kVerbsVersion, .refusal = static_cast<uint16_t>(refusal)});
}

Refusal DecodeRequest(std::span<const std::byte> bytes, const VerbsUuid& identity,
                      size_t least_slot_bytes, ConnectRequest* request) {
  RequestData data;
  const Refusal refusal = Read(bytes, &data);
  if (refusal != Refusal::kNone) return refusal;
  if (data.zero != 0) return Refusal::kNotOurs;
  if (data.identity != identity) return Refusal::kIdentity;
  if (!IsUsable(data.ring, least_slot_bytes)) return Refusal::kRing;
  *request = {.client = data.client, .identity = data.identity, .ring = data.ring};
  return Refusal::kNone;
}

Refusal DecodeAcceptance(std::span<const std::byte> bytes, size_t least_slot_bytes,
                         Acceptance* acceptance) {
  AcceptData data;
  const Refusal refusal = Read(bytes, &data);
  if (refusal != Refusal::kNone) return refusal;
  if (data.zero != 0 || data.ring_slots != kRingSlots) return Refusal::kNotOurs;
  if (!IsUsable(data.ring, least_slot_bytes)) return Refusal::kRing;
  *acceptance = {.instance = data.instance, .ring = data.ring};
  return Refusal::kNone;
}

Refusal DecodeRejection(std::span<const std::byte> bytes) {
  RejectData data;
  const Refusal refusal = Read(bytes, &data);
  if (refusal != Refusal::kNone) return refusal;
  const bool is_known = data.refusal >= static_cast<uint16_t>(Refusal::kNotOurs) &&
                        data.refusal <= static_cast<uint16_t>(Refusal::kResources);
  return is_known ? static_cast<Refusal>(data.refusal) : Refusal::kNotOurs;
}

uint32_t PackImmediate(const Immediate& immediate) {
  return (immediate.number & kNumberBits) | (immediate.slot != 0 ? kSlotBit : 0) |
         (immediate.is_release ? kReleaseBit : 0);
}

std::optional<Immediate> UnpackImmediate(uint32_t bits) {
  if ((bits & ~(kNumberBits | kSlotBit | kReleaseBit)) != 0) return std::nullopt;
  return Immediate{.slot = (bits & kSlotBit) != 0 ? 1 : 0,
                   .is_release = (bits & kReleaseBit) != 0,
                   .number = bits & kNumberBits};
}

}  // namespace tp2::transport
