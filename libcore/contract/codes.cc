#include "libcore/contract/codes.h"

namespace tp2::contract {
namespace {

constexpr const char* kNone = "no slot existed";
constexpr const char* kSame = "every slot unchanged";
constexpr const char* kClosed = "all slots of the session closed";

constexpr CodeRule kRules[] = {
    {Code::kOk, "OK", false, false, "as replied", "go on"},
    {Code::kIdentityMismatch, "IDENTITY_MISMATCH", true, false, kNone,
     "stop: client and worker hold different checkpoints"},
    {Code::kConfigMismatch, "CONFIG_MISMATCH", true, false, kNone,
     "stop: the reply names the field that differs"},
    {Code::kVersionUnsupported, "VERSION_UNSUPPORTED", true, false, kNone, "stop"},
    {Code::kBadFrame, "BAD_FRAME", true, false, kClosed, "reconnect once, then raise an alarm"},
    {Code::kBadRequest, "BAD_REQUEST", false, false, kSame, "do not retry: a bug of the client"},
    {Code::kBadEntry, "BAD_ENTRY", false, false, kSame,
     "repair the entry that the entry status names, send with a new seq"},
    {Code::kStaleGeneration, "STALE_GENERATION", false, false, kSame, "OPEN and INSERT again"},
    {Code::kNoSuchSlot, "NO_SUCH_SLOT", false, false, kSame, "OPEN and INSERT again"},
    {Code::kSlotsFull, "SLOTS_FULL", false, false, kSame, "draft locally"},
    {Code::kPositionGap, "POSITION_GAP", false, false, kSame, "send the missing rows"},
    {Code::kRollbackTooFar, "ROLLBACK_TOO_FAR", false, false, kSame, "CLOSE, OPEN, INSERT"},
    {Code::kEmptyWindow, "EMPTY_WINDOW", false, false, kSame, "INSERT first"},
    {Code::kNeedsResync, "NEEDS_RESYNC", false, false, "rows of the slot lost",
     "CLOSE, OPEN, INSERT"},
    {Code::kBusy, "BUSY", false, false, kSame, "wait for the outstanding reply"},
    {Code::kDeadline, "DEADLINE", false, false, kSame, "draft locally"},
    {Code::kDraining, "DRAINING", false, false, kSame, "draft locally, CLOSE"},
    {Code::kInternal, "INTERNAL", false, true,
     "every slot as before the request, or NEEDS_RESYNC in its entry status",
     "draft locally, retry with a new seq"},
    {Code::kUnhealthy, "UNHEALTHY", true, true, kClosed, "reconnect after a pause"},
    {Code::kSeqConflict, "SEQ_CONFLICT", true, false, kClosed, "do not retry: a bug of the client"},
    {Code::kSeqOld, "SEQ_OLD", true, false, kClosed, "do not retry: a bug of the client"},
    {Code::kUnsupported, "UNSUPPORTED", false, false, kSame, "do without the feature"},
    {Code::kTooLarge, "TOO_LARGE", true, false, kClosed, "do not retry: a bug of the client"},
    {Code::kBodyHash, "BODY_HASH", true, false, kClosed,
     "reconnect; bytes were changed on the way"},
    {Code::kNonfiniteRows, "NONFINITE_ROWS", false, false, kSame, "raise an alarm"},
    {Code::kSeqGap, "SEQ_GAP", true, false, kClosed, "do not retry: a bug of the client"},
    {Code::kChallenge, "CHALLENGE", false, false, kNone, "say HELLO again with the proof"},
    {Code::kNotAuthorized, "NOT_AUTHORIZED", true, false, kNone,
     "stop: this network is not allowed, or the secrets differ"},
    {Code::kTooManyConnections, "TOO_MANY_CONNECTIONS", true, false, kNone,
     "reconnect after a pause"},
    {Code::kNotRun, "NOT_RUN", false, false, kSame, "repair the refused entry"},
};

}  // namespace

std::span<const CodeRule> CodeRules() { return kRules; }

const CodeRule* FindCodeRule(uint32_t code) {
  for (const CodeRule& rule : kRules) {
    if (static_cast<uint32_t>(rule.code) == code) return &rule;
  }
  return nullptr;
}

const char* CodeName(Code code) {
  const CodeRule* rule = FindCodeRule(static_cast<uint32_t>(code));
  return rule == nullptr ? "?" : rule->name;
}

bool ClosesConnection(Code code) {
  const CodeRule* rule = FindCodeRule(static_cast<uint32_t>(code));
  return rule == nullptr || rule->closes_connection;
}

}  // namespace tp2::contract
