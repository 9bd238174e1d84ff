// Status codes of replies, their names, and what holds after each: one table that the server obeys,
// the client explains and the tests walk.
#pragma once

#include <cstdint>
#include <span>

namespace tp2::contract {

enum class Code : uint16_t {
  kOk = 0,
  kIdentityMismatch = 1,
  kConfigMismatch = 2,
  kVersionUnsupported = 3,
  kBadFrame = 4,    // magic, checksum, length, reserved bits
  kBadRequest = 5,  // well framed, impossible fields
  kBadEntry = 6,    // a STEP entry was refused; its entry status says why
  kStaleGeneration = 7,
  kNoSuchSlot = 8,
  kSlotsFull = 9,
  kPositionGap = 10,
  kRollbackTooFar = 11,
  kEmptyWindow = 12,
  kNeedsResync = 13,
  kBusy = 14,
  kDeadline = 15,
  kDraining = 16,
  kInternal = 17,
  kUnhealthy = 18,
  kSeqConflict = 19,
  kSeqOld = 20,
  kUnsupported = 21,
  kTooLarge = 22,
  kBodyHash = 23,
  kNonfiniteRows = 24,
  kSeqGap = 25,
  kChallenge = 26,      // HELLO only: say it again with the proof
  kNotAuthorized = 27,  // network not allowed, or the secret not proved
  kTooManyConnections = 28,
  kNotRun = 255,  // entry status only: another entry of the batch was refused
};

struct CodeRule {
  Code code;
  const char* name;            // "BAD_ENTRY"
  bool closes_connection;      // after the reply; with it all slots of the session
  bool is_strike;              // counts towards the failures in a row that end the process
  const char* post_condition;  // what holds for the caller's slots
  const char* client_action;   // what a client should do
};

// Every code, in ascending order.
std::span<const CodeRule> CodeRules();

// Null for numbers the contract does not define.
const CodeRule* FindCodeRule(uint32_t code);

const char* CodeName(Code code);  // "?" when undefined
bool ClosesConnection(Code code);

}  // namespace tp2::contract
