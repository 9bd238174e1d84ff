#include "libcore/collectives/cuda/cuda_pair.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/data_check.h"
#include "libcore/config/env.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/peer.h"
#include "libcore/tuning/launch_limits.h"

namespace tp2::coll {
namespace {

// Beyond the waits of the kernels themselves: launch queues and copies.
constexpr uint64_t kDrainSlackNs = 1'000'000'000;
// Waits that one drain may have to sit out: every operation after a failed one returns at once, so
// one deadline and a tenth.
constexpr uint64_t kDrainTenths = 11;
static_assert(kMaxBlocks == tuning::kMaxReduceBlocks);

absl::Status Refuse(const std::string& expected, const std::string& got) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.what = "collective", .expected = expected, .got = got});
}

}  // namespace

absl::Status CheckLaunchMode() {
  const std::optional<std::string> value = config::ReadVariable("CUDA_LAUNCH_BLOCKING");
  if (!value.has_value() || value->empty() || *value == "0") return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "CUDA_LAUNCH_BLOCKING",
                    .expected = "unset or 0",
                    .got = *value,
                    .where = "a rank's launch would wait for a partner that is never launched",
                    .next = "unset it"});
}

absl::StatusOr<std::unique_ptr<CudaPair>> CudaPair::Create(const CudaPairOptions& options) {
  TP2_CHECK(options.cards.size() >= 2 && options.cards.size() <= size_t{kMaxRanks});
  TP2_RETURN_IF_ERROR(CheckLaunchMode());
  TP2_RETURN_IF_ERROR(CheckTokenRanges(options.tokens));
  std::unique_ptr<CudaPair> pair(new CudaPair(options));
  TP2_RETURN_IF_ERROR(pair->Initialize());
  return pair;
}

CudaPair::~CudaPair() {
  // Kernels of a failed drain may still write: their memory stays.
  if (!is_poisoned()) Drain().IgnoreError();
  if (!is_poisoned()) return;
  for (Rank& rank : ranks_) rank.state.Abandon();
}

absl::Status CudaPair::Initialize() {
  TP2_ASSIGN_OR_RETURN(words_, device::PinnedBuffer<uint32_t>::Create(3));
  TP2_ASSIGN_OR_RETURN(statuses_, device::PinnedBuffer<Status>::Create(rank_count()));
  words_.data()[0] = 1;
  ranks_.resize(options_.cards.size());
  for (int rank = 0; rank < rank_count(); ++rank) {
    for (int peer = 0; peer < rank_count(); ++peer) {
      TP2_RETURN_IF_ERROR(device::EnablePeerAccess(card(rank).ordinal, card(peer).ordinal));
    }
    TP2_RETURN_IF_ERROR(InitializeRank(rank));
  }
  TP2_RETURN_IF_ERROR(CheckKernels());
  for (int rank = 0; rank < rank_count(); ++rank) {
    for (int peer = 0; peer < rank_count(); ++peer) {
      if (card(rank).ordinal == card(peer).ordinal) continue;
      TP2_RETURN_IF_ERROR(CheckPeerData(card(rank), card(peer)));
    }
  }
  std::vector<uint8_t*> states;
  for (const Rank& rank : ranks_) states.push_back(rank.state.data());
  for (int rank = 0; rank < rank_count(); ++rank) {
    views_.push_back(MakeRankView({.size = size(),
                                   .states = states,
                                   .tokens = options_.tokens,
                                   .timeout_ns = options_.timeout_ns,
                                   .max_epoch = options_.max_epoch},
                                  rank));
  }
  return absl::OkStatus();
}

absl::Status CudaPair::InitializeRank(int index) {
  const device::DeviceGuard guard(card(index).ordinal);
  Rank& rank = ranks_[index];
  TP2_RETURN_IF_ERROR(TP2_CUDA(cuda::PreloadKernels()));
  TP2_ASSIGN_OR_RETURN(rank.state, PeerState::Create(card(index).ordinal, StateBytes(size())));
  TP2_ASSIGN_OR_RETURN(rank.control, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(rank.cancel, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(rank.closed_steps, device::Buffer<uint32_t>::Create(1));
  int blocks = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cuda::ResidentBlocks(tuning::kMaxReduceThreads, &blocks)));
  int sharers = 0;
  for (const device::DeviceInfo& other : options_.cards) {
    sharers += other.ordinal == card(index).ordinal;
  }
  const int share = blocks / sharers;
  resident_blocks_ = index == 0 ? share : std::min(resident_blocks_, share);
  return absl::OkStatus();
}

cuda::Grid CudaPair::GridFor(int64_t count) const {
  if (options_.kernels != nullptr) {
    const auto chosen = options_.kernels->Reduce({count});
    if (chosen.has_value()) return {chosen->blocks, chosen->threads};
  }
  const int64_t items =
      WithProtocol(options_.protocol, [&]<class Protocol> { return ItemsOf<Protocol>(count); });
  const tuning::ReduceShape shape =
      tuning::SafeReduceShape(items, resident_blocks_, card(0).multiprocessors);
  return {shape.blocks, shape.threads};
}

// Blocks of fewer threads are at least as many, so the count of the largest ones decides.
int CudaPair::MostBlocks(int threads) const {
  return tuning::MostReduceBlocks(resident_blocks_, threads);
}

// Before a grid that a card cannot hold makes the ranks wait for each other.
absl::Status CudaPair::CheckKernels() const {
  if (options_.kernels == nullptr) return absl::OkStatus();
  for (const auto& [key, entry] : options_.kernels->table().entries) {
    const auto* reduce = std::get_if<tuning::ReduceChoice>(&entry.choice);
    if (reduce == nullptr) continue;
    const char* const protocol = tuning::ProtocolText(reduce->protocol);
    if (protocol != std::string_view(ProtocolName(options_.protocol))) {
      return Refuse(absl::StrCat("a kernel table of protocol ", ProtocolName(options_.protocol)),
                    protocol);
    }
    TP2_RETURN_IF_ERROR(CheckGrid({reduce->blocks, reduce->threads}));
  }
  return absl::OkStatus();
}

absl::Status CudaPair::CheckGrid(cuda::Grid grid) const {
  const int most = MostBlocks(grid.threads);
  if (grid.blocks >= 1 && grid.blocks <= most) return absl::OkStatus();
  return Refuse(absl::StrCat("1 to ", most, " blocks, all resident at once"),
                absl::StrCat(grid.blocks));
}

absl::Status CudaPair::Poison(const absl::Status& reason) {
  if (poison_.ok()) poison_ = WithContext(reason, "pair poisoned");
  return poison_;
}

absl::Status CudaPair::BeforeLaunch(int rank, cudaStream_t stream) {
  if (is_poisoned()) return poison_;
  TP2_CHECK(rank >= 0 && rank < rank_count());
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (const absl::Status status = TP2_CUDA(cudaStreamIsCapturing(stream, &capture)); !status.ok()) {
    return Poison(status);
  }
  if (capture == cudaStreamCaptureStatusNone) return NoteReplay(rank, stream);
  return absl::OkStatus();
}

absl::Status CudaPair::NoteReplay(int rank, cudaStream_t stream) {
  if (is_poisoned()) return poison_;
  std::vector<cudaStream_t>& streams = ranks_[rank].streams;
  for (const cudaStream_t other : streams) {
    if (other == stream) continue;
    const cudaError_t state = cudaStreamQuery(other);
    if (state == cudaErrorNotReady) {
      return Refuse("one stream per rank until it is idle",
                    absl::StrCat("a second stream of rank ", rank));
    }
    if (state != cudaSuccess) return Poison(device::ToStatus(state, "a stream of the pair"));
  }
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.assign(1, stream);
  }
  return absl::OkStatus();
}

absl::Status CudaPair::AfterLaunch(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return Poison(device::ToStatus(error, "launch of a collective"));
}

cuda::RankLaunch CudaPair::LaunchOf(int rank, const cuda::Fault* fault, cudaStream_t stream) const {
  return {options_.protocol, views_[rank], fault, stream};
}

cuda::BothLaunch CudaPair::BothLaunchOf(cudaStream_t stream) const {
  return {options_.protocol, {views_[0], views_[1]}, stream};
}

absl::Status CudaPair::AllReduce(int rank, const cuda::ReduceArgs& args, cudaStream_t stream) {
  return AllReduce(rank, args, GridFor(args.count), nullptr, stream);
}

absl::Status CudaPair::AllReduce(int rank, const cuda::ReduceArgs& args, cuda::Grid grid,
                                 const cuda::Fault* fault, cudaStream_t stream) {
  TP2_RETURN_IF_ERROR(CheckGrid(grid));
  if (args.count < 1 || args.count > options_.max_words) {
    return Refuse(absl::StrCat("1 to ", options_.max_words, " values"), absl::StrCat(args.count));
  }
  TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(rank).ordinal);
  cuda::LaunchReduce(LaunchOf(rank, fault, stream), args, grid);
  return AfterLaunch(cudaPeekAtLastError());
}

absl::Status CudaPair::Exchange(int rank, const cuda::ExchangeArgs& args, cudaStream_t stream,
                                const cuda::Fault* fault) {
  if (args.requests < 1 || args.requests > cuda::kMaxExchanges || options_.tokens.empty()) {
    return Refuse(absl::StrCat("1 to ", cuda::kMaxExchanges, " requests and token ranges"),
                  absl::StrCat(args.requests, " and ", options_.tokens.size()));
  }
  TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(rank).ordinal);
  cuda::LaunchExchange(LaunchOf(rank, fault, stream), args);
  return AfterLaunch(cudaPeekAtLastError());
}

absl::Status CudaPair::CloseStep(int rank, cudaStream_t stream, Status* outcome) {
  TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(rank).ordinal);
  cuda::LaunchCloseStep(LaunchOf(rank, nullptr, stream), ranks_[rank].closed_steps.data(), outcome);
  return AfterLaunch(cudaPeekAtLastError());
}

absl::Status CudaPair::AllReduceBoth(const cuda::ReduceArgs (&args)[2], cuda::Grid grid,
                                     cudaStream_t stream) {
  TP2_CHECK(rank_count() == 2 && card(0).ordinal == card(1).ordinal);
  TP2_RETURN_IF_ERROR(CheckGrid(grid));
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(0).ordinal);
  return AfterLaunch(cuda::LaunchReduceBoth(BothLaunchOf(stream), args, grid));
}

absl::Status CudaPair::ExchangeBoth(const cuda::ExchangeArgs (&args)[2], cudaStream_t stream) {
  TP2_CHECK(rank_count() == 2 && card(0).ordinal == card(1).ordinal);
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(0).ordinal);
  return AfterLaunch(cuda::LaunchExchangeBoth(BothLaunchOf(stream), args));
}

absl::Status CudaPair::CloseStepBoth(cudaStream_t stream) {
  TP2_CHECK(rank_count() == 2 && card(0).ordinal == card(1).ordinal);
  for (int rank = 0; rank < 2; ++rank) TP2_RETURN_IF_ERROR(BeforeLaunch(rank, stream));
  const device::DeviceGuard guard(card(0).ordinal);
  return AfterLaunch(cuda::LaunchCloseStepBoth(
      BothLaunchOf(stream), {ranks_[0].closed_steps.data(), ranks_[1].closed_steps.data()}));
}

absl::Status CudaPair::CopyStatus(int rank, Status* status, cudaStream_t stream) {
  if (is_poisoned()) return poison_;
  return AfterLaunch(cudaMemcpyAsync(status, &header(rank)->status, sizeof(Status),
                                     cudaMemcpyDeviceToHost, stream));
}

absl::Status CudaPair::Cancel() {
  for (int rank = 0; rank < rank_count(); ++rank) {
    const device::DeviceGuard guard(card(rank).ordinal);
    TP2_RETURN_IF_ERROR(
        TP2_CUDA(cudaMemcpyAsync(&header(rank)->status.cancel, &words_.data()[0], sizeof(uint32_t),
                                 cudaMemcpyHostToDevice, ranks_[rank].cancel.get())));
  }
  return absl::OkStatus();
}

absl::Status CudaPair::WaitIdle(cudaStream_t stream) {
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  const uint64_t limit_ns = options_.timeout_ns / 10 * kDrainTenths + kDrainSlackNs;
  while (true) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return absl::OkStatus();
    if (state != cudaErrorNotReady) {
      return Poison(device::ToStatus(state, "a stream of the pair"));
    }
    const auto waited_ns = static_cast<uint64_t>(clock.NowNs() - start_ns);
    if (waited_ns > limit_ns) {
      return Poison(
          MakeError(absl::StatusCode::kDeadlineExceeded,
                    {.what = "drain of a stream",
                     .expected = absl::StrCat("idle within ", limit_ns / 1'000'000, " ms"),
                     .got = "still busy",
                     .next = "restart the process"}));
    }
    // Short waits spin: a STEP drains in a few milliseconds.
    if (waited_ns > 10'000'000) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

absl::Status CudaPair::Drain() {
  if (is_poisoned()) return poison_;
  for (Rank& rank : ranks_) {
    for (const cudaStream_t stream : rank.streams) TP2_RETURN_IF_ERROR(WaitIdle(stream));
    TP2_RETURN_IF_ERROR(WaitIdle(rank.cancel.get()));
    rank.streams.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<Status> CudaPair::ReadStatus(int rank) {
  if (is_poisoned()) return poison_;
  const device::DeviceGuard guard(card(rank).ordinal);
  Status* const status = statuses_.data() + rank;
  TP2_RETURN_IF_ERROR(CopyStatus(rank, status, ranks_[rank].control.get()));
  TP2_RETURN_IF_ERROR(WaitIdle(ranks_[rank].control.get()));
  return *status;
}

absl::StatusOr<uint32_t> CudaPair::ReadClosedSteps(int rank) {
  if (is_poisoned()) return poison_;
  const device::DeviceGuard guard(card(rank).ordinal);
  TP2_RETURN_IF_ERROR(AfterLaunch(
      cudaMemcpyAsync(&words_.data()[2], ranks_[rank].closed_steps.data(), sizeof(uint32_t),
                      cudaMemcpyDeviceToHost, ranks_[rank].control.get())));
  TP2_RETURN_IF_ERROR(WaitIdle(ranks_[rank].control.get()));
  return words_.data()[2];
}

absl::Status CudaPair::Recover() {
  TP2_RETURN_IF_ERROR(Drain());
  generation_ = NextGeneration(generation_);
  words_.data()[1] = generation_;
  for (int rank = 0; rank < rank_count(); ++rank) {
    const device::DeviceGuard guard(card(rank).ordinal);
    const cudaStream_t stream = ranks_[rank].control.get();
    TP2_RETURN_IF_ERROR(AfterLaunch(cudaMemsetAsync(
        ranks_[rank].state.data(), 0, static_cast<size_t>(StateBytes(size())), stream)));
    TP2_RETURN_IF_ERROR(
        AfterLaunch(cudaMemcpyAsync(&header(rank)->status.generation, &words_.data()[1],
                                    sizeof(uint32_t), cudaMemcpyHostToDevice, stream)));
  }
  // No rank starts before all are cleared.
  for (const Rank& rank : ranks_) TP2_RETURN_IF_ERROR(WaitIdle(rank.control.get()));
  return absl::OkStatus();
}

}  // namespace tp2::coll
