// Numbers of the wire contract DSPK/1 that no configuration changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libcore/model/drafter_config.h"

namespace tp2::contract {

inline constexpr uint16_t kVersion = 0x0100;  // major << 8 | minor
inline constexpr uint16_t kDefaultPort = 18627;

inline constexpr size_t kHeaderBytes = 64;
inline constexpr size_t kHelloBytes = 256;
inline constexpr size_t kHelloProofOffset = 224;  // of request and reply; proves what is before it
inline constexpr size_t kChallengeBytes = 32;
inline constexpr size_t kOpenBytes = 32;
inline constexpr size_t kCloseBytes = 32;
inline constexpr size_t kInsertHeadBytes = 64;
inline constexpr size_t kInsertReplyBytes = 64;
inline constexpr size_t kStepHeadBytes = 64;
inline constexpr size_t kStepEntryBytes = 64;
inline constexpr size_t kStepReplyHeadBytes = 64;
inline constexpr size_t kStepReplyEntryBytes = 128;
inline constexpr size_t kHealthBytes = 256;
inline constexpr size_t kSlotsHeadBytes = 16;
inline constexpr size_t kSlotsEntryBytes = 32;
inline constexpr size_t kMaxPingBytes = 64;

// The largest request: 128 tap rows of 30,720 B with four entries are 3,932,480 B.
inline constexpr uint32_t kMaxBodyBytes = 4u << 20;
// The largest reply frame: a STEP of four entries.
inline constexpr uint32_t kMaxReplyBytes =
    kHeaderBytes + kStepReplyHeadBytes + kMaxRequests * kStepReplyEntryBytes;
static_assert(kSlotsHeadBytes + kSlotCount * kSlotsEntryBytes <= kMaxReplyBytes - kHeaderBytes);
static_assert(kHealthBytes <= kMaxReplyBytes - kHeaderBytes);

inline constexpr uint16_t kAnySlot = 0xFFFF;
inline constexpr uint16_t kRowDtypeBf16 = 1;
inline constexpr int kMaxStrikes = 3;  // failed steps in a row that end the process

}  // namespace tp2::contract
