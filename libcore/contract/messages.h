// The messages of DSPK/1 as plain values. Rows are views into the frame they were decoded from;
// everything else is copied out of it, so that a peer that rewrites its bytes later changes
// numbers at most, never an index that was checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libcore/base/digest.h"
#include "libcore/contract/codes.h"
#include "libcore/contract/limits.h"

namespace tp2::contract {

enum class Type : uint16_t {
  kHello = 1,
  kOpen = 2,
  kClose = 3,
  kInsert = 4,
  kStep = 5,
  kHealth = 6,
  kSlots = 7,
  kPing = 8,
  kBye = 9,
};
inline constexpr uint16_t kReplyBit = 0x8000;

const char* TypeName(Type type);

enum FrameFlag : uint32_t {
  kFlagBodyHash = 1u << 0,
  kFlagDraining = 1u << 1,     // replies
  kFlagCachedReply = 1u << 2,  // replies
  kFlagDebug = 1u << 3,
};
inline constexpr uint32_t kRequestFlags = kFlagBodyHash | kFlagDebug;
inline constexpr uint32_t kReplyFlags = kRequestFlags | kFlagDraining | kFlagCachedReply;

enum Feature : uint64_t {
  kFeatureMargin = 1u << 0,
  kFeatureMainX = 1u << 1,
  kFeatureBodyHash = 1u << 2,
  kFeatureDebug = 1u << 3,
  kFeatureStrictNumerics = 1u << 4,
};

enum StepFlag : uint32_t {
  kStepWantMargin = 1u << 0,
  kStepWantConfidence = 1u << 1,
  kStepDebug = 1u << 2,
};
inline constexpr uint32_t kStepFlags = kStepWantMargin | kStepWantConfidence | kStepDebug;

using Uuid = std::array<uint8_t, 16>;
using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;  // HMAC-SHA256, see auth.h

struct FrameHeader {
  uint16_t version = kVersion;
  uint16_t type = 0;  // Type, with kReplyBit in replies
  uint32_t flags = 0;
  uint64_t session = 0;
  uint64_t seq = 0;
  uint32_t body_bytes = 0;
  uint32_t status = 0;
  uint64_t time_us = 0;  // request: budget left, 0 for none; reply: time spent in the server
  uint64_t body_hash = 0;
  uint64_t trace_id = 0;
};

// Byte offsets of HELLO fields; a refusal's mismatch_field is the offset of the first that differs.
enum HelloField : uint32_t {
  kFieldNone = 0,
  kFieldIdentity = 24,
  kFieldConfig = 56,
  kFieldVocab = 88,
  kFieldHidden = 92,
  kFieldTaps = 96,
  kFieldRowDtype = 98,
  kFieldRowBytes = 100,
  kFieldWindow = 104,
  kFieldMaxModelLength = 112,
  kFieldNumerics = 128,
};
const char* HelloFieldName(uint32_t field);

struct HelloRequest {
  uint16_t lowest_version = kVersion;
  uint16_t highest_version = kVersion;
  Uuid client_uuid{};
  Sha256Digest identity{};
  Sha256Digest config{};
  uint32_t vocab = 0;
  uint32_t hidden = 0;
  uint16_t taps = 0;
  uint16_t row_dtype = kRowDtypeBf16;
  uint32_t row_bytes = 0;  // of one TAPS row
  uint16_t window_rows = 0;
  uint16_t n_out = kBlockRows;
  uint16_t requests = kMaxRequests;
  uint16_t slots = kSlotCount;
  uint32_t max_model_length = 0;  // the longest position count the client will use
  uint32_t largest_reply_bytes = kMaxReplyBytes;
  uint64_t features = 0;
  Sha256Digest numerics{};  // compared only with kFeatureStrictNumerics
  std::string client_name;  // at most 32 bytes, for logs only
  // Both zero in a first HELLO. After CHALLENGE: 32 fresh random bytes, and the proof that the
  // client knows the secret.
  Nonce nonce{};
  Proof proof{};
};

struct HelloReply {
  uint16_t version = kVersion;
  uint16_t tp = 1;
  Uuid instance{};
  Sha256Digest identity{};
  Sha256Digest config{};
  Sha256Digest numerics{};
  uint64_t session = 0;
  uint64_t features = 0;
  uint32_t max_body_bytes = kMaxBodyBytes;
  uint32_t max_reply_bytes = kMaxReplyBytes;
  uint16_t requests = 0;
  uint16_t n_out = 0;
  uint16_t slots = 0;
  uint16_t window_rows = 0;
  uint16_t ring_rows = 0;
  uint16_t rows_per_message = kMaxRowsPerMessage;
  uint32_t keepalive_ms = 0;
  uint32_t idle_close_ms = 0;
  uint32_t mismatch_field = kFieldNone;
  Uuid gpu0{};
  Uuid gpu1{};
  uint64_t start_time_ns = 0;
  // What the worker serves, so that a client without the checkpoint can size its rows.
  uint32_t vocab = 0;
  uint32_t hidden = 0;
  uint32_t max_model_length = 0;
  uint16_t taps = 0;
  Proof proof{};  // that the worker knows the secret; zero when it has none
};

// Body of a HELLO reply with code CHALLENGE.
struct ChallengeReply {
  Nonce nonce{};
};

struct OpenRequest {
  uint16_t slot = kAnySlot;
  uint64_t tag = 0;
  uint64_t base = 0;  // position of the slot's first row
};

struct OpenReply {
  uint16_t slot = 0;
  uint64_t generation = 0;
  uint64_t base = 0;
};

struct CloseRequest {
  uint16_t slot = 0;
  uint64_t generation = 0;
};

struct CloseReply {
  uint16_t slot = 0;
  bool was_closed_before = false;
  uint64_t generation = 0;  // the one that was closed
};

struct InsertMessage {
  uint16_t slot = 0;
  uint16_t row_kind = 1;
  uint16_t rows = 0;
  uint64_t generation = 0;
  uint64_t position = 0;
  uint64_t expected_length = 0;
  uint32_t row_bytes = 0;
  std::span<const std::byte> row_area;  // rows * row_bytes
};

struct InsertReply {
  uint16_t slot = 0;
  uint16_t window_rows = 0;
  uint64_t generation = 0;
  uint64_t length = 0;
  uint32_t insert_us = 0;
};

struct StepMessageEntry {
  uint16_t slot = 0;
  uint16_t rows = 0;
  uint32_t anchor = 0;
  uint64_t generation = 0;
  uint64_t position = 0;
  uint64_t anchor_position = 0;
  uint32_t first_row = 0;
  // Feedback on the block drafted for this slot by its previous STEP: how many of its drafts the
  // target accepted, plus one; 0 when the client does not say.
  uint16_t accepted_plus_one = 0;
  uint64_t expected_length = 0;
  uint64_t tag = 0;
};

struct StepMessage {
  uint16_t entry_count = 0;
  uint16_t n_out = kBlockRows;
  uint32_t flags = 0;
  uint64_t round = 0;
  uint32_t rows = 0;  // of all entries
  uint32_t row_bytes = 0;
  uint16_t row_kind = 1;
  uint32_t rows_offset = 0;  // of the first row in the body
  std::array<StepMessageEntry, kMaxRequests> entries;
  std::span<const std::byte> row_area;  // rows * row_bytes
};

struct StepReplyEntry {
  uint16_t slot = 0;
  uint16_t status = 0;  // Code
  uint16_t window_rows = 0;
  uint64_t generation = 0;
  uint64_t length = 0;
  std::array<int32_t, kBlockRows> tokens{-1, -1, -1, -1, -1};
  std::array<float, kBlockRows> confidence{};
  std::array<float, kBlockRows> margin{};
  std::array<uint32_t, kBlockRows> runner_up{};
};

struct StepReply {
  uint16_t entry_count = 0;
  uint16_t n_out = 0;
  uint32_t flags = 0;
  uint64_t round = 0;
  uint32_t queue_us = 0;
  uint32_t insert_us = 0;
  uint32_t draft_us = 0;
  uint32_t total_us = 0;
  std::array<uint32_t, 2> rank_error_bits{};
  uint32_t epoch = 0;
  uint32_t failures_in_a_row = 0;
  std::array<StepReplyEntry, kMaxRequests> entries;
};

enum class WorkerState : uint16_t {
  kStarting = 1,
  kReady = 2,
  kDegraded = 3,
  kDraining = 4,
  kPoisoned = 5,
};
const char* WorkerStateName(WorkerState state);

struct HealthReply {
  WorkerState state = WorkerState::kStarting;
  uint16_t tp = 1;
  uint32_t failures_in_a_row = 0;
  uint64_t steps = 0;
  uint64_t failed_steps = 0;
  uint64_t inserts = 0;
  uint32_t sessions = 0;
  uint32_t open_slots = 0;
  uint64_t uptime_us = 0;
  uint64_t last_good_step_age_us = 0;  // 0 before the first good step
  std::array<uint32_t, 2> rank_header_words{};
  uint32_t epoch = 0;
  uint32_t resets = 0;
  uint32_t step_us_p50 = 0;  // of the last 1,024 good steps
  uint32_t step_us_p99 = 0;
  uint32_t step_us_max = 0;
  Uuid instance{};
  Sha256Digest identity{};
  std::string last_error;  // at most 64 bytes
};

enum class SlotState : uint16_t { kFree = 0, kOpen = 1, kLive = 2, kNeedsResync = 3 };
const char* SlotStateName(SlotState state);

struct SlotInfo {
  uint16_t slot = 0;
  SlotState state = SlotState::kFree;
  uint16_t window_rows = 0;
  uint64_t generation = 0;
  uint64_t length = 0;
  uint64_t tag = 0;
};

struct SlotsReply {
  uint16_t window_rows = 0;
  uint16_t ring_rows = 0;
  uint64_t instance_counter = 0;  // generations issued so far
  std::vector<SlotInfo> slots;    // the caller's own
};

}  // namespace tp2::contract
