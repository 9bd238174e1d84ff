// The layout of every message body: offset and field, one list each. `Message` is the struct, const
// when the list is written; `Io` is a FieldReader or FieldWriter over exactly the bytes of the
// list. Lists with repeated parts are two: the head and one entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "libcore/contract/fields.h"

namespace tp2::contract {

template <class Message, class Wanted>
concept IsA = std::is_same_v<std::remove_const_t<Message>, Wanted>;

template <class Io, IsA<HelloRequest> Message>
void Fields(Io& io, Message& m) {
  io.Constant(0, static_cast<uint32_t>(kHelloBytes));
  io(4, m.lowest_version);
  io(6, m.highest_version);
  io(8, m.client_uuid);
  io(24, m.identity);
  io(56, m.config);
  io(88, m.vocab);
  io(92, m.hidden);
  io(96, m.taps);
  io(98, m.row_dtype);
  io(100, m.row_bytes);
  io(104, m.window_rows);
  io(106, m.n_out);
  io(108, m.requests);
  io(110, m.slots);
  io(112, m.max_model_length);
  io(116, m.largest_reply_bytes);
  io(120, m.features);
  io(128, m.numerics);
  io.Text(160, 32, m.client_name);
  io(192, m.nonce);
  io(kHelloProofOffset, m.proof);
}

template <class Io, IsA<HelloReply> Message>
void Fields(Io& io, Message& m) {
  io.Constant(0, static_cast<uint32_t>(kHelloBytes));
  io(4, m.version);
  io(6, m.tp);
  io(8, m.instance);
  io(24, m.identity);
  io(56, m.config);
  io(88, m.numerics);
  io(120, m.session);
  io(128, m.features);
  io(136, m.max_body_bytes);
  io(140, m.max_reply_bytes);
  io(144, m.requests);
  io(146, m.n_out);
  io(148, m.slots);
  io(150, m.window_rows);
  io(152, m.ring_rows);
  io(154, m.rows_per_message);
  io(156, m.keepalive_ms);
  io(160, m.idle_close_ms);
  io(164, m.mismatch_field);
  io(168, m.gpu0);
  io(184, m.gpu1);
  io(200, m.start_time_ns);
  io(208, m.vocab);
  io(212, m.hidden);
  io(216, m.max_model_length);
  io(220, m.taps);
  io(kHelloProofOffset, m.proof);
}

template <class Io, IsA<ChallengeReply> Message>
void Fields(Io& io, Message& m) {
  io(0, m.nonce);
}

template <class Io, IsA<OpenRequest> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(8, m.tag);
  io(16, m.base);
}

template <class Io, IsA<OpenReply> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(8, m.generation);
  io(16, m.base);
}

template <class Io, IsA<CloseRequest> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(8, m.generation);
}

template <class Io, IsA<CloseReply> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io.Flag(2, m.was_closed_before);
  io(8, m.generation);
}

template <class Io, IsA<InsertMessage> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(2, m.row_kind);
  io(4, m.rows);
  io(8, m.generation);
  io(16, m.position);
  io(24, m.expected_length);
  io(32, m.row_bytes);
}

template <class Io, IsA<InsertReply> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(2, m.window_rows);
  io(8, m.generation);
  io(16, m.length);
  io(24, m.insert_us);
}

template <class Io, IsA<StepMessage> Message>
void Fields(Io& io, Message& m) {
  io(0, m.entry_count);
  io(2, m.n_out);
  io(4, m.flags);
  io(8, m.round);
  io(16, m.rows);
  io(20, m.row_bytes);
  io(24, m.row_kind);
  io(28, m.rows_offset);
}

template <class Io, IsA<StepMessageEntry> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(2, m.rows);
  io(4, m.anchor);
  io(8, m.generation);
  io(16, m.position);
  io(24, m.anchor_position);
  io(32, m.first_row);
  io(36, m.accepted_plus_one);
  io(40, m.expected_length);
  io(48, m.tag);
}

template <class Io, IsA<StepReply> Message>
void Fields(Io& io, Message& m) {
  io(0, m.entry_count);
  io(2, m.n_out);
  io(4, m.flags);
  io(8, m.round);
  io(16, m.queue_us);
  io(20, m.insert_us);
  io(24, m.draft_us);
  io(28, m.total_us);
  io(32, m.rank_error_bits);
  io(40, m.epoch);
  io(44, m.failures_in_a_row);
}

template <class Io, IsA<StepReplyEntry> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io(2, m.status);
  io(4, m.window_rows);
  io(8, m.generation);
  io(16, m.length);
  io(24, m.tokens);
  io(48, m.confidence);
  io(72, m.margin);
  io(96, m.runner_up);
}

template <class Io, IsA<HealthReply> Message>
void Fields(Io& io, Message& m) {
  io.Enum(0, m.state, WorkerState::kStarting, WorkerState::kPoisoned);
  io(2, m.tp);
  io(4, m.failures_in_a_row);
  io(8, m.steps);
  io(16, m.failed_steps);
  io(24, m.inserts);
  io(32, m.sessions);
  io(36, m.open_slots);
  io(40, m.uptime_us);
  io(48, m.last_good_step_age_us);
  io(56, m.rank_header_words);
  io(64, m.epoch);
  io(68, m.resets);
  io(72, m.step_us_p50);
  io(76, m.step_us_p99);
  io(80, m.step_us_max);
  io(88, m.instance);
  io(104, m.identity);
  io.Text(136, 64, m.last_error);
}

// `slot_count` travels in front of the slots.
template <class Io, IsA<SlotsReply> Message, class Count>
void Fields(Io& io, Message& m, Count& slot_count) {
  io(0, slot_count);
  io(2, m.window_rows);
  io(4, m.ring_rows);
  io(8, m.instance_counter);
}

template <class Io, IsA<SlotInfo> Message>
void Fields(Io& io, Message& m) {
  io(0, m.slot);
  io.Enum(2, m.state, SlotState::kFree, SlotState::kNeedsResync);
  io(4, m.window_rows);
  io(8, m.generation);
  io(16, m.length);
  io(24, m.tag);
}

}  // namespace tp2::contract
