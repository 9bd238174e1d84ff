#include "libcore/collectives/cuda/chain_timing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/pair_latch.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"

namespace tp2::coll {
namespace {

constexpr uint64_t kSeed = 0xC4A1;

template <class T>
absl::StatusOr<std::vector<T>> Download(const T* from, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaMemcpy(host.data(), from, host.size() * sizeof(T), cudaMemcpyDeviceToHost)));
  return host;
}

template <class T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

}  // namespace

absl::StatusOr<ChainTimer> ChainTimer::Create(CudaPair& pair) {
  TP2_CHECK(pair.rank_count() == 2);
  ChainTimer timer(pair);
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(timer.InitializeRank(rank));
  return timer;
}

ChainTimer::ChainTimer(ChainTimer&& other) noexcept : pair_(other.pair_), nccl_(other.nccl_) {
  std::swap(ranks_, other.ranks_);
}

ChainTimer::~ChainTimer() {
  for (const Rank& rank : ranks_) {
    if (rank.start != nullptr) cudaEventDestroy(rank.start);
    if (rank.end != nullptr) cudaEventDestroy(rank.end);
  }
}

absl::Status ChainTimer::InitializeRank(int index) {
  const device::DeviceGuard guard(pair_->card(index).ordinal);
  const int64_t words = pair_->options().max_words;
  Rank& rank = ranks_[index];
  TP2_ASSIGN_OR_RETURN(rank.stream, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(rank.x, device::Buffer<float>::Create(words));
  TP2_ASSIGN_OR_RETURN(rank.even, device::Buffer<float>::Create(words));
  TP2_ASSIGN_OR_RETURN(rank.odd, device::Buffer<float>::Create(words));
  TP2_ASSIGN_OR_RETURN(rank.rounded, device::Buffer<Bf16>::Create(words));
  TP2_ASSIGN_OR_RETURN(rank.best, device::Buffer<TopTwo>::Create(cuda::kMaxExchanges));
  TP2_ASSIGN_OR_RETURN(rank.token, device::Buffer<int32_t>::Create(cuda::kMaxExchanges));
  TP2_ASSIGN_OR_RETURN(rank.runner_up, device::Buffer<int32_t>::Create(cuda::kMaxExchanges));
  TP2_ASSIGN_OR_RETURN(rank.margin, device::Buffer<float>::Create(cuda::kMaxExchanges));
  TP2_ASSIGN_OR_RETURN(rank.status, device::PinnedBuffer<Status>::Create(1));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&rank.start)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&rank.end)));
  TP2_ASSIGN_OR_RETURN(device::Buffer<uint32_t> turn, device::Buffer<uint32_t>::Create(1));
  cuda::FillArgs fill;
  fill.seed = kSeed;
  fill.rank = index;
  fill.turn = turn.data();
  fill.values = rank.x.data();
  fill.count = words;
  cuda::LaunchFill(fill, rank.stream.get());
  fill.best = rank.best.data();
  fill.requests = cuda::kMaxExchanges;
  fill.part = pair_->options().tokens[index];
  cuda::LaunchFillBest(fill, rank.stream.get());
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaPeekAtLastError()));
  return rank.stream.Synchronize();
}

// x -> even -> odd -> even -> ...
const float* ChainTimer::InputOf(int index, int turn) const {
  const Rank& rank = ranks_[index];
  if (turn == 0) return rank.x.data();
  return turn % 2 == 1 ? rank.even.data() : rank.odd.data();
}
float* ChainTimer::OutputOf(int index, int turn) {
  return turn % 2 == 0 ? ranks_[index].even.data() : ranks_[index].odd.data();
}

cuda::ExchangeArgs ChainTimer::ExchangeArgsOf(int index, const ChainSpec& spec) {
  Rank& rank = ranks_[index];
  cuda::ExchangeArgs args;
  args.best = rank.best.data();
  args.requests = static_cast<int>(spec.count);
  args.token = rank.token.data();
  if (spec.kind == ChainKind::kBestTwo) {
    args.runner_up = rank.runner_up.data();
    args.margin = rank.margin.data();
  }
  return args;
}

absl::Status ChainTimer::EnqueueChain(int index, const ChainSpec& spec, int length) {
  Rank& rank = ranks_[index];
  const cudaStream_t stream = rank.stream.get();
  for (int turn = 0; turn < length; ++turn) {
    cuda::ReduceArgs args = {InputOf(index, turn), spec.count, nullptr, nullptr};
    switch (spec.kind) {
      case ChainKind::kSum:
        args.sum = OutputOf(index, turn);
        TP2_RETURN_IF_ERROR(pair_->AllReduce(index, args, spec.grid, nullptr, stream));
        break;
      case ChainKind::kRounded:
        args = {rank.x.data(), spec.count, nullptr, rank.rounded.data()};
        TP2_RETURN_IF_ERROR(pair_->AllReduce(index, args, spec.grid, nullptr, stream));
        break;
      case ChainKind::kBest:
      case ChainKind::kBestTwo:
        TP2_RETURN_IF_ERROR(pair_->Exchange(index, ExchangeArgsOf(index, spec), stream));
        break;
      case ChainKind::kClose:
        TP2_RETURN_IF_ERROR(pair_->CloseStep(index, stream));
        break;
      case ChainKind::kNccl:
        return EnqueueNccl(spec, length);
    }
  }
  return absl::OkStatus();
}

absl::Status ChainTimer::EnqueueNccl(const ChainSpec& spec, int length) {
  for (int turn = 0; turn < length; ++turn) {
    TP2_RETURN_IF_ERROR(nccl_->AllReduce({InputOf(0, turn), InputOf(1, turn)},
                                         {OutputOf(0, turn), OutputOf(1, turn)}, spec.count,
                                         {ranks_[0].stream.get(), ranks_[1].stream.get()}));
  }
  return absl::OkStatus();
}

absl::StatusOr<Chain> ChainTimer::Build(const ChainSpec& spec, int length) {
  Chain chain;
  chain.spec_ = spec;
  chain.length_ = length;
  if (spec.kind == ChainKind::kNccl) {
    TP2_CHECK(nccl_ != nullptr);
    // NCCL connects lazily, which a capture does not allow.
    TP2_RETURN_IF_ERROR(EnqueueNccl(spec, 1));
    for (const Rank& rank : ranks_) TP2_RETURN_IF_ERROR(rank.stream.Synchronize());
    TP2_ASSIGN_OR_RETURN(chain.graphs_,
                         CapturedGraph::CaptureAll({pair_->card(0).ordinal, pair_->card(1).ordinal},
                                                   {ranks_[0].stream.get(), ranks_[1].stream.get()},
                                                   [&] { return EnqueueNccl(spec, length); }));
    return chain;
  }
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(
        CapturedGraph graph,
        CapturedGraph::Capture(pair_->card(rank).ordinal, ranks_[rank].stream.get(),
                               [&] { return EnqueueChain(rank, spec, length); }));
    chain.graphs_.push_back(std::move(graph));
  }
  return chain;
}

absl::StatusOr<ReplayTime> ChainTimer::Replay(const Chain& chain) {
  for (int index = 1; index >= 0; --index) {
    Rank& rank = ranks_[index];
    const device::DeviceGuard guard(pair_->card(index).ordinal);
    TP2_RETURN_IF_ERROR(pair_->NoteReplay(index, rank.stream.get()));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(rank.start, rank.stream.get())));
    TP2_RETURN_IF_ERROR(chain.graphs_[index].Launch(rank.stream.get()));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(rank.end, rank.stream.get())));
    TP2_RETURN_IF_ERROR(pair_->CopyStatus(index, rank.status.data(), rank.stream.get()));
  }
  TP2_RETURN_IF_ERROR(pair_->Drain());
  std::array<float, 2> ms = {};
  for (int index = 0; index < 2; ++index) {
    const Rank& rank = ranks_[index];
    const uint32_t bits = rank.status.data()->error;
    if (bits != 0) return absl::AbortedError("collective: " + ErrorText(bits));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventElapsedTime(&ms[index], rank.start, rank.end)));
  }
  return ReplayTime{1000.0 * std::max(ms[0], ms[1]), 1000.0 * std::abs(ms[0] - ms[1])};
}

absl::Status ChainTimer::FillResults() {
  for (int index = 0; index < 2; ++index) {
    Rank& rank = ranks_[index];
    const device::DeviceGuard guard(pair_->card(index).ordinal);
    const cudaStream_t stream = rank.stream.get();
    const auto fill = [stream](auto& buffer) {
      return TP2_CUDA(
          cudaMemsetAsync(buffer.data(), 0xff, buffer.size() * sizeof(*buffer.data()), stream));
    };
    TP2_RETURN_IF_ERROR(fill(rank.even));
    TP2_RETURN_IF_ERROR(fill(rank.odd));
    TP2_RETURN_IF_ERROR(fill(rank.rounded));
    TP2_RETURN_IF_ERROR(fill(rank.token));
    TP2_RETURN_IF_ERROR(fill(rank.runner_up));
    TP2_RETURN_IF_ERROR(fill(rank.margin));
    TP2_RETURN_IF_ERROR(rank.stream.Synchronize());
  }
  return absl::OkStatus();
}

// Every sum after the first doubles its input exactly.
absl::StatusOr<int64_t> ChainTimer::CompareSums(int index, const Chain& chain) {
  const ChainSpec& spec = chain.spec();
  const bool is_rounded = spec.kind == ChainKind::kRounded;
  std::vector<float> sums;
  std::vector<Bf16> rounded;
  if (is_rounded) {
    TP2_ASSIGN_OR_RETURN(rounded, Download(ranks_[index].rounded.data(), spec.count));
  } else {
    TP2_ASSIGN_OR_RETURN(sums, Download<float>(OutputOf(index, chain.length() - 1), spec.count));
  }
  int64_t wrong = 0;
  for (int64_t i = 0; i < spec.count; ++i) {
    const float sum = cuda::PayloadAt(kSeed, 0, 0, i) + cuda::PayloadAt(kSeed, 1, 0, i);
    wrong += is_rounded ? !SameBits(rounded[i], ToBf16(sum))
                        : !SameBits(sums[i], std::ldexp(sum, chain.length() - 1));
  }
  return wrong;
}

absl::StatusOr<int64_t> ChainTimer::CompareBest(int index, const Chain& chain) {
  const ChainSpec& spec = chain.spec();
  const Rank& rank = ranks_[index];
  TP2_ASSIGN_OR_RETURN(const std::vector<int32_t> token, Download(rank.token.data(), spec.count));
  TP2_ASSIGN_OR_RETURN(const std::vector<int32_t> runner_up,
                       Download(rank.runner_up.data(), spec.count));
  TP2_ASSIGN_OR_RETURN(const std::vector<float> margin, Download(rank.margin.data(), spec.count));
  const std::vector<TokenRange>& parts = pair_->options().tokens;
  int64_t wrong = 0;
  for (int i = 0; i < spec.count; ++i) {
    const TopTwo best =
        Merge(cuda::BestAt(kSeed, 0, 0, i, parts[0]), cuda::BestAt(kSeed, 1, 0, i, parts[1]));
    wrong += token[i] != best.first.token;
    if (spec.kind != ChainKind::kBestTwo) continue;
    wrong += runner_up[i] != best.second.token;
    wrong += !SameBits(margin[i], best.first.score - best.second.score);
  }
  return wrong;
}

absl::StatusOr<int64_t> ChainTimer::Verify(const Chain& chain) {
  TP2_RETURN_IF_ERROR(FillResults());
  TP2_RETURN_IF_ERROR(Replay(chain).status());
  int64_t wrong = 0;
  for (int rank = 0; rank < 2 && chain.spec().kind != ChainKind::kClose; ++rank) {
    const bool is_exchange =
        chain.spec().kind == ChainKind::kBest || chain.spec().kind == ChainKind::kBestTwo;
    TP2_ASSIGN_OR_RETURN(const int64_t count,
                         is_exchange ? CompareBest(rank, chain) : CompareSums(rank, chain));
    wrong += count;
  }
  return wrong;
}

}  // namespace tp2::coll
