// The order of checks up to the worker's state, and the requests without rows.
#include "libcore/server/step_service.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "libcore/base/check.h"
#include "libcore/base/entropy.h"
#include "libcore/contract/auth.h"
#include "libcore/contract/digests.h"
#include "libcore/server/profile_range.h"

namespace tp2::server {
namespace {

using contract::Code;
using contract::Type;

uint64_t WallClockNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

RowMirror::Shape MirrorShape(const contract::WorkerLimits& limits) {
  return {.slot_count = limits.slot_count,
          .ring_rows = limits.ring_rows,
          .row_bytes_max = limits.RowBytes(static_cast<uint16_t>(RowKind::kTaps))};
}

// Slots of one session, or all of them.
std::vector<contract::SlotInfo> ListOf(const contract::SlotTable& slots,
                                       const contract::WorkerLimits& limits,
                                       std::optional<uint64_t> session) {
  std::vector<contract::SlotInfo> list;
  for (int i = 0; i < slots.slot_count(); ++i) {
    const contract::SlotRecord& slot = slots.at(i);
    if (session.has_value() && slot.session != *session) continue;
    list.push_back(
        {.slot = static_cast<uint16_t>(i),
         .state = slot.state(),
         .window_rows = static_cast<uint16_t>(slot.window.WindowRows(limits.window_rows)),
         .generation = slot.generation,
         .length = static_cast<uint64_t>(slot.window.length()),
         .tag = slot.tag});
  }
  return list;
}

}  // namespace

contract::WorkerLimits LimitsOf(const EngineInfo& info) {
  const DrafterConfig& config = info.config;
  return {.vocab = static_cast<uint32_t>(config.vocab),
          .hidden = static_cast<uint32_t>(config.dim),
          .taps = static_cast<uint16_t>(config.tap_count()),
          .window_rows = static_cast<uint16_t>(config.window),
          .ring_rows = static_cast<uint16_t>(config.ring_rows()),
          .slot_count = kSlotCount,
          .max_positions = info.max_positions,
          .features = contract::kFeatureMargin | contract::kFeatureMainX |
                      contract::kFeatureBodyHash | contract::kFeatureStrictNumerics,
          .identity = info.identity_digest,
          .config = contract::ConfigDigest(config.Canonical()),
          .numerics = contract::NumericsDigest({.version = info.numerics_version,
                                                .portable_bits = info.portable_bits,
                                                .tp = info.tp,
                                                .backend = info.backend,
                                                .device_names = info.device_names})};
}

StepService::StepService(StepEngine* engine, const ServiceOptions& options, const Clock* clock)
    : engine_(engine),
      options_(options),
      clock_(clock),
      instance_(RandomValue<contract::Uuid>()),
      start_time_ns_(WallClockNs()),
      limits_(LimitsOf(engine->info())),
      slots_(limits_.slot_count, RandomValue<uint32_t>()),
      mirror_(MirrorShape(limits_)),
      health_(instance_, limits_.identity, engine->info().tp, clock),
      refusal_log_(clock) {
  health_.MarkReady();
  UpdateUse();
}

void StepService::Handle(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  const ProfileRange range("request", request.header.seq);
  const bool was_final = RefuseEarly(session, request, reply);
  if (was_final) return;
  Dispatch(session, request, reply);
  FinishReply(request.header, ContextFor(*session, request), reply);
  if (request.header.type != static_cast<uint16_t>(Type::kHello)) {
    session->gate.Remember(request.header.seq, request.header.type, request.body_hash,
                           reply->frame());
  }
  session->open_slots = session->grant.session == 0 ? 0 : slots_.CountOf(session->grant.session);
  UpdateUse();
}

void StepService::Settle(Session* session) {
  const ProfileRange range("mirror");
  for (int i = 0; i < session->unmirrored_count; ++i) mirror_.Store(session->unmirrored[i]);
  session->unmirrored_count = 0;
}

bool StepService::RefuseEarly(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  const contract::FrameHeader& header = request.header;
  const auto refuse = [&](Code code) {
    reply->Refuse(code);
    FinishReply(header, ContextFor(*session, request), reply);
    return true;
  };
  const std::optional<Type> type = contract::RequestType(header);
  if (!type.has_value()) return refuse(Code::kBadRequest);
  const Code frame_code = contract::DecodeRequestBody(*type, request.body, &body_);
  // A count without a layout is a field at fault, not a frame: it has its turn after seq.
  if (frame_code == Code::kBadFrame) return refuse(frame_code);
  if (*type == Type::kHello) {
    const bool is_first = header.session == 0 && header.seq == 0 && session->grant.session == 0;
    return is_first ? false : refuse(Code::kBadRequest);
  }
  if (header.session == 0 || header.session != session->grant.session) {
    return refuse(Code::kBadRequest);
  }
  const Code seq_code = session->gate.Check(header.seq, header.type, request.body_hash);
  if (seq_code == Code::kNotRun) {
    LoadCachedReply(session->gate.cached_reply(), reply);
    return true;
  }
  return seq_code == Code::kOk ? false : refuse(seq_code);
}

void StepService::Dispatch(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  const Type type = static_cast<Type>(request.header.type);
  reply->Refuse(Code::kOk);
  if (type == Type::kHello && !Authenticate(session, request, reply)) return;
  if (health_.state() == contract::WorkerState::kPoisoned) return reply->Refuse(Code::kUnhealthy);
  const bool needs_new_room = type == Type::kHello || type == Type::kOpen;
  if (needs_new_room && health_.is_draining()) return reply->Refuse(Code::kDraining);
  if ((request.header.flags & contract::kFlagDebug) != 0 &&
      (session->grant.features & contract::kFeatureDebug) == 0) {
    return reply->Refuse(Code::kUnsupported);
  }
  switch (type) {
    case Type::kHello:
      return Hello(session, reply);
    case Type::kOpen:
      return Open(*session, request, reply);
    case Type::kClose:
      return Close(*session, reply);
    case Type::kInsert:
      return Insert(session, request, reply);
    case Type::kStep:
      return Step(session, request, reply);
    case Type::kSlots:
      return ListSlots(*session, reply);
    case Type::kBye:
      return;  // the connection ends after the reply, and with it the session
    case Type::kHealth:
    case Type::kPing:
      TP2_CHECK(false && "answered by the connection");
  }
}

ReplyContext StepService::ContextFor(const Session& session, const ServiceRequest& request) const {
  return {.is_draining = health_.is_draining() && session.grant.session != 0,
          .spent_us = (clock_->NowNs() - request.arrival_ns) / 1000};
}

bool StepService::Authenticate(Session* session, const ServiceRequest& request, ReplyFrame* reply) {
  if (options_.secret == nullptr) return true;
  const contract::HelloRequest& hello = body_.hello;
  if (session->is_challenged) {
    session->is_challenged = false;  // one answer to one challenge
    const contract::Proof expected =
        contract::ClientProof(*options_.secret, session->challenge, request.body);
    if (MacsEqual(expected, hello.proof)) return true;
  } else if (hello.proof == contract::Proof{} && hello.nonce == contract::Nonce{}) {
    session->is_challenged = true;
    session->challenge = RandomValue<contract::Nonce>();
    reply->code = Code::kChallenge;
    contract::EncodeChallengeReply({.nonce = session->challenge},
                                   reply->Body(contract::kChallengeBytes));
    return false;
  }
  if (const std::optional<int64_t> unsaid = refusal_log_.Pass()) {
    spdlog::warn("hello refused: the secret was not proved ({} more unsaid)", *unsaid);
  }
  reply->Refuse(Code::kNotAuthorized);
  return false;
}

void StepService::Hello(Session* session, ReplyFrame* reply) {
  const contract::HelloVerdict verdict = contract::ValidateHello(body_.hello, limits_);
  if (verdict.code == Code::kBadRequest) return reply->Refuse(verdict.code);
  contract::HelloReply answer;
  answer.tp = static_cast<uint16_t>(engine_->info().tp);
  answer.instance = instance_;
  answer.identity = limits_.identity;
  answer.config = limits_.config;
  answer.numerics = limits_.numerics;
  answer.window_rows = limits_.window_rows;
  answer.ring_rows = limits_.ring_rows;
  answer.mismatch_field = verdict.mismatch_field;
  answer.start_time_ns = start_time_ns_;
  answer.vocab = limits_.vocab;
  answer.hidden = limits_.hidden;
  answer.max_model_length = static_cast<uint32_t>(limits_.max_positions);
  answer.taps = limits_.taps;
  reply->code = verdict.code;
  // Escaped: a name may not write log lines of its own.
  const std::string name = absl::CHexEscape(body_.hello.client_name);
  if (verdict.code == Code::kOk) {
    uint64_t id = 0;
    while (id == 0) id = RandomValue<uint64_t>();
    session->grant = contract::GrantOf(body_.hello, limits_, id);
    ++session_count_;
    answer.session = id;
    answer.features = session->grant.features;
    answer.requests = session->grant.requests;
    answer.n_out = session->grant.n_out;
    answer.slots = session->grant.slots;
    answer.keepalive_ms = options_.keepalive_ms;
    answer.idle_close_ms = options_.idle_close_ms;
    spdlog::info("session {:016x} opened client=\"{}\"", id, name);
  } else if (const std::optional<int64_t> unsaid = refusal_log_.Pass()) {
    spdlog::warn("hello refused code={} field=\"{}\" client=\"{}\" ({} more unsaid)",
                 CodeName(verdict.code), contract::HelloFieldName(verdict.mismatch_field), name,
                 *unsaid);
  }
  const std::span<std::byte> body = reply->Body(contract::kHelloBytes);
  contract::EncodeHelloReply(answer, body);
  if (options_.secret == nullptr) return;
  answer.proof = contract::WorkerProof(*options_.secret, body_.hello.nonce, body);
  contract::EncodeHelloReply(answer, body);
}

void StepService::Open(const Session& session, const ServiceRequest& request, ReplyFrame* reply) {
  int slot = -1;
  Code code = contract::ValidateOpen(body_.open, limits_);
  if (code == Code::kOk) {
    code = slots_.PickForOpen(session.grant.session, body_.open.slot, session.grant.slots, &slot);
  }
  if (code != Code::kOk) return reply->Refuse(code);
  if (IsBudgetSpent(request)) return reply->Refuse(Code::kDeadline);
  const int64_t base = static_cast<int64_t>(body_.open.base);
  const absl::Status status = engine_->ResetSlot(slot, base);
  if (!status.ok()) return reply->Refuse(NoteFailure(/*is_step=*/false, status));
  last_n_out_[slot] = 0;
  const uint64_t generation = slots_.Open(slot, session.grant.session, body_.open.tag, base);
  contract::EncodeOpenReply(
      {.slot = static_cast<uint16_t>(slot), .generation = generation, .base = body_.open.base},
      reply->Body(contract::kOpenBytes));
}

void StepService::Close(const Session& session, ReplyFrame* reply) {
  bool was_closed_before = false;
  const Code code = slots_.CheckClose(session.grant.session, body_.close, &was_closed_before);
  if (code != Code::kOk) return reply->Refuse(code);
  if (!was_closed_before) slots_.Close(body_.close.slot);
  contract::EncodeCloseReply({.slot = body_.close.slot,
                              .was_closed_before = was_closed_before,
                              .generation = body_.close.generation},
                             reply->Body(contract::kCloseBytes));
}

void StepService::ListSlots(const Session& session, ReplyFrame* reply) {
  contract::SlotsReply answer;
  answer.window_rows = limits_.window_rows;
  answer.ring_rows = limits_.ring_rows;
  answer.instance_counter = slots_.counter();
  answer.slots = ListOf(slots_, limits_, session.grant.session);
  contract::EncodeSlotsReply(answer, reply->Body(contract::SlotsReplyBytes(answer.slots.size())));
}

void StepService::EndSession(Session* session) {
  if (session->grant.session == 0) return;
  const int closed = slots_.CloseAll(session->grant.session);
  spdlog::info("session {:016x} ended slots_closed={}", session->grant.session, closed);
  session->grant = {};
  --session_count_;
  UpdateUse();
}

bool StepService::IsBudgetSpent(const ServiceRequest& request) const {
  const uint64_t budget_us = request.header.time_us;
  const int64_t spent_us = (clock_->NowNs() - request.arrival_ns) / 1000;
  return budget_us != 0 && spent_us >= 0 && static_cast<uint64_t>(spent_us) > budget_us;
}

void StepService::UpdateUse() {
  health_.SetUse(session_count_, slots_.CountOpen());
  statistics_.SetSlots(ListOf(slots_, limits_, std::nullopt));
}

}  // namespace tp2::server
