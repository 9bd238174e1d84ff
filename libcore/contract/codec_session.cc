// HELLO, OPEN, CLOSE, HEALTH, SLOTS and the bodies without fields.
#include "libcore/contract/codec.h"
#include "libcore/contract/wire.h"

namespace tp2::contract {

Code DecodeHelloRequest(ByteView body, HelloRequest* out) {
  if (body.size() != kHelloBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (reader.At<uint32_t>(0) != kHelloBytes || !reader.IsZero(192, 256)) return Code::kBadFrame;
  out->lowest_version = reader.At<uint16_t>(4);
  out->highest_version = reader.At<uint16_t>(6);
  out->client_uuid = reader.At<Uuid>(8);
  out->identity = reader.At<Sha256Digest>(24);
  out->config = reader.At<Sha256Digest>(56);
  out->vocab = reader.At<uint32_t>(88);
  out->hidden = reader.At<uint32_t>(92);
  out->taps = reader.At<uint16_t>(96);
  out->row_dtype = reader.At<uint16_t>(98);
  out->row_bytes = reader.At<uint32_t>(100);
  out->window_rows = reader.At<uint16_t>(104);
  out->n_out = reader.At<uint16_t>(106);
  out->requests = reader.At<uint16_t>(108);
  out->slots = reader.At<uint16_t>(110);
  out->max_model_length = reader.At<uint32_t>(112);
  out->largest_reply_bytes = reader.At<uint32_t>(116);
  out->features = reader.At<uint64_t>(120);
  out->numerics = reader.At<Sha256Digest>(128);
  return reader.Text(160, 32, &out->client_name) ? Code::kOk : Code::kBadFrame;
}

void EncodeHelloRequest(const HelloRequest& hello, Bytes out) {
  WireWriter writer(out.first(kHelloBytes));
  writer.Put(0, static_cast<uint32_t>(kHelloBytes));
  writer.Put(4, hello.lowest_version);
  writer.Put(6, hello.highest_version);
  writer.Put(8, hello.client_uuid);
  writer.Put(24, hello.identity);
  writer.Put(56, hello.config);
  writer.Put(88, hello.vocab);
  writer.Put(92, hello.hidden);
  writer.Put(96, hello.taps);
  writer.Put(98, hello.row_dtype);
  writer.Put(100, hello.row_bytes);
  writer.Put(104, hello.window_rows);
  writer.Put(106, hello.n_out);
  writer.Put(108, hello.requests);
  writer.Put(110, hello.slots);
  writer.Put(112, hello.max_model_length);
  writer.Put(116, hello.largest_reply_bytes);
  writer.Put(120, hello.features);
  writer.Put(128, hello.numerics);
  writer.PutText(160, 32, hello.client_name);
}

Code DecodeHelloReply(ByteView body, HelloReply* out) {
  if (body.size() != kHelloBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (reader.At<uint32_t>(0) != kHelloBytes || !reader.IsZero(208, 256)) return Code::kBadFrame;
  out->version = reader.At<uint16_t>(4);
  out->tp = reader.At<uint16_t>(6);
  out->instance = reader.At<Uuid>(8);
  out->identity = reader.At<Sha256Digest>(24);
  out->config = reader.At<Sha256Digest>(56);
  out->numerics = reader.At<Sha256Digest>(88);
  out->session = reader.At<uint64_t>(120);
  out->features = reader.At<uint64_t>(128);
  out->max_body_bytes = reader.At<uint32_t>(136);
  out->max_reply_bytes = reader.At<uint32_t>(140);
  out->requests = reader.At<uint16_t>(144);
  out->n_out = reader.At<uint16_t>(146);
  out->slots = reader.At<uint16_t>(148);
  out->window_rows = reader.At<uint16_t>(150);
  out->ring_rows = reader.At<uint16_t>(152);
  out->rows_per_message = reader.At<uint16_t>(154);
  out->keepalive_ms = reader.At<uint32_t>(156);
  out->idle_close_ms = reader.At<uint32_t>(160);
  out->mismatch_field = reader.At<uint32_t>(164);
  out->gpu0 = reader.At<Uuid>(168);
  out->gpu1 = reader.At<Uuid>(184);
  out->start_time_ns = reader.At<uint64_t>(200);
  return Code::kOk;
}

void EncodeHelloReply(const HelloReply& reply, Bytes out) {
  WireWriter writer(out.first(kHelloBytes));
  writer.Put(0, static_cast<uint32_t>(kHelloBytes));
  writer.Put(4, reply.version);
  writer.Put(6, reply.tp);
  writer.Put(8, reply.instance);
  writer.Put(24, reply.identity);
  writer.Put(56, reply.config);
  writer.Put(88, reply.numerics);
  writer.Put(120, reply.session);
  writer.Put(128, reply.features);
  writer.Put(136, reply.max_body_bytes);
  writer.Put(140, reply.max_reply_bytes);
  writer.Put(144, reply.requests);
  writer.Put(146, reply.n_out);
  writer.Put(148, reply.slots);
  writer.Put(150, reply.window_rows);
  writer.Put(152, reply.ring_rows);
  writer.Put(154, reply.rows_per_message);
  writer.Put(156, reply.keepalive_ms);
  writer.Put(160, reply.idle_close_ms);
  writer.Put(164, reply.mismatch_field);
  writer.Put(168, reply.gpu0);
  writer.Put(184, reply.gpu1);
  writer.Put(200, reply.start_time_ns);
}

Code DecodeOpenRequest(ByteView body, OpenRequest* out) {
  if (body.size() != kOpenBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(2, 8) || !reader.IsZero(24, 32)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0),
          .tag = reader.At<uint64_t>(8),
          .base = reader.At<uint64_t>(16)};
  return Code::kOk;
}

void EncodeOpenRequest(const OpenRequest& open, Bytes out) {
  WireWriter writer(out.first(kOpenBytes));
  writer.Put(0, open.slot);
  writer.Put(8, open.tag);
  writer.Put(16, open.base);
}

Code DecodeOpenReply(ByteView body, OpenReply* out) {
  if (body.size() != kOpenBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(2, 8) || !reader.IsZero(24, 32)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0),
          .generation = reader.At<uint64_t>(8),
          .base = reader.At<uint64_t>(16)};
  return Code::kOk;
}

void EncodeOpenReply(const OpenReply& reply, Bytes out) {
  WireWriter writer(out.first(kOpenBytes));
  writer.Put(0, reply.slot);
  writer.Put(8, reply.generation);
  writer.Put(16, reply.base);
}

Code DecodeCloseRequest(ByteView body, CloseRequest* out) {
  if (body.size() != kCloseBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(2, 8) || !reader.IsZero(16, 32)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0), .generation = reader.At<uint64_t>(8)};
  return Code::kOk;
}

void EncodeCloseRequest(const CloseRequest& close, Bytes out) {
  WireWriter writer(out.first(kCloseBytes));
  writer.Put(0, close.slot);
  writer.Put(8, close.generation);
}

Code DecodeCloseReply(ByteView body, CloseReply* out) {
  if (body.size() != kCloseBytes) return Code::kBadFrame;
  const WireReader reader(body);
  const uint8_t flag = reader.At<uint8_t>(2);
  if (flag > 1 || !reader.IsZero(3, 8) || !reader.IsZero(16, 32)) return Code::kBadFrame;
  *out = {.slot = reader.At<uint16_t>(0),
          .was_closed_before = flag != 0,
          .generation = reader.At<uint64_t>(8)};
  return Code::kOk;
}

void EncodeCloseReply(const CloseReply& reply, Bytes out) {
  WireWriter writer(out.first(kCloseBytes));
  writer.Put(0, reply.slot);
  writer.Put(2, static_cast<uint8_t>(reply.was_closed_before ? 1 : 0));
  writer.Put(8, reply.generation);
}

Code DecodeHealthReply(ByteView body, HealthReply* out) {
  if (body.size() != kHealthBytes) return Code::kBadFrame;
  const WireReader reader(body);
  if (!reader.IsZero(84, 88) || !reader.IsZero(200, 256)) return Code::kBadFrame;
  const uint16_t state = reader.At<uint16_t>(0);
  if (state < static_cast<uint16_t>(WorkerState::kStarting) ||
      state > static_cast<uint16_t>(WorkerState::kPoisoned)) {
    return Code::kBadFrame;
  }
  out->state = static_cast<WorkerState>(state);
  out->tp = reader.At<uint16_t>(2);
  out->failures_in_a_row = reader.At<uint32_t>(4);
  out->steps = reader.At<uint64_t>(8);
  out->failed_steps = reader.At<uint64_t>(16);
  out->inserts = reader.At<uint64_t>(24);
  out->sessions = reader.At<uint32_t>(32);
  out->open_slots = reader.At<uint32_t>(36);
  out->uptime_us = reader.At<uint64_t>(40);
  out->last_good_step_age_us = reader.At<uint64_t>(48);
  out->rank_header_words = {reader.At<uint32_t>(56), reader.At<uint32_t>(60)};
  out->epoch = reader.At<uint32_t>(64);
  out->resets = reader.At<uint32_t>(68);
  out->step_us_p50 = reader.At<uint32_t>(72);
  out->step_us_p99 = reader.At<uint32_t>(76);
  out->step_us_max = reader.At<uint32_t>(80);
  out->instance = reader.At<Uuid>(88);
  out->identity = reader.At<Sha256Digest>(104);
  return reader.Text(136, 64, &out->last_error) ? Code::kOk : Code::kBadFrame;
}

void EncodeHealthReply(const HealthReply& reply, Bytes out) {
  WireWriter writer(out.first(kHealthBytes));
  writer.Put(0, static_cast<uint16_t>(reply.state));
  writer.Put(2, reply.tp);
  writer.Put(4, reply.failures_in_a_row);
  writer.Put(8, reply.steps);
  writer.Put(16, reply.failed_steps);
  writer.Put(24, reply.inserts);
  writer.Put(32, reply.sessions);
  writer.Put(36, reply.open_slots);
  writer.Put(40, reply.uptime_us);
  writer.Put(48, reply.last_good_step_age_us);
  writer.Put(56, reply.rank_header_words);
  writer.Put(64, reply.epoch);
  writer.Put(68, reply.resets);
  writer.Put(72, reply.step_us_p50);
  writer.Put(76, reply.step_us_p99);
  writer.Put(80, reply.step_us_max);
  writer.Put(88, reply.instance);
  writer.Put(104, reply.identity);
  writer.PutText(136, 64, reply.last_error);
}

Code DecodeSlotsReply(ByteView body, SlotsReply* out) {
  if (body.size() < kSlotsHeadBytes) return Code::kBadFrame;
  const WireReader reader(body);
  const uint16_t count = reader.At<uint16_t>(0);
  if (count > kSlotCount || body.size() != SlotsReplyBytes(count) || !reader.IsZero(6, 8)) {
    return Code::kBadFrame;
  }
  out->window_rows = reader.At<uint16_t>(2);
  out->ring_rows = reader.At<uint16_t>(4);
  out->instance_counter = reader.At<uint64_t>(8);
  out->slots.clear();
  for (uint16_t i = 0; i < count; ++i) {
    const size_t at = SlotsReplyBytes(i);
    const uint16_t state = reader.At<uint16_t>(at + 2);
    if (state > static_cast<uint16_t>(SlotState::kNeedsResync)) return Code::kBadFrame;
    if (!reader.IsZero(at + 6, at + 8)) return Code::kBadFrame;
    out->slots.push_back({.slot = reader.At<uint16_t>(at),
                          .state = static_cast<SlotState>(state),
                          .window_rows = reader.At<uint16_t>(at + 4),
                          .generation = reader.At<uint64_t>(at + 8),
                          .length = reader.At<uint64_t>(at + 16),
                          .tag = reader.At<uint64_t>(at + 24)});
  }
  return Code::kOk;
}

void EncodeSlotsReply(const SlotsReply& reply, Bytes out) {
  WireWriter writer(out.first(SlotsReplyBytes(reply.slots.size())));
  writer.Put(0, static_cast<uint16_t>(reply.slots.size()));
  writer.Put(2, reply.window_rows);
  writer.Put(4, reply.ring_rows);
  writer.Put(8, reply.instance_counter);
  for (size_t i = 0; i < reply.slots.size(); ++i) {
    const SlotInfo& slot = reply.slots[i];
    const size_t at = SlotsReplyBytes(i);
    writer.Put(at, slot.slot);
    writer.Put(at + 2, static_cast<uint16_t>(slot.state));
    writer.Put(at + 4, slot.window_rows);
    writer.Put(at + 8, slot.generation);
    writer.Put(at + 16, slot.length);
    writer.Put(at + 24, slot.tag);
  }
}

Code CheckEmptyBody(ByteView body) { return body.empty() ? Code::kOk : Code::kBadFrame; }

Code CheckPingBody(ByteView body) {
  return body.size() <= kMaxPingBytes ? Code::kOk : Code::kBadFrame;
}

}  // namespace tp2::contract
