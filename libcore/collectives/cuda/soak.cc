#include "libcore/collectives/cuda/soak.h"

#include <algorithm>
#include <utility>

#include "libcore/base/clock.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::coll {
namespace {

bool IsReduce(OpKind kind) {
  return kind == OpKind::kSum || kind == OpKind::kRounded || kind == OpKind::kInPlace;
}

// Mostly small, sometimes up to the maximum, so that slots of every age occur.
int64_t RandomCount(Rng& rng, int64_t maximum) {
  const auto doublings = static_cast<int>(rng.Below(18));
  const int64_t limit = std::min(maximum, int64_t{1} << doublings);
  return 1 + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(limit)));
}

}  // namespace

std::vector<ScriptOp> MakeScript(const ScriptOptions& options, int rank_count) {
  Rng rng(options.seed);
  std::vector<ScriptOp> script;
  while (static_cast<int>(script.size()) + 1 < options.op_count) {
    ScriptOp op;
    op.kind = static_cast<OpKind>(rng.Below(options.has_exchanges ? 6 : 3));
    op.count = IsReduce(op.kind) ? RandomCount(rng, options.max_words)
                                 : 1 + static_cast<int64_t>(rng.Below(4));
    op.grid.threads = 32 << rng.Below(5);
    op.grid.blocks = 1 + static_cast<int>(rng.Below(static_cast<uint64_t>(options.max_blocks)));
    if (options.max_stall_ns > 0 && rng.Below(10) == 0) {
      op.stall_ns[rng.Below(static_cast<uint64_t>(rank_count))] = rng.Below(options.max_stall_ns);
    }
    script.push_back(op);
  }
  ScriptOp close;
  close.kind = OpKind::kClose;
  script.push_back(close);
  return script;
}

absl::StatusOr<Workload> Workload::Create(CudaPair& pair, uint64_t seed) {
  Workload work(pair, seed);
  work.ranks_.resize(static_cast<size_t>(pair.rank_count()));
  const int64_t words = pair.options().max_words;
  for (int index = 0; index < pair.rank_count(); ++index) {
    const device::DeviceGuard guard(pair.card(index).ordinal);
    Rank& rank = work.ranks_[index];
    TP2_ASSIGN_OR_RETURN(rank.stream, device::Stream::Create());
    TP2_ASSIGN_OR_RETURN(rank.turn, device::Buffer<uint32_t>::Create(1));
    TP2_ASSIGN_OR_RETURN(rank.x, device::Buffer<float>::Create(words));
    TP2_ASSIGN_OR_RETURN(rank.sum, device::Buffer<float>::Create(words));
    TP2_ASSIGN_OR_RETURN(rank.rounded, device::Buffer<Bf16>::Create(words));
    TP2_ASSIGN_OR_RETURN(rank.best, device::Buffer<TopTwo>::Create(cuda::kMaxExchanges));
    TP2_ASSIGN_OR_RETURN(rank.token, device::Buffer<int32_t>::Create(cuda::kMaxExchanges));
    TP2_ASSIGN_OR_RETURN(rank.runner_up, device::Buffer<int32_t>::Create(cuda::kMaxExchanges));
    TP2_ASSIGN_OR_RETURN(rank.margin, device::Buffer<float>::Create(cuda::kMaxExchanges));
    TP2_ASSIGN_OR_RETURN(rank.wrong, device::Buffer<unsigned long long>::Create(1));
  }
  return work;
}

cuda::ReduceArgs Workload::ReduceArgsOf(int index, const ScriptOp& op) {
  Rank& rank = ranks_[index];
  cuda::ReduceArgs args = {rank.x.data(), op.count, nullptr, nullptr};
  if (op.kind == OpKind::kSum) args.sum = rank.sum.data();
  if (op.kind == OpKind::kInPlace) args.sum = rank.x.data();
  if (op.kind == OpKind::kRounded) args.rounded = rank.rounded.data();
  return args;
}

cuda::ExchangeArgs Workload::ExchangeArgsOf(int index, const ScriptOp& op) {
  Rank& rank = ranks_[index];
  cuda::ExchangeArgs args;
  args.best = rank.best.data();
  args.requests = static_cast<int>(op.count);
  args.token = rank.token.data();
  if (op.kind == OpKind::kBestTwo) {
    args.runner_up = rank.runner_up.data();
    args.margin = rank.margin.data();
  }
  return args;
}

absl::Status Workload::Before(int index, const ScriptOp& op, cudaStream_t stream) {
  Rank& rank = ranks_[index];
  if (op.stall_ns[index] > 0) cuda::LaunchStall(op.stall_ns[index], stream);
  cuda::FillArgs fill;
  fill.seed = seed_;
  fill.rank = index;
  fill.turn = rank.turn.data();
  if (IsReduce(op.kind)) {
    fill.values = rank.x.data();
    fill.count = op.count;
    cuda::LaunchFill(fill, stream);
  } else if (op.kind != OpKind::kClose) {
    fill.best = rank.best.data();
    fill.requests = static_cast<int>(op.count);
    fill.part = pair_->options().tokens[index];
    cuda::LaunchFillBest(fill, stream);
  }
  return TP2_CUDA(cudaPeekAtLastError());
}

absl::Status Workload::After(int index, const ScriptOp& op, cudaStream_t stream) {
  Rank& rank = ranks_[index];
  cuda::VerifyArgs verify;
  verify.seed = seed_;
  verify.rank_count = pair_->rank_count();
  verify.turn = rank.turn.data();
  verify.wrong_count = rank.wrong.data();
  if (IsReduce(op.kind)) {
    const cuda::ReduceArgs args = ReduceArgsOf(index, op);
    verify.sum = args.sum;
    verify.rounded = args.rounded;
    verify.count = op.count;
    cuda::LaunchVerify(verify, stream);
  } else if (op.kind != OpKind::kClose) {
    std::copy(pair_->options().tokens.begin(), pair_->options().tokens.end(), verify.parts);
    verify.exchange = ExchangeArgsOf(index, op);
    cuda::LaunchVerifyBest(verify, stream);
  }
  cuda::LaunchCountTurn(rank.turn.data(), stream);
  return TP2_CUDA(cudaPeekAtLastError());
}

absl::Status Workload::Enqueue(int index, const ScriptOp& op, const cuda::Fault* fault) {
  const device::DeviceGuard guard(pair_->card(index).ordinal);
  const cudaStream_t stream = ranks_[index].stream.get();
  TP2_RETURN_IF_ERROR(Before(index, op, stream));
  if (IsReduce(op.kind)) {
    TP2_RETURN_IF_ERROR(pair_->AllReduce(index, ReduceArgsOf(index, op), op.grid, fault, stream));
  } else if (op.kind == OpKind::kClose) {
    TP2_RETURN_IF_ERROR(pair_->CloseStep(index, stream));
  } else {
    TP2_RETURN_IF_ERROR(pair_->Exchange(index, ExchangeArgsOf(index, op), stream, fault));
  }
  return After(index, op, stream);
}

absl::Status Workload::EnqueueBoth(const ScriptOp& op) {
  const device::DeviceGuard guard(pair_->card(0).ordinal);
  const cudaStream_t stream = ranks_[0].stream.get();
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(Before(rank, op, stream));
  if (IsReduce(op.kind)) {
    TP2_RETURN_IF_ERROR(
        pair_->AllReduceBoth({ReduceArgsOf(0, op), ReduceArgsOf(1, op)}, op.grid, stream));
  } else if (op.kind == OpKind::kClose) {
    TP2_RETURN_IF_ERROR(pair_->CloseStepBoth(stream));
  } else {
    TP2_RETURN_IF_ERROR(
        pair_->ExchangeBoth({ExchangeArgsOf(0, op), ExchangeArgsOf(1, op)}, stream));
  }
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(After(rank, op, stream));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Workload::WrongCount() {
  uint64_t total = 0;
  for (Rank& rank : ranks_) {
    unsigned long long wrong = 0;
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpyAsync(&wrong, rank.wrong.data(), sizeof wrong,
                                                 cudaMemcpyDeviceToHost, rank.stream.get())));
    TP2_RETURN_IF_ERROR(rank.stream.Synchronize());
    total += wrong;
  }
  return total;
}

namespace {

// One script, ready to run: captured per rank, or enqueued each time.
class ScriptRunner {
 public:
  static absl::StatusOr<ScriptRunner> Create(Workload& work, std::vector<ScriptOp> script,
                                             const SoakOptions& options) {
    ScriptRunner runner(work, std::move(script), options);
    if (options.is_eager) return runner;
    for (int rank = 0; rank < runner.stream_count_; ++rank) {
      TP2_ASSIGN_OR_RETURN(CapturedGraph graph,
                           CapturedGraph::Capture(work.pair().card(rank).ordinal, work.stream(rank),
                                                  [&] { return runner.EnqueueAll(rank); }));
      runner.graphs_.push_back(std::move(graph));
    }
    return runner;
  }

  // The highest rank first.
  absl::Status Run() {
    for (int rank = stream_count_ - 1; rank >= 0; --rank) {
      if (graphs_.empty()) {
        TP2_RETURN_IF_ERROR(EnqueueAll(rank));
        continue;
      }
      TP2_RETURN_IF_ERROR(work_->pair().NoteReplay(rank, work_->stream(rank)));
      const device::DeviceGuard guard(work_->pair().card(rank).ordinal);
      TP2_RETURN_IF_ERROR(graphs_[rank].Launch(work_->stream(rank)));
    }
    return absl::OkStatus();
  }
  int64_t op_count() const { return static_cast<int64_t>(script_.size()); }
  int64_t step_count() const {
    return std::count_if(script_.begin(), script_.end(),
                         [](const ScriptOp& op) { return op.kind == OpKind::kClose; });
  }

 private:
  ScriptRunner(Workload& work, std::vector<ScriptOp> script, const SoakOptions& options)
      : work_(&work),
        script_(std::move(script)),
        is_fused_(options.is_fused),
        stream_count_(options.is_fused ? 1 : work.pair().rank_count()) {}

  absl::Status EnqueueAll(int rank) {
    for (const ScriptOp& op : script_) {
      TP2_RETURN_IF_ERROR(is_fused_ ? work_->EnqueueBoth(op) : work_->Enqueue(rank, op));
    }
    return absl::OkStatus();
  }

  Workload* work_;
  std::vector<ScriptOp> script_;
  bool is_fused_;
  int stream_count_;
  std::vector<CapturedGraph> graphs_;
};

}  // namespace

absl::StatusOr<SoakResult> RunSoak(CudaPair& pair, const SoakOptions& options) {
  TP2_ASSIGN_OR_RETURN(Workload work, Workload::Create(pair, options.seed));
  std::vector<ScriptRunner> runners;
  for (int i = 0; i < options.script_count; ++i) {
    ScriptOptions script = options.script;
    script.seed = RandomAt(options.seed, static_cast<uint64_t>(i));
    TP2_ASSIGN_OR_RETURN(
        ScriptRunner runner,
        ScriptRunner::Create(work, MakeScript(script, pair.rank_count()), options));
    runners.push_back(std::move(runner));
  }
  SoakResult result;
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  Rng rng(options.seed);
  TP2_ASSIGN_OR_RETURN(const uint32_t closed_before, pair.ReadClosedSteps(0));
  while (result.collectives < options.collectives && result.error_bits == 0) {
    ScriptRunner& runner = runners[rng.Below(runners.size())];
    TP2_RETURN_IF_ERROR(runner.Run());
    TP2_RETURN_IF_ERROR(pair.Drain());
    result.collectives += runner.op_count();
    result.steps += runner.step_count();
    for (int rank = 0; rank < pair.rank_count(); ++rank) {
      TP2_ASSIGN_OR_RETURN(const Status status, pair.ReadStatus(rank));
      result.error_bits |= status.error;
      if (rank == 0 && pair.IsNearExhaustion(status)) TP2_RETURN_IF_ERROR(pair.Recover());
    }
  }
  result.seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  TP2_ASSIGN_OR_RETURN(result.wrong, work.WrongCount());
  TP2_ASSIGN_OR_RETURN(const uint32_t closed, pair.ReadClosedSteps(0));
  result.closed_steps = int64_t{closed} - closed_before;
  return result;
}

}  // namespace tp2::coll
