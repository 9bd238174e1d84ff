#include "libcore/contract/messages.h"

namespace tp2::contract {

const char* TypeName(Type type) {
  switch (type) {
    case Type::kHello:
      return "HELLO";
    case Type::kOpen:
      return "OPEN";
    case Type::kClose:
      return "CLOSE";
    case Type::kInsert:
      return "INSERT";
    case Type::kStep:
      return "STEP";
    case Type::kHealth:
      return "HEALTH";
    case Type::kSlots:
      return "SLOTS";
    case Type::kPing:
      return "PING";
    case Type::kBye:
      return "BYE";
  }
  return "?";
}

const char* HelloFieldName(uint32_t field) {
  switch (field) {
    case kFieldIdentity:
      return "identity digest";
    case kFieldConfig:
      return "config digest";
    case kFieldVocab:
      return "vocab";
    case kFieldHidden:
      return "hidden";
    case kFieldTaps:
      return "taps per row";
    case kFieldRowDtype:
      return "row dtype";
    case kFieldRowBytes:
      return "row bytes";
    case kFieldWindow:
      return "window rows";
    case kFieldMaxModelLength:
      return "max model length";
    case kFieldNumerics:
      return "numerics digest";
    default:
      return "none";
  }
}

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting:
      return "STARTING";
    case WorkerState::kReady:
      return "READY";
    case WorkerState::kDegraded:
      return "DEGRADED";
    case WorkerState::kDraining:
      return "DRAINING";
    case WorkerState::kPoisoned:
      return "POISONED";
  }
  return "?";
}

const char* SlotStateName(SlotState state) {
  switch (state) {
    case SlotState::kFree:
      return "FREE";
    case SlotState::kOpen:
      return "OPEN";
    case SlotState::kLive:
      return "LIVE";
    case SlotState::kNeedsResync:
      return "NEEDS_RESYNC";
  }
  return "?";
}

}  // namespace tp2::contract
