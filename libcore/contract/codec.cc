// Bodies as their field lists say; what is written here is what repeats and what depends on counts.
#include "libcore/contract/codec.h"

#include "libcore/contract/message_fields.h"

namespace tp2::contract {
namespace {

template <class Message>
Code ReadFields(ByteView bytes, Message* out) {
  FieldReader reader(bytes);
  Fields(reader, *out);
  return reader.is_valid() ? Code::kOk : Code::kBadFrame;
}

template <class Message>
Code ReadWhole(ByteView body, size_t message_bytes, Message* out) {
  return body.size() == message_bytes ? ReadFields(body, out) : Code::kBadFrame;
}

template <class Message>
void WriteFields(const Message& message, Bytes out) {
  FieldWriter writer(out);
  Fields(writer, message);
}

}  // namespace

Code DecodeHelloRequest(ByteView body, HelloRequest* out) {
  return ReadWhole(body, kHelloBytes, out);
}
void EncodeHelloRequest(const HelloRequest& hello, Bytes out) {
  WriteFields(hello, out.first(kHelloBytes));
}

Code DecodeHelloReply(ByteView body, HelloReply* out) { return ReadWhole(body, kHelloBytes, out); }
void EncodeHelloReply(const HelloReply& reply, Bytes out) {
  WriteFields(reply, out.first(kHelloBytes));
}

Code DecodeChallengeReply(ByteView body, ChallengeReply* out) {
  return ReadWhole(body, kChallengeBytes, out);
}
void EncodeChallengeReply(const ChallengeReply& reply, Bytes out) {
  WriteFields(reply, out.first(kChallengeBytes));
}

Code DecodeOpenRequest(ByteView body, OpenRequest* out) { return ReadWhole(body, kOpenBytes, out); }
void EncodeOpenRequest(const OpenRequest& open, Bytes out) {
  WriteFields(open, out.first(kOpenBytes));
}

Code DecodeOpenReply(ByteView body, OpenReply* out) { return ReadWhole(body, kOpenBytes, out); }
void EncodeOpenReply(const OpenReply& reply, Bytes out) {
  WriteFields(reply, out.first(kOpenBytes));
}

Code DecodeCloseRequest(ByteView body, CloseRequest* out) {
  return ReadWhole(body, kCloseBytes, out);
}
void EncodeCloseRequest(const CloseRequest& close, Bytes out) {
  WriteFields(close, out.first(kCloseBytes));
}

Code DecodeCloseReply(ByteView body, CloseReply* out) { return ReadWhole(body, kCloseBytes, out); }
void EncodeCloseReply(const CloseReply& reply, Bytes out) {
  WriteFields(reply, out.first(kCloseBytes));
}

Code DecodeInsert(ByteView body, InsertMessage* out) {
  if (body.size() < kInsertHeadBytes) return Code::kBadFrame;
  const Code code = ReadFields(body.first(kInsertHeadBytes), out);
  if (code != Code::kOk) return code;
  out->row_area = body.subspan(kInsertHeadBytes);
  const uint64_t row_area_bytes = uint64_t{out->rows} * out->row_bytes;
  return out->row_area.size() == row_area_bytes ? Code::kOk : Code::kBadFrame;
}
void EncodeInsertHead(const InsertMessage& insert, Bytes out) {
  WriteFields(insert, out.first(kInsertHeadBytes));
}

Code DecodeInsertReply(ByteView body, InsertReply* out) {
  return ReadWhole(body, kInsertReplyBytes, out);
}
void EncodeInsertReply(const InsertReply& reply, Bytes out) {
  WriteFields(reply, out.first(kInsertReplyBytes));
}

Code DecodeStep(ByteView body, StepMessage* out) {
  if (body.size() < kStepHeadBytes) return Code::kBadFrame;
  Code code = ReadFields(body.first(kStepHeadBytes), out);
  if (code != Code::kOk) return code;
  if ((out->flags & ~kStepFlags) != 0) return Code::kBadFrame;
  if (out->entry_count < 1 || out->entry_count > kMaxRequests) return Code::kBadRequest;
  const size_t head_bytes = StepHeadBytes(out->entry_count);
  // 32-bit factors: the product cannot overflow 64 bits.
  const uint64_t row_area_bytes = uint64_t{out->rows} * out->row_bytes;
  if (body.size() < head_bytes || body.size() - head_bytes != row_area_bytes) {
    return Code::kBadFrame;
  }
  for (int i = 0; i < out->entry_count; ++i) {
    code = ReadFields(body.subspan(StepHeadBytes(i), kStepEntryBytes), &out->entries[i]);
    if (code != Code::kOk) return code;
  }
  out->row_area = body.subspan(head_bytes);
  return Code::kOk;
}
void EncodeStepHead(const StepMessage& step, Bytes out) {
  WriteFields(step, out.first(kStepHeadBytes));
  for (int i = 0; i < step.entry_count; ++i) {
    WriteFields(step.entries[i], out.subspan(StepHeadBytes(i), kStepEntryBytes));
  }
}

Code DecodeStepReply(ByteView body, StepReply* out) {
  if (body.size() < kStepReplyHeadBytes) return Code::kBadFrame;
  Code code = ReadFields(body.first(kStepReplyHeadBytes), out);
  if (code != Code::kOk) return code;
  if (out->entry_count > kMaxRequests || body.size() != StepReplyBytes(out->entry_count)) {
    return Code::kBadFrame;
  }
  for (int i = 0; i < out->entry_count; ++i) {
    code = ReadFields(body.subspan(StepReplyBytes(i), kStepReplyEntryBytes), &out->entries[i]);
    if (code != Code::kOk) return code;
  }
  return Code::kOk;
}
void EncodeStepReply(const StepReply& reply, Bytes out) {
  WriteFields(reply, out.first(kStepReplyHeadBytes));
  for (int i = 0; i < reply.entry_count; ++i) {
    WriteFields(reply.entries[i], out.subspan(StepReplyBytes(i), kStepReplyEntryBytes));
  }
}

Code DecodeHealthReply(ByteView body, HealthReply* out) {
  return ReadWhole(body, kHealthBytes, out);
}
void EncodeHealthReply(const HealthReply& reply, Bytes out) {
  WriteFields(reply, out.first(kHealthBytes));
}

Code DecodeSlotsReply(ByteView body, SlotsReply* out) {
  if (body.size() < kSlotsHeadBytes) return Code::kBadFrame;
  FieldReader reader(body.first(kSlotsHeadBytes));
  uint16_t slot_count = 0;
  Fields(reader, *out, slot_count);
  if (!reader.is_valid() || slot_count > kSlotCount || body.size() != SlotsReplyBytes(slot_count)) {
    return Code::kBadFrame;
  }
  out->slots.assign(slot_count, {});
  for (size_t i = 0; i < out->slots.size(); ++i) {
    const Code code =
        ReadFields(body.subspan(SlotsReplyBytes(i), kSlotsEntryBytes), &out->slots[i]);
    if (code != Code::kOk) return code;
  }
  return Code::kOk;
}
void EncodeSlotsReply(const SlotsReply& reply, Bytes out) {
  FieldWriter writer(out.first(kSlotsHeadBytes));
  const uint16_t slot_count = static_cast<uint16_t>(reply.slots.size());
  Fields(writer, reply, slot_count);
  for (size_t i = 0; i < reply.slots.size(); ++i) {
    WriteFields(reply.slots[i], out.subspan(SlotsReplyBytes(i), kSlotsEntryBytes));
  }
}

Code CheckEmptyBody(ByteView body) { return body.empty() ? Code::kOk : Code::kBadFrame; }

Code CheckPingBody(ByteView body) {
  return body.size() <= kMaxPingBytes ? Code::kOk : Code::kBadFrame;
}

Code DecodeRequestBody(Type type, ByteView body, RequestBody* out) {
  switch (type) {
    case Type::kHello:
      return DecodeHelloRequest(body, &out->hello);
    case Type::kOpen:
      return DecodeOpenRequest(body, &out->open);
    case Type::kClose:
      return DecodeCloseRequest(body, &out->close);
    case Type::kInsert:
      return DecodeInsert(body, &out->insert);
    case Type::kStep:
      return DecodeStep(body, &out->step);
    case Type::kPing:
      return CheckPingBody(body);
    case Type::kHealth:
    case Type::kSlots:
    case Type::kBye:
      return CheckEmptyBody(body);
  }
  return Code::kBadFrame;
}

}  // namespace tp2::contract
