// INSERT and STEP: the messages that carry rows.
#include "libcore/contract/codec.h"
#include "libcore/contract/wire.h"

namespace tp2::contract {
namespace {

Code DecodeStepEntry(const WireReader& reader, size_t at, StepMessageEntry* out) {
  if (!reader.IsZero(at + 36, at + 40) || !reader.IsZero(at + 56, at + 64)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(at),
          .rows = reader.At<uint16_t>(at + 2),
          .anchor = reader.At<uint32_t>(at + 4),
          .generation = reader.At<uint64_t>(at + 8),
          .position = reader.At<uint64_t>(at + 16),
          .anchor_position = reader.At<uint64_t>(at + 24),
          .first_row = reader.At<uint32_t>(at + 32),
          .expected_length = reader.At<uint64_t>(at + 40),
          .tag = reader.At<uint64_t>(at + 48)};
  return Code::kOk;
}

}  // namespace

Code DecodeInsert(ByteView body, InsertMessage* out) {
  if (body.size() < kInsertHeadBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(6, 8) || !reader.IsZero(36, 64)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0),
          .row_kind = reader.At<uint16_t>(2),
          .rows = reader.At<uint16_t>(4),
          .generation = reader.At<uint64_t>(8),
          .position = reader.At<uint64_t>(16),
          .expected_length = reader.At<uint64_t>(24),
          .row_bytes = reader.At<uint32_t>(32),
          .row_area = body.subspan(kInsertHeadBytes)};
  const uint64_t row_area_bytes = uint64_t{out->rows} * out->row_bytes;
  return out->row_area.size() == row_area_bytes ? Code::kOk : Code::kBadFrame;
}

void EncodeInsertHead(const InsertMessage& insert, Bytes out) {
  WireWriter writer(out.first(kInsertHeadBytes));
  writer.Put(0, insert.slot);
  writer.Put(2, insert.row_kind);
  writer.Put(4, insert.rows);
  writer.Put(8, insert.generation);
  writer.Put(16, insert.position);
  writer.Put(24, insert.expected_length);
  writer.Put(32, insert.row_bytes);
}

Code DecodeInsertReply(ByteView body, InsertReply* out) {
  if (body.size() != kInsertReplyBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(4, 8) || !reader.IsZero(28, 64)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0),
          .window_rows = reader.At<uint16_t>(2),
          .generation = reader.At<uint64_t>(8),
          .length = reader.At<uint64_t>(16),
          .insert_us = reader.At<uint32_t>(24)};
  return Code::kOk;
}

void EncodeInsertReply(const InsertReply& reply, Bytes out) {
  WireWriter writer(out.first(kInsertReplyBytes));
  writer.Put(0, reply.slot);
  writer.Put(2, reply.window_rows);
  writer.Put(8, reply.generation);
  writer.Put(16, reply.length);
  writer.Put(24, reply.insert_us);
}

Code DecodeStep(ByteView body, StepMessage* out) {
  if (body.size() < kStepHeadBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(26, 28) || !reader.IsZero(32, 64)) return Code::kBadFrame;
  out->entry_count = reader.At<uint16_t>(0);
  out->n_out = reader.At<uint16_t>(2);
  out->flags = reader.At<uint32_t>(4);
  out->round = reader.At<uint64_t>(8);
  out->rows = reader.At<uint32_t>(16);
  out->row_bytes = reader.At<uint32_t>(20);
  out->row_kind = reader.At<uint16_t>(24);
  out->rows_offset = reader.At<uint32_t>(28);
  if ((out->flags & ~kStepFlags) != 0) return Code::kBadFrame;
  if (out->entry_count < 1 || out->entry_count > kMaxRequests) return Code::kBadRequest;
  const size_t head_bytes = StepHeadBytes(out->entry_count);
  // 32-bit factors: the product cannot overflow 64 bits.
  const uint64_t row_area_bytes = uint64_t{out->rows} * out->row_bytes;
  if (body.size() < head_bytes || body.size() - head_bytes != row_area_bytes) {
    return Code::kBadFrame;
  }
  for (int i = 0; i < out->entry_count; ++i) {
    const Code code = DecodeStepEntry(reader, StepHeadBytes(i), &out->entries[i]);
    if (code != Code::kOk) return code;
  }
  out->row_area = body.subspan(head_bytes);
  return Code::kOk;
}

void EncodeStepHead(const StepMessage& step, Bytes out) {
  WireWriter writer(out.first(StepHeadBytes(step.entry_count)));
  writer.Put(0, step.entry_count);
  writer.Put(2, step.n_out);
  writer.Put(4, step.flags);
  writer.Put(8, step.round);
  writer.Put(16, step.rows);
  writer.Put(20, step.row_bytes);
  writer.Put(24, step.row_kind);
  writer.Put(28, step.rows_offset);
  for (int i = 0; i < step.entry_count; ++i) {
    const StepMessageEntry& entry = step.entries[i];
    const size_t at = StepHeadBytes(i);
    writer.Put(at, entry.slot);
    writer.Put(at + 2, entry.rows);
    writer.Put(at + 4, entry.anchor);
    writer.Put(at + 8, entry.generation);
    writer.Put(at + 16, entry.position);
    writer.Put(at + 24, entry.anchor_position);
    writer.Put(at + 32, entry.first_row);
    writer.Put(at + 40, entry.expected_length);
    writer.Put(at + 48, entry.tag);
  }
}

Code DecodeStepReply(ByteView body, StepReply* out) {
  if (body.size() < kStepReplyHeadBytes) return Code::kBadFrame;
  const WireReader reader(body);
  out->entry_count = reader.At<uint16_t>(0);
  if (out->entry_count > kMaxRequests || body.size() != StepReplyBytes(out->entry_count) ||
      !reader.IsZero(48, 64)) {
    return Code::kBadFrame;
  }
  out->n_out = reader.At<uint16_t>(2);
  out->flags = reader.At<uint32_t>(4);
  out->round = reader.At<uint64_t>(8);
  out->queue_us = reader.At<uint32_t>(16);
  out->insert_us = reader.At<uint32_t>(20);
  out->draft_us = reader.At<uint32_t>(24);
  out->total_us = reader.At<uint32_t>(28);
  out->rank_error_bits = {reader.At<uint32_t>(32), reader.At<uint32_t>(36)};
  out->epoch = reader.At<uint32_t>(40);
  out->failures_in_a_row = reader.At<uint32_t>(44);
  for (int i = 0; i < out->entry_count; ++i) {
    const size_t at = StepReplyBytes(i);
    if (!reader.IsZero(at + 6, at + 8) || !reader.IsZero(at + 44, at + 48) ||
        !reader.IsZero(at + 68, at + 72) || !reader.IsZero(at + 92, at + 96) ||
        !reader.IsZero(at + 116, at + 128)) {
      return Code::kBadFrame;
    }
    out->entries[i] = {.slot = reader.At<uint16_t>(at),
                       .status = reader.At<uint16_t>(at + 2),
                       .window_rows = reader.At<uint16_t>(at + 4),
                       .generation = reader.At<uint64_t>(at + 8),
                       .length = reader.At<uint64_t>(at + 16),
                       .tokens = reader.At<std::array<int32_t, kBlockRows>>(at + 24),
                       .confidence = reader.At<std::array<float, kBlockRows>>(at + 48),
                       .margin = reader.At<std::array<float, kBlockRows>>(at + 72),
                       .runner_up = reader.At<std::array<uint32_t, kBlockRows>>(at + 96)};
  }
  return Code::kOk;
}

void EncodeStepReply(const StepReply& reply, Bytes out) {
  WireWriter writer(out.first(StepReplyBytes(reply.entry_count)));
  writer.Put(0, reply.entry_count);
  writer.Put(2, reply.n_out);
  writer.Put(4, reply.flags);
  writer.Put(8, reply.round);
  writer.Put(16, reply.queue_us);
  writer.Put(20, reply.insert_us);
  writer.Put(24, reply.draft_us);
  writer.Put(28, reply.total_us);
  writer.Put(32, reply.rank_error_bits);
  writer.Put(40, reply.epoch);
  writer.Put(44, reply.failures_in_a_row);
  for (int i = 0; i < reply.entry_count; ++i) {
    const StepReplyEntry& entry = reply.entries[i];
    const size_t at = StepReplyBytes(i);
    writer.Put(at, entry.slot);
    writer.Put(at + 2, entry.status);
    writer.Put(at + 4, entry.window_rows);
    writer.Put(at + 8, entry.generation);
    writer.Put(at + 16, entry.length);
    writer.Put(at + 24, entry.tokens);
    writer.Put(at + 48, entry.confidence);
    writer.Put(at + 72, entry.margin);
    writer.Put(at + 96, entry.runner_up);
  }
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
