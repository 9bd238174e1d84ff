// Cases about streams, captures, replays and teardown.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/clock.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/cuda/probes.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::lifecycle {
namespace {

using coll::CapturedGraph;
using coll::CudaPair;
using coll::ScriptOp;
using coll::Workload;

std::vector<ScriptOp> ScriptFor(const CaseOptions& options, int op_count) {
  coll::ScriptOptions script;
  script.seed = options.seed;
  script.op_count = op_count;
  script.max_words = options.max_words;
  script.max_blocks = kSafeBlocks;
  return coll::MakeScript(script, 2);
}

absl::StatusOr<CapturedGraph> CaptureRank(Workload& work, int rank,
                                          const std::vector<ScriptOp>& script) {
  return CapturedGraph::Capture(work.pair().card(rank).ordinal, work.stream(rank), [&] {
    for (const ScriptOp& op : script) TP2_RETURN_IF_ERROR(work.Enqueue(rank, op));
    return absl::OkStatus();
  });
}

absl::Status Replay(Workload& work, const std::vector<CapturedGraph>& graphs) {
  for (int rank = 1; rank >= 0; --rank) {
    TP2_RETURN_IF_ERROR(work.pair().NoteReplay(rank, work.stream(rank)));
    const device::DeviceGuard guard(work.pair().card(rank).ordinal);
    TP2_RETURN_IF_ERROR(graphs[rank].Launch(work.stream(rank)));
  }
  return absl::OkStatus();
}

// "" when nothing was wrong.
absl::StatusOr<std::string> Complaint(Workload& work) {
  TP2_ASSIGN_OR_RETURN(const auto errors, ReadErrors(work.pair()));
  TP2_ASSIGN_OR_RETURN(const uint64_t wrong, work.WrongCount());
  if (wrong == 0 && errors[0] == 0 && errors[1] == 0) return std::string();
  return absl::StrFormat("%d wrong, error bits %d and %d", wrong, errors[0], errors[1]);
}

// Both graphs, the first rank captured as given, replayed a few times.
absl::StatusOr<std::string> OneCycle(const CaseOptions& options, int first,
                                     const std::string& protocol) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options, {.protocol = protocol}));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  const std::vector<ScriptOp> script = ScriptFor(options, 30);
  std::vector<CapturedGraph> graphs(2);
  for (const int rank : {first, 1 - first}) {
    TP2_ASSIGN_OR_RETURN(graphs[rank], CaptureRank(work, rank, script));
  }
  for (int i = 0; i < 20; ++i) {
    TP2_RETURN_IF_ERROR(Replay(work, graphs));
    TP2_RETURN_IF_ERROR(pair->Drain());
  }
  for (const ScriptOp& op : script) {
    for (int rank = 1; rank >= 0; --rank) TP2_RETURN_IF_ERROR(work.Enqueue(rank, op));
  }
  TP2_ASSIGN_OR_RETURN(std::string complaint, Complaint(work));
  if (!complaint.empty()) return complaint;
  TP2_RETURN_IF_ERROR(pair->Recover());
  TP2_RETURN_IF_ERROR(Replay(work, graphs));
  return Complaint(work);
}

}  // namespace

absl::StatusOr<CaseResult> RunLifecycle(const CaseOptions& options) {
  int cycles = 0;
  for (; cycles < options.cycles; ++cycles) {
    for (const char* protocol : {"line", "ack"}) {
      for (const int first : {0, 1}) {
        TP2_ASSIGN_OR_RETURN(const std::string complaint, OneCycle(options, first, protocol));
        if (complaint.empty()) continue;
        return Fail(absl::StrCat("cycle ", cycles, ", ", protocol, ", rank ", first,
                                 " captured first: ", complaint));
      }
    }
  }
  return Pass(absl::StrCat(cycles, " cycles of both protocols and both capture orders, ",
                           options.is_swapped ? "swapped" : "as listed",
                           ": graphs and eager exact, also after a reset and recreated"));
}

absl::StatusOr<CaseResult> RunTwoStreams(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload first, Workload::Create(*pair, 1));
  TP2_ASSIGN_OR_RETURN(Workload second, Workload::Create(*pair, 2));
  ScriptOp slow = SumOf(1000);
  slow.stall_ns[0] = slow.stall_ns[1] = 50'000'000;
  for (int rank = 1; rank >= 0; --rank) TP2_RETURN_IF_ERROR(first.Enqueue(rank, slow));
  const absl::Status refused = second.Enqueue(0, SumOf(1000));
  TP2_ASSIGN_OR_RETURN(const std::string complaint, Complaint(first));
  if (!complaint.empty()) return Fail(complaint);
  return PassIfRefused(refused, "second stream");
}

absl::StatusOr<CaseResult> RunLaunchBlocking(const CaseOptions& options) {
  return PassIfRefused(MakePair(options).status(), "CUDA_LAUNCH_BLOCKING");
}

absl::StatusOr<CaseResult> RunWrongDeviceCapture(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  const auto nothing = [] { return absl::OkStatus(); };
  return PassIfRefused(
      CapturedGraph::Capture(pair->card(1).ordinal, work.stream(0), nothing).status(),
      "replays would do nothing");
}

absl::StatusOr<CaseResult> RunPdl(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  if (pair->card(0).capability < 90) {
    return CaseResult{Verdict::kWaived, "programmatic launch needs sm_90", Json::object()};
  }
  return PassIfRefused(
      CapturedGraph::Capture(pair->card(0).ordinal, work.stream(0),
                             [&] {
                               TP2_RETURN_IF_ERROR(work.Enqueue(0, SumOf(1000)));
                               return TP2_CUDA(coll::cuda::LaunchProgrammatic(work.stream(0)));
                             })
          .status(),
      "programmatic");
}

absl::StatusOr<CaseResult> RunLegacyCapture(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  const auto capture = [&](cudaStream_t middle) {
    return CapturedGraph::Capture(pair->card(0).ordinal, work.stream(0), [&] {
      coll::cuda::LaunchEmpty(work.stream(0));
      coll::cuda::LaunchEmpty(middle);
      coll::cuda::LaunchEmpty(work.stream(0));
      return TP2_CUDA(cudaPeekAtLastError());
    });
  };
  TP2_ASSIGN_OR_RETURN(const CapturedGraph whole, capture(work.stream(0)));
  const absl::StatusOr<CapturedGraph> partial = capture(cudaStreamLegacy);
  if (!partial.ok()) return Pass("the capture failed: " + std::string(partial.status().message()));
  const std::string text =
      absl::StrCat("3 launches: ", whole.node_count(), " nodes on the owning stream, ",
                   partial->node_count(), " with one on the legacy stream");
  return whole.node_count() == 3 && partial->node_count() == 2 ? Pass(text) : Fail(text);
}

absl::StatusOr<CaseResult> RunLazyLoading(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  const device::DeviceGuard guard(pair->card(0).ordinal);
  TP2_ASSIGN_OR_RETURN(const device::Stream other, device::Stream::Create());
  TP2_RETURN_IF_ERROR(work.Enqueue(0, SumOf(1000)));  // parked until rank 1 comes
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  coll::cuda::LaunchEmpty(other.get());  // its first launch in this process
  TP2_RETURN_IF_ERROR(other.Synchronize());
  const int64_t launch_us = (clock.NowNs() - start_ns) / 1000;
  TP2_RETURN_IF_ERROR(work.Enqueue(1, SumOf(1000)));
  TP2_ASSIGN_OR_RETURN(const std::string complaint, Complaint(work));
  const std::string text =
      absl::StrCat("first launch of another kernel beside a parked collective: ", launch_us, " us");
  return complaint.empty() ? Pass(text) : Fail(text + "; " + complaint);
}

absl::StatusOr<CaseResult> RunGraphDepth(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  const std::vector<ScriptOp> script(20, SumOf(25600, kSafeBlocks));
  std::vector<CapturedGraph> graphs(2);
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(graphs[rank], CaptureRank(work, rank, script));
  }
  constexpr int kDepth = 2000;
  const SteadyClock clock;
  int blocked_at = -1;
  int64_t slowest_ns = 0;
  for (int i = 0; i < kDepth; ++i) {
    const int64_t start_ns = clock.NowNs();
    TP2_RETURN_IF_ERROR(Replay(work, graphs));
    const int64_t took_ns = clock.NowNs() - start_ns;
    // A launch costs microseconds unless the queue is full.
    if (took_ns > 1'000'000 && blocked_at < 0) blocked_at = i;
    slowest_ns = std::max(slowest_ns, took_ns);
  }
  TP2_ASSIGN_OR_RETURN(const std::string complaint, Complaint(work));
  const Json details = {{"replays", kDepth},
                        {"first_launch_over_1_ms", blocked_at},
                        {"slowest_launch_us", slowest_ns / 1000}};
  const std::string text = absl::StrFormat(
      "%d replays of 20 operations queued by one thread; first launch above 1 ms at %d, slowest "
      "%.1f ms",
      kDepth, blocked_at, static_cast<double>(slowest_ns) * 1e-6);
  return complaint.empty() ? Pass(text, details) : Fail(text + "; " + complaint, details);
}

absl::StatusOr<CaseResult> RunTwoThreads(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  std::vector<CapturedGraph> graphs(2);
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(graphs[rank], CaptureRank(work, rank, ScriptFor(options, 20)));
    TP2_RETURN_IF_ERROR(pair->NoteReplay(rank, work.stream(rank)));
  }
  constexpr int kReplays = 500;
  absl::Status statuses[2];
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const device::DeviceGuard guard(pair->card(rank).ordinal);
        for (int i = 0; i < kReplays && statuses[rank].ok(); ++i) {
          statuses[rank] = graphs[rank].Launch(work.stream(rank));
          if (statuses[rank].ok() && i % 2 == rank) {
            statuses[rank] = TP2_CUDA(cudaStreamSynchronize(work.stream(rank)));
          }
        }
      });
    }
  }
  for (const absl::Status& status : statuses) TP2_RETURN_IF_ERROR(status);
  TP2_ASSIGN_OR_RETURN(const std::string complaint, Complaint(work));
  const std::string text = absl::StrCat(kReplays, " replays from a thread per rank");
  return complaint.empty() ? Pass(text) : Fail(text + ": " + complaint);
}

absl::StatusOr<CaseResult> RunDestroyOrder(const CaseOptions& options) {
  for (const bool is_state_first : {false, true}) {
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<CudaPair> pair, MakePair(options));
    std::vector<CapturedGraph> graphs(2);
    {
      TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
      for (int rank = 0; rank < 2; ++rank) {
        TP2_ASSIGN_OR_RETURN(graphs[rank], CaptureRank(work, rank, ScriptFor(options, 10)));
      }
      TP2_RETURN_IF_ERROR(Replay(work, graphs));
      TP2_ASSIGN_OR_RETURN(const std::string complaint, Complaint(work));
      if (!complaint.empty()) return Fail(complaint);
    }
    if (is_state_first) pair.reset();
    graphs.clear();
    pair.reset();
    TP2_RETURN_IF_ERROR(device::ToStatus(cudaDeviceSynchronize(), "after destruction"));
  }
  return Pass("graphs before states and states before graphs; nothing hangs, no error is left");
}

}  // namespace tp2::lifecycle
