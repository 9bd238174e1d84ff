// What the worker answers: one request in, one reply frame out, without threads or sockets. Owns
// the slots, the sessions' rights and the rule for failed steps; alone calls the engine.
// Thread-compatible: one thread at a time drives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "libcore/base/clock.h"
#include "libcore/base/secret.h"
#include "libcore/contract/codec.h"
#include "libcore/contract/session.h"
#include "libcore/contract/validate.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/server/health.h"
#include "libcore/server/log_limit.h"
#include "libcore/server/metrics.h"
#include "libcore/server/reply.h"
#include "libcore/server/row_mirror.h"
#include "libcore/server/statistics.h"
#include "libcore/server/trace_ring.h"

namespace tp2::server {

struct ServiceOptions {
  int max_strikes = contract::kMaxStrikes;  // failures in a row that end the process
  uint32_t keepalive_ms = 10'000;           // advice to clients: PING when idle for so long
  uint32_t idle_close_ms = 60'000;          // a connection without a frame for so long is closed
  // What clients must prove to know (contract/auth.h); outlives the service; null: nothing.
  const Secret* secret = nullptr;
};

// Rights and sequence of one connection. Only the service touches it.
struct Session {
  contract::SessionGrant grant;  // grant.session is 0 before HELLO
  contract::SeqGate gate;
  bool is_challenged = false;  // `challenge` waits for its one answer
  contract::Nonce challenge{};
  int open_slots = 0;
  // Rows that the engine took and the mirror does not have yet: they point into the request.
  std::array<InsertRows, kMaxRequests> unmirrored;
  int unmirrored_count = 0;
};

struct ServiceRequest {
  contract::FrameHeader header;
  std::span<const std::byte> body;  // valid until Settle returns
  uint64_t body_hash = 0;           // computed from the body
  int64_t arrival_ns = 0;           // when the frame was complete
};

class StepService {
 public:
  // `engine` and `clock` outlive the service.
  StepService(StepEngine* engine, const ServiceOptions& options, const Clock* clock);

  // A thread's first call, with the engine to itself.
  void UseThread() { engine_->UseThread(); }

  // Types other than HEALTH and PING, whose frame is well-formed as far as the header goes.
  void Handle(Session* session, const ServiceRequest& request, ReplyFrame* reply);
  // What can wait until the reply is sent: copies the request's rows to the mirror. Call after
  // every Handle, before the session's next one. Touches the session's slots only and needs no turn
  // with the engine.
  void Settle(Session* session);
  // A STEP of our own on a slot nobody holds; false when there is none. Its failure is a failure
  // like any other, and so is a draft that differs from the first canary's.
  bool RunCanary();
  // In a gap between requests.
  void MaintainWhileIdle();
  // The connection is gone: closes the session's slots.
  void EndSession(Session* session);

  // The engine is lost, or failed too often in a row: the process should end.
  bool must_exit() const { return must_exit_; }
  bool is_engine_lost() const { return is_engine_lost_; }
  int open_slots() const { return slots_.CountOpen(); }
  Health& health() { return health_; }
  const Health& health() const { return health_; }
  const contract::WorkerLimits& limits() const { return limits_; }
  Statistics& statistics() { return statistics_; }
  const Statistics& statistics() const { return statistics_; }
  const Metrics& metrics() const { return metrics_; }
  const TraceRing& trace() const { return trace_; }

 private:
  // Checks up to the worker's state; returns true when `reply` is final.
  bool RefuseEarly(Session* session, const ServiceRequest& request, ReplyFrame* reply);
  void Dispatch(Session* session, const ServiceRequest& request, ReplyFrame* reply);

  // Whether HELLO may be looked at; otherwise `reply` is the challenge or the refusal.
  bool Authenticate(Session* session, const ServiceRequest& request, ReplyFrame* reply);
  void Hello(Session* session, ReplyFrame* reply);
  void Open(const Session& session, const ServiceRequest& request, ReplyFrame* reply);
  void Close(const Session& session, ReplyFrame* reply);
  void Insert(Session* session, const ServiceRequest& request, ReplyFrame* reply);
  void Step(Session* session, const ServiceRequest& request, ReplyFrame* reply);
  void ListSlots(const Session& session, ReplyFrame* reply);

  absl::Status InsertInEngine(const InsertRows& rows);
  absl::StatusOr<StepOutputs> StepInEngine(const contract::StepMessage& step);
  StepRequest EngineRequest(const contract::StepMessage& step);
  void AcceptStep(Session* session, const contract::StepVerdict& verdict,
                  const StepOutputs& outputs, ReplyFrame* reply, contract::StepReply* body);
  void FailStep(const absl::Status& status, ReplyFrame* reply, contract::StepReply* body);

  // Books a failure: strike, poison or exit. Returns the code of the reply.
  contract::Code NoteFailure(bool is_step, const absl::Status& status);
  // Puts a slot back as the table has it; kNeedsResync when that failed too.
  contract::Code RestoreSlot(int slot);
  // Strangers learn nothing, not even that the worker drains.
  ReplyContext ContextFor(const Session& session, const ServiceRequest& request) const;
  bool IsBudgetSpent(const ServiceRequest& request) const;
  void UpdateUse();
  absl::StatusOr<EntryOutput> DraftCanary(int slot);
  void NoteFeedback(const contract::StepMessageEntry& entry);

  StepEngine* engine_;
  const ServiceOptions options_;
  const Clock* clock_;
  const contract::Uuid instance_;
  const uint64_t start_time_ns_;
  contract::WorkerLimits limits_;
  contract::SlotTable slots_;
  RowMirror mirror_;
  Health health_;
  Statistics statistics_;
  Metrics metrics_;
  TraceRing trace_;
  std::array<int, kSlotCount> last_n_out_{};  // of the slot's last block; 0: none
  std::optional<EntryOutput> first_canary_;
  contract::RequestBody body_;  // of the request being handled
  std::array<StepEntry, kMaxRequests> engine_entries_;
  int session_count_ = 0;
  LogLimit refusal_log_;
  bool must_exit_ = false;
  bool is_engine_lost_ = false;
};

// The limits HELLO compares and grants, from what the engine says about itself.
contract::WorkerLimits LimitsOf(const EngineInfo& info);

}  // namespace tp2::server
