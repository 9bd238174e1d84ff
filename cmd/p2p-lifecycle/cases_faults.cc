// Cases with a fault: each wait ends in time, both ranks know in the same STEP, a drained reset
// recovers.
#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/clock.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"

namespace tp2::lifecycle {
namespace {

using coll::CudaPair;
using coll::ScriptOp;
using coll::Workload;

// What happened in a STEP with a fault, or one after a reset.
struct StepOutcome {
  std::array<uint32_t, 2> errors = {};
  std::array<uint32_t, 2> closed = {};  // STEPs that ended well during it
  double seconds = 0;                   // from the first launch to the drain
};

enum class FaultKind : int { kDropLine, kLatePartner, kKillPeer, kCancel, kBadId, kEpochLimit };
constexpr int kFaultKinds = 6;
const char* FaultName(FaultKind kind) {
  static constexpr const char* kNames[] = {"drop-line", "late-partner", "kill-peer",
                                           "cancel",    "bad-id",       "epoch-limit"};
  return kNames[static_cast<int>(kind)];
}

absl::Status EnqueueStep(Workload& work, const std::vector<ScriptOp>& ops, int skipped_rank,
                         int faulty_rank, const coll::cuda::Fault* fault) {
  for (int rank = 1; rank >= 0; --rank) {
    if (rank == skipped_rank) continue;
    for (const ScriptOp& op : ops) {
      const bool is_faulty = rank == faulty_rank && op.kind != coll::OpKind::kClose;
      TP2_RETURN_IF_ERROR(work.Enqueue(rank, op, is_faulty ? fault : nullptr));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StepOutcome> RunStep(Workload& work, FaultKind kind, int rank, uint64_t deadline_ns,
                                    Rng& rng) {
  CudaPair& pair = work.pair();
  StepOutcome outcome;
  for (int r = 0; r < 2; ++r) {
    TP2_ASSIGN_OR_RETURN(outcome.closed[r], pair.ReadClosedSteps(r));
  }
  std::vector<ScriptOp> ops = {SumOf(3000), MarginOf(4), CloseOp()};
  coll::cuda::Fault fault;
  const coll::cuda::Fault* used = nullptr;
  int skipped = -1;
  if (kind == FaultKind::kDropLine) {
    fault.block = static_cast<int>(rng.Below(2));
    fault.dropped_thread =
        pair.options().protocol == coll::ProtocolKind::kAck ? 0 : static_cast<int>(rng.Below(256));
    used = &fault;
    ops.erase(ops.begin() + 1);
  } else if (kind == FaultKind::kLatePartner) {
    ops[0].stall_ns[rank] = deadline_ns + deadline_ns / 2;
  } else if (kind == FaultKind::kBadId) {
    fault.has_foreign_id = true;
    used = &fault;
    ops.erase(ops.begin());
  } else if (kind == FaultKind::kKillPeer || kind == FaultKind::kCancel) {
    skipped = rank;
  }
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  TP2_RETURN_IF_ERROR(EnqueueStep(work, ops, skipped, rank, used));
  if (kind == FaultKind::kCancel) TP2_RETURN_IF_ERROR(pair.Cancel());
  TP2_ASSIGN_OR_RETURN(outcome.errors, ReadErrors(pair));
  outcome.seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  for (int r = 0; r < 2; ++r) {
    TP2_ASSIGN_OR_RETURN(const uint32_t closed, pair.ReadClosedSteps(r));
    outcome.closed[r] = closed - outcome.closed[r];
  }
  return outcome;
}

// "" when the outcome is what the fault must lead to.
std::string Complaint(FaultKind kind, int rank, const StepOutcome& outcome, uint64_t deadline_ns) {
  uint32_t allowed = coll::kLocalTimeout | coll::kPeerTimeout;
  if (kind == FaultKind::kCancel) allowed = coll::kCancelled;
  if (kind == FaultKind::kBadId) allowed = coll::kInvalidId;
  const std::string text =
      absl::StrFormat("%s on rank %d: bits %d and %d, closed %d and %d, %.1f ms", FaultName(kind),
                      rank, outcome.errors[0], outcome.errors[1], outcome.closed[0],
                      outcome.closed[1], outcome.seconds * 1e3);
  for (int r = 0; r < 2; ++r) {
    // A cancelled rank that never ran has nothing to say.
    const bool is_silent = kind == FaultKind::kCancel && r == rank;
    if (outcome.errors[r] == 0 && !is_silent) return text;
    if ((outcome.errors[r] & ~allowed) != 0 || outcome.closed[r] != 0) return text;
  }
  // The late partner itself sleeps for 1.5 deadlines before its first operation.
  double limit_s = static_cast<double>(deadline_ns) * 1.1e-9;
  if (kind == FaultKind::kLatePartner) limit_s = static_cast<double>(deadline_ns) * 1.6e-9;
  // Launches, copies and host wake-ups are not part of a wait.
  constexpr double kHostSlackSeconds = 0.005;
  if (outcome.seconds > limit_s + kHostSlackSeconds) return text;
  return "";
}

absl::StatusOr<std::string> ExpectRecovered(CudaPair& pair, Workload& work) {
  TP2_RETURN_IF_ERROR(pair.Recover());
  TP2_RETURN_IF_ERROR(EnqueueStep(work, {SumOf(3000), MarginOf(4), CloseOp()}, -1, -1, nullptr));
  TP2_ASSIGN_OR_RETURN(const auto errors, ReadErrors(pair));
  if (errors[0] == 0 && errors[1] == 0) return std::string();
  return absl::StrFormat("after the reset: bits %d and %d", errors[0], errors[1]);
}

absl::StatusOr<std::string> RunEpochs(const CaseOptions& options, uint64_t deadline_ns) {
  constexpr uint32_t kLimit = 16;
  TP2_ASSIGN_OR_RETURN(const auto pair,
                       MakePair(options, {.timeout_ns = deadline_ns, .max_epoch = kLimit}));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  for (uint32_t op = 0; op <= kLimit; ++op) {
    TP2_RETURN_IF_ERROR(EnqueueStep(work, {SumOf(1000)}, -1, -1, nullptr));
    TP2_ASSIGN_OR_RETURN(const auto errors, ReadErrors(*pair));
    const uint32_t expected = op < kLimit ? 0 : coll::kEpochExhausted;
    if (errors[0] == expected && errors[1] == expected) continue;
    return absl::StrFormat("epoch-limit: operation %d: bits %d and %d", op, errors[0], errors[1]);
  }
  return ExpectRecovered(*pair, work);
}

// One fault of a kind on either rank, with recovery.
absl::StatusOr<CaseResult> RunBoth(const CaseOptions& options, FaultKind kind) {
  const uint64_t deadline_ns = static_cast<uint64_t>(options.timeout_ms) * 1'000'000;
  double slowest_s = 0;
  Rng rng(options.seed);
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options, {.timeout_ns = deadline_ns}));
    TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
    TP2_ASSIGN_OR_RETURN(const StepOutcome outcome, RunStep(work, kind, rank, deadline_ns, rng));
    slowest_s = std::max(slowest_s, outcome.seconds);
    std::string complaint = Complaint(kind, rank, outcome, deadline_ns);
    if (complaint.empty()) {
      TP2_ASSIGN_OR_RETURN(complaint, ExpectRecovered(*pair, work));
    }
    if (!complaint.empty()) return Fail(complaint);
  }
  return Pass(
      absl::StrFormat("on either rank; ended within %.1f ms of a deadline of %d ms; reset "
                      "recovers",
                      slowest_s * 1e3, options.timeout_ms));
}

}  // namespace

absl::StatusOr<CaseResult> RunDropLine(const CaseOptions& options) {
  return RunBoth(options, FaultKind::kDropLine);
}
absl::StatusOr<CaseResult> RunKillPeer(const CaseOptions& options) {
  return RunBoth(options, FaultKind::kKillPeer);
}
absl::StatusOr<CaseResult> RunCancel(const CaseOptions& options) {
  return RunBoth(options, FaultKind::kCancel);
}
absl::StatusOr<CaseResult> RunBadId(const CaseOptions& options) {
  return RunBoth(options, FaultKind::kBadId);
}

absl::StatusOr<CaseResult> RunEpochLimit(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::string complaint, RunEpochs(options, 100'000'000));
  return complaint.empty() ? Pass("16 operations, then bit 16 on both ranks; a reset starts again")
                           : Fail(complaint);
}

absl::StatusOr<CaseResult> RunFaults(const CaseOptions& options) {
  constexpr int kFaults = 200;
  constexpr uint64_t kDeadlineNs = 100'000'000;
  TP2_ASSIGN_OR_RETURN(auto pair, MakePair(options, {.timeout_ns = kDeadlineNs}));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  Rng rng(options.seed);
  std::array<int, kFaultKinds> counts = {};
  double slowest_s = 0;
  for (int i = 0; i < kFaults; ++i) {
    const auto kind = static_cast<FaultKind>(i % kFaultKinds);
    const int rank = static_cast<int>(rng.Below(2));
    std::string complaint;
    if (kind == FaultKind::kEpochLimit) {
      TP2_ASSIGN_OR_RETURN(complaint, RunEpochs(options, kDeadlineNs));
    } else {
      TP2_ASSIGN_OR_RETURN(const StepOutcome outcome, RunStep(work, kind, rank, kDeadlineNs, rng));
      complaint = Complaint(kind, rank, outcome, kDeadlineNs);
      if (kind != FaultKind::kLatePartner) slowest_s = std::max(slowest_s, outcome.seconds);
      if (complaint.empty()) {
        TP2_ASSIGN_OR_RETURN(complaint, ExpectRecovered(*pair, work));
      }
    }
    if (!complaint.empty()) return Fail(absl::StrCat("fault ", i, ": ", complaint));
    ++counts[i % kFaultKinds];
  }
  Json details = {{"deadline_ms", kDeadlineNs / 1'000'000}, {"slowest_ms", slowest_s * 1e3}};
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    details[FaultName(static_cast<FaultKind>(kind))] = counts[kind];
  }
  return Pass(absl::StrFormat("%d faults of %d kinds; slowest end %.1f ms of a deadline of %d ms; "
                              "every reset recovered",
                              kFaults, kFaultKinds, slowest_s * 1e3, kDeadlineNs / 1'000'000),
              details);
}

}  // namespace tp2::lifecycle
