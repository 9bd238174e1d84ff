// Bodies of DSPK/1: bytes to values and back. Decoders are total functions over any bytes and
// return kOk, kBadFrame (wrong length, an impossible enum, a reserved byte that is not zero) or
// kBadRequest (a count that no layout exists for); on anything but kOk `out` is unspecified.
// Encoders fill exactly the bytes given to them and zero what is reserved. No I/O, no allocation
// beyond strings and slots.
#pragma once

#include <cstddef>
#include <span>

#include "libcore/contract/messages.h"

namespace tp2::contract {

using ByteView = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

Code DecodeHelloRequest(ByteView body, HelloRequest* out);
void EncodeHelloRequest(const HelloRequest& hello, Bytes out);  // kHelloBytes
Code DecodeHelloReply(ByteView body, HelloReply* out);
void EncodeHelloReply(const HelloReply& reply, Bytes out);  // kHelloBytes

Code DecodeChallengeReply(ByteView body, ChallengeReply* out);
void EncodeChallengeReply(const ChallengeReply& reply, Bytes out);  // kChallengeBytes

Code DecodeOpenRequest(ByteView body, OpenRequest* out);
void EncodeOpenRequest(const OpenRequest& open, Bytes out);  // kOpenBytes
Code DecodeOpenReply(ByteView body, OpenReply* out);
void EncodeOpenReply(const OpenReply& reply, Bytes out);  // kOpenBytes

Code DecodeCloseRequest(ByteView body, CloseRequest* out);
void EncodeCloseRequest(const CloseRequest& close, Bytes out);  // kCloseBytes
Code DecodeCloseReply(ByteView body, CloseReply* out);
void EncodeCloseReply(const CloseReply& reply, Bytes out);  // kCloseBytes

Code DecodeInsert(ByteView body, InsertMessage* out);
// The head only (kInsertHeadBytes); the rows follow it on the wire.
void EncodeInsertHead(const InsertMessage& insert, Bytes out);
Code DecodeInsertReply(ByteView body, InsertReply* out);
void EncodeInsertReply(const InsertReply& reply, Bytes out);  // kInsertReplyBytes

Code DecodeStep(ByteView body, StepMessage* out);
// Head and entries only (StepHeadBytes); the rows follow them on the wire. rows_offset is filled in
// by the caller, so that tests can send a wrong one.
void EncodeStepHead(const StepMessage& step, Bytes out);
constexpr size_t StepHeadBytes(int entry_count) {
  return kStepHeadBytes + static_cast<size_t>(entry_count) * kStepEntryBytes;
}
Code DecodeStepReply(ByteView body, StepReply* out);
void EncodeStepReply(const StepReply& reply, Bytes out);  // StepReplyBytes
constexpr size_t StepReplyBytes(int entry_count) {
  return kStepReplyHeadBytes + static_cast<size_t>(entry_count) * kStepReplyEntryBytes;
}

Code DecodeHealthReply(ByteView body, HealthReply* out);
void EncodeHealthReply(const HealthReply& reply, Bytes out);  // kHealthBytes

Code DecodeSlotsReply(ByteView body, SlotsReply* out);
void EncodeSlotsReply(const SlotsReply& reply, Bytes out);  // SlotsReplyBytes
constexpr size_t SlotsReplyBytes(size_t slot_count) {
  return kSlotsHeadBytes + slot_count * kSlotsEntryBytes;
}

// HEALTH, SLOTS and BYE carry nothing, PING at most kMaxPingBytes.
Code CheckEmptyBody(ByteView body);
Code CheckPingBody(ByteView body);

// The body of any request; the member of its type is filled.
struct RequestBody {
  HelloRequest hello;
  OpenRequest open;
  CloseRequest close;
  InsertMessage insert;
  StepMessage step;
};
Code DecodeRequestBody(Type type, ByteView body, RequestBody* out);

}  // namespace tp2::contract
