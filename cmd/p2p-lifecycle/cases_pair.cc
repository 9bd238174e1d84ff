// Cases about arithmetic and order: every element must be right whatever the timing.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/clock.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::lifecycle {
namespace {

using coll::CudaPair;
using coll::ScriptOp;
using coll::SoakOptions;
using coll::Workload;

constexpr int64_t kShortSoak = 20'000;

// Passes when nothing was wrong and no error bit is set.
absl::StatusOr<CaseResult> Judge(Workload& work, const std::string& what) {
  TP2_ASSIGN_OR_RETURN(const auto errors, ReadErrors(work.pair()));
  TP2_ASSIGN_OR_RETURN(const uint64_t wrong, work.WrongCount());
  const std::string text =
      absl::StrFormat("%s: %d wrong, error bits %d and %d", what, wrong, errors[0], errors[1]);
  return wrong == 0 && errors[0] == 0 && errors[1] == 0 ? Pass(text) : Fail(text);
}

absl::Status EnqueueOnBoth(Workload& work, const ScriptOp& op,
                           const coll::cuda::Fault* fault_of_1 = nullptr) {
  for (int rank = 1; rank >= 0; --rank) {
    TP2_RETURN_IF_ERROR(work.Enqueue(rank, op, rank == 1 ? fault_of_1 : nullptr));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CaseResult> RunMixed(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  SoakOptions soak = SoakFor(options, kShortSoak);
  soak.script_count = 8;
  TP2_ASSIGN_OR_RETURN(CaseResult captured, ExactSoak(*pair, soak));
  if (captured.verdict != Verdict::kPass) return captured;
  soak.collectives /= 10;
  soak.is_eager = true;
  TP2_ASSIGN_OR_RETURN(const CaseResult eager, ExactSoak(*pair, soak));
  if (eager.verdict != Verdict::kPass) return eager;
  captured.reason = "graphs " + captured.reason + "; eager " + eager.reason;
  return captured;
}

absl::StatusOr<CaseResult> RunSoak(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  SoakOptions soak = SoakFor(options, options.collectives);
  soak.script_count = 32;
  return ExactSoak(*pair, soak);
}

absl::StatusOr<CaseResult> RunDivergent(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  for (int lane = 0; lane < 32; ++lane) {
    coll::cuda::Fault late;
    late.block = lane % 4;
    late.stalled_lane = lane;
    late.stall_ns = 200'000;
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, SumOf(3000), &late));
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, MarginOf(4)));
  }
  return Judge(work, "each lane of a warp late by 200 us in turn");
}

absl::StatusOr<CaseResult> RunDelayedStream(const CaseOptions& options) {
  const uint64_t deadline_ns = static_cast<uint64_t>(options.timeout_ms) * 1'000'000;
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  for (const uint64_t delay_ns :
       {uint64_t{0}, uint64_t{10'000}, uint64_t{1'000'000}, deadline_ns / 10 * 9}) {
    for (int late = 0; late < 2; ++late) {
      ScriptOp op = SumOf(25600, kSafeBlocks);
      op.stall_ns[late] = delay_ns;
      TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, op));
      TP2_ASSIGN_OR_RETURN(
          const CaseResult result,
          Judge(work, absl::StrCat("rank ", late, " late by ", delay_ns / 1000, " us")));
      if (result.verdict != Verdict::kPass) return result;
    }
  }
  ScriptOp op = SumOf(25600, kSafeBlocks);
  op.stall_ns[1] = deadline_ns / 10 * 11;
  TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, op));
  TP2_ASSIGN_OR_RETURN(const auto errors, ReadErrors(*pair));
  const std::string text = absl::StrFormat(
      "0 us to 0.9 deadlines exact; 1.1 deadlines: bits %d and %d", errors[0], errors[1]);
  const bool is_right = errors[0] == coll::kLocalTimeout && errors[1] == coll::kPeerTimeout;
  return is_right ? Pass(text) : Fail(text);
}

absl::StatusOr<CaseResult> RunInputReuse(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  // The check of each operation is followed at once by the next payload in the same buffer, while
  // the other rank is late.
  for (int i = 0; i < 200; ++i) {
    ScriptOp op = SumOf(25600 + i, kSafeBlocks);
    op.kind = i % 2 == 0 ? coll::OpKind::kInPlace : coll::OpKind::kSum;
    op.stall_ns[i % 2] = static_cast<uint64_t>(i) * 500;
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, op));
  }
  return Judge(work, "200 operations, input overwritten by the next node");
}

absl::StatusOr<CaseResult> RunGridChange(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  coll::cuda::Fault stall;
  stall.stall_ns = 100'000;
  for (int round = 0; round < 50; ++round) {
    for (const int blocks : {2, 1, 2}) {
      stall.block = round % blocks;
      TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, SumOf(1000, blocks), &stall));
    }
  }
  return Judge(work, "50 times block counts 2, 1, 2 with a block late by 100 us per store");
}

absl::StatusOr<CaseResult> RunMixedProtocols(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto line, MakePair(options, {.protocol = "line"}));
  TP2_ASSIGN_OR_RETURN(const auto ack, MakePair(options, {.protocol = "ack"}));
  TP2_ASSIGN_OR_RETURN(Workload line_work, Workload::Create(*line, 1));
  TP2_ASSIGN_OR_RETURN(Workload ack_work, Workload::Create(*ack, 2));
  for (int i = 0; i < 500; ++i) {
    const ScriptOp op = i % 3 == 0 ? MarginOf(1 + i % 4) : SumOf(1 + i * 50, 1 + i % kSafeBlocks);
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(line_work, op));
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(ack_work, op));
    if (i % 50 != 49) continue;
    TP2_RETURN_IF_ERROR(line->Drain());
    TP2_RETURN_IF_ERROR(ack->Drain());
  }
  TP2_ASSIGN_OR_RETURN(const CaseResult first, Judge(line_work, "line"));
  TP2_ASSIGN_OR_RETURN(const CaseResult second, Judge(ack_work, "ack"));
  const std::string text = absl::StrCat(first.reason, "; ", second.reason);
  const bool are_right = first.verdict == Verdict::kPass && second.verdict == Verdict::kPass;
  return are_right ? Pass(text) : Fail(text);
}

absl::StatusOr<CaseResult> RunIdle(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, options.seed));
  constexpr int kRounds = 3, kIdleSeconds = 5;
  for (int round = 0; round < kRounds; ++round) {
    std::this_thread::sleep_for(std::chrono::seconds(kIdleSeconds));
    TP2_RETURN_IF_ERROR(EnqueueOnBoth(work, SumOf(25600, kSafeBlocks)));
    TP2_RETURN_IF_ERROR(pair->Drain());
  }
  return Judge(work,
               absl::StrCat(kRounds, " times the first operation after ", kIdleSeconds, " s"));
}

absl::StatusOr<CaseResult> RunOneCard(const CaseOptions& options) {
  CaseOptions single = options;
  single.is_single_card = true;
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(single));
  SoakOptions soak = SoakFor(single, kShortSoak);
  soak.is_fused = true;
  TP2_ASSIGN_OR_RETURN(CaseResult result, ExactSoak(*pair, soak));
  if (result.verdict != Verdict::kPass) return result;
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(*pair, 1));
  const absl::Status refused = work.Enqueue(0, SumOf(1000, coll::kMaxBlocks + 1));
  if (refused.ok()) return Fail("a grid beyond what can be resident was accepted");
  result.reason = "cooperative: " + result.reason + "; " + std::string(refused.message());
  return result;
}

absl::StatusOr<CaseResult> RunHostLoad(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> copies = 0;
  const int ordinal = pair->card(1).ordinal;
  std::jthread load([&] {
    const device::DeviceGuard guard(ordinal);
    constexpr int64_t kBytes = int64_t{16} << 20;
    auto stream = device::Stream::Create();
    auto device = device::Buffer<uint8_t>::Create(kBytes);
    auto host = device::PinnedBuffer<uint8_t>::Create(kBytes);
    while (!is_over && stream.ok() && device.ok() && host.ok()) {
      cudaMemcpyAsync(device->data(), host->data(), kBytes, cudaMemcpyHostToDevice, stream->get());
      cudaMemcpyAsync(host->data(), device->data(), kBytes, cudaMemcpyDeviceToHost, stream->get());
      if (!stream->Synchronize().ok()) return;
      copies += 2;
    }
  });
  absl::StatusOr<CaseResult> result = ExactSoak(*pair, SoakFor(options, 5 * kShortSoak));
  is_over = true;
  load.join();
  if (result.ok()) absl::StrAppend(&result->reason, "; ", copies.load(), " copies of 16 MiB");
  return result;
}

}  // namespace tp2::lifecycle
