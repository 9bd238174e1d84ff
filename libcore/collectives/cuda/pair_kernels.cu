// The collective kernels: the protocols' operations over the card's policy.
#include <cuda_runtime.h>

#include <algorithm>

#include "libcore/collectives/cuda/device_sys.cuh"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/cuda/launch.h"
#include "libcore/collectives/cuda/probes.h"
#include "libcore/device/preload.cuh"

namespace tp2::coll::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;
constexpr int kAnyRank = -1;

// DeviceSys with a fault in one block.
class FaultSys : public DeviceSys {
 public:
  __device__ FaultSys(const DeviceSys& sys, const Header* own, const Fault& fault)
      : DeviceSys(sys), header_(own), fault_(fault) {}
  TP2_HD void StoreLine(Line* to, const Line& line) const {
    if (MayStore()) DeviceSys::StoreLine(to, line);
  }
  TP2_HD void StoreWords(uint32_t* to, const uint32_t (&words)[4]) const {
    if (MayStore()) DeviceSys::StoreWords(to, words);
  }
  TP2_HD void StoreRelease(uint32_t* word, uint32_t value) const {
    const bool is_own = word == &header_->status.epoch || word == &header_->arrivals;
    if (is_own || MayStore()) DeviceSys::StoreRelease(word, value);
  }

 private:
  TP2_HD bool MayStore() const {
    if (block() != fault_.block) return true;
    const bool is_stalled = fault_.stalled_lane < 0 || thread() % kWarp == fault_.stalled_lane;
    const uint64_t start_ns = NowNs();
    while (is_stalled && NowNs() - start_ns < fault_.stall_ns) {
    }
    return thread() != fault_.dropped_thread;
  }

  const Header* header_;
  Fault fault_;
};

// The view with what a pair's kernel knows at compile time; for any rank the view itself, whose
// arrays can be indexed where they lie.
template <int kRank>
__device__ decltype(auto) Known(const RankView& given) {
  if constexpr (kRank == kAnyRank) {
    return (given);
  } else {
    RankView view = given;
    view.rank = kRank;
    view.rank_count = 2;
    return view;
  }
}

// The thread's first item, loaded while the status is still on its way.
template <class Protocol>
class HeldItem {
 public:
  __device__ HeldItem(const ReduceArgs& args, int64_t item)
      : x_(args.x), first_(item * Protocol::kItemWords) {
    TP2_UNROLL
    for (int i = 0; i < Protocol::kItemWords; ++i) {
      held_[i] = first_ + i < args.count ? x_[first_ + i] : 0.0f;
    }
  }
  TP2_HD float operator()(int64_t index) const {
    const int64_t offset = index - first_;
    if (offset < 0 || offset >= Protocol::kItemWords) return x_[index];
    float value = held_[0];
    TP2_UNROLL
    for (int i = 1; i < Protocol::kItemWords; ++i) value = offset == i ? held_[i] : value;
    return value;
  }

 private:
  const float* x_;
  int64_t first_;
  float held_[Protocol::kItemWords];
};

template <class Protocol, class Sys>
__device__ void Reduce(Sys& sys, const RankView& view, const ReduceArgs& args) {
  const HeldItem<Protocol> held(args, FirstItem(sys));
  sys.Enter();
  AllReduce<Protocol>(sys, view, args.count, held, [&args](int64_t i, float sum) {
    if (args.sum != nullptr) args.sum[i] = sum;
    if (args.rounded != nullptr) args.rounded[i] = ToBf16(sum);
  });
}

// One warp, a request per lane. A request that has no result keeps look-ups in range.
template <class Protocol, class Record, class Sys, class Load, class Store>
__device__ void ExchangeRecords(Sys& sys, const RankView& view, const ExchangeArgs& args, Load load,
                                Store store) {
  const bool is_done = Exchange<Protocol, Record>(sys, view, args.requests, load, store);
  const int request = sys.thread();
  if (is_done || request >= args.requests) return;
  args.token[request * args.token_stride] = 0;
  if (args.runner_up == nullptr) return;
  args.runner_up[request * args.result_stride] = 0;
  args.margin[request * args.result_stride] = 0;
}

__device__ inline int32_t TokenOf(Scored best) {
  return best.token == kNoScore.token ? 0 : best.token;  // no rank had a candidate
}

template <class Protocol, bool kHasMargin, class Sys>
__device__ void ExchangeBest(Sys& sys, const RankView& view, const ExchangeArgs& args,
                             bool has_foreign_id) {
  // The lane's only request, loaded while the status is still on its way.
  TopTwo held = {kNoScore, kNoScore};
  if (sys.thread() < args.requests) held = args.best[sys.thread()];
  if (has_foreign_id) held.first.token = view.tokens[view.rank].end;
  sys.EnterWarp();
  const auto load = [held](int64_t) { return held; };
  if constexpr (kHasMargin) {
    ExchangeRecords<Protocol, BestTwoRecord>(
        sys, view, args, load, [&](int64_t i, const TopTwo& best) {
          args.token[i * args.token_stride] = TokenOf(best.first);
          args.runner_up[i * args.result_stride] = TokenOf(best.second);
          args.margin[i * args.result_stride] = best.first.score - best.second.score;
        });
  } else {
    ExchangeRecords<Protocol, BestRecord>(
        sys, view, args, [held](int64_t) { return held.first; },
        [&](int64_t i, Scored best) { args.token[i * args.token_stride] = TokenOf(best); });
  }
}

template <class Protocol>
__device__ void Close(DeviceSys& sys, const RankView& view, uint32_t* steps, Status* outcome) {
  sys.EnterWarp();
  const bool is_done = CloseStep<Protocol>(sys, view);
  if (sys.thread() != 0) return;
  if (is_done && steps != nullptr) ++*steps;
  if (outcome != nullptr) *outcome = sys.LoadStatus(OwnHeader(view));
}

__device__ DeviceSys GridSys(const RankView& view) {
  return {OwnHeader(view), static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
}

template <class Protocol, int kRank>
__global__ void __launch_bounds__(kMaxThreads)
    ReduceKernel(const __grid_constant__ RankView given, const __grid_constant__ ReduceArgs args) {
  const RankView& view = Known<kRank>(given);
  DeviceSys sys = GridSys(view);
  Reduce<Protocol>(sys, view, args);
}

template <class Protocol>
__global__ void __launch_bounds__(kMaxThreads)
    FaultyReduceKernel(const __grid_constant__ RankView view,
                       const __grid_constant__ ReduceArgs args,
                       const __grid_constant__ Fault fault) {
  FaultSys sys(GridSys(view), OwnHeader(view), fault);
  Reduce<Protocol>(sys, view, args);
}

template <class Protocol, int kRank, bool kHasMargin>
__global__ void __launch_bounds__(kWarp) ExchangeKernel(const __grid_constant__ RankView given,
                                                        const __grid_constant__ ExchangeArgs args) {
  const RankView& view = Known<kRank>(given);
  DeviceSys sys = GridSys(view);
  ExchangeBest<Protocol, kHasMargin>(sys, view, args, false);
}

template <class Protocol, bool kHasMargin>
__global__ void __launch_bounds__(kWarp)
    FaultyExchangeKernel(const __grid_constant__ RankView view,
                         const __grid_constant__ ExchangeArgs args,
                         const __grid_constant__ Fault fault) {
  FaultSys sys(GridSys(view), OwnHeader(view), fault);
  ExchangeBest<Protocol, kHasMargin>(sys, view, args, fault.has_foreign_id);
}

template <class Protocol, int kRank>
__global__ void __launch_bounds__(kWarp)
    CloseStepKernel(const __grid_constant__ RankView given, uint32_t* steps, Status* outcome) {
  const RankView& view = Known<kRank>(given);
  DeviceSys sys = GridSys(view);
  Close<Protocol>(sys, view, steps, outcome);
}

struct BothViews {
  RankView ranks[2];
};
template <class Args>
struct Both {
  Args ranks[2];
};

// The first half of the grid is rank 0.
__device__ int HalfOf(int& block_count) {
  block_count = static_cast<int>(gridDim.x) / 2;
  return static_cast<int>(blockIdx.x) / block_count;
}
__device__ DeviceSys HalfSys(const RankView& view, int block_count) {
  return {OwnHeader(view), static_cast<int>(blockIdx.x) % block_count, block_count};
}

template <class Protocol>
__global__ void __launch_bounds__(kMaxThreads)
    ReduceBothKernel(const __grid_constant__ BothViews views,
                     const __grid_constant__ Both<ReduceArgs> args) {
  int block_count;
  const int rank = HalfOf(block_count);
  DeviceSys sys = HalfSys(views.ranks[rank], block_count);
  Reduce<Protocol>(sys, views.ranks[rank], args.ranks[rank]);
}

template <class Protocol, bool kHasMargin>
__global__ void __launch_bounds__(kWarp)
    ExchangeBothKernel(const __grid_constant__ BothViews views,
                       const __grid_constant__ Both<ExchangeArgs> args) {
  int block_count;
  const int rank = HalfOf(block_count);
  DeviceSys sys = HalfSys(views.ranks[rank], block_count);
  ExchangeBest<Protocol, kHasMargin>(sys, views.ranks[rank], args.ranks[rank], false);
}

template <class Protocol>
__global__ void __launch_bounds__(kWarp)
    CloseStepBothKernel(const __grid_constant__ BothViews views,
                        const __grid_constant__ Both<uint32_t*> steps) {
  int block_count;
  const int rank = HalfOf(block_count);
  DeviceSys sys = HalfSys(views.ranks[rank], block_count);
  Close<Protocol>(sys, views.ranks[rank], steps.ranks[rank], nullptr);
}

cudaError_t PreloadPairKernels() {
#define TP2_PAIR_KERNELS
#include "libcore/collectives/cuda/kernel_list.inc"
#undef TP2_PAIR_KERNELS
  return cudaSuccess;
}

template <class Args>
cudaError_t LaunchBoth(void (*kernel)(BothViews, Both<Args>), int blocks, int threads,
                       const BothLaunch& launch, const Args (&args)[2]) {
  BothViews views = {{launch.views[0], launch.views[1]}};
  Both<Args> both = {{args[0], args[1]}};
  void* arguments[] = {&views, &both};
  return cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments, 0,
                                     launch.stream);
}

// The rank of a pair, or kAnyRank, as a constant.
template <class Body>
void WithRank(const RankView& view, Body&& body) {
  if (view.rank_count != 2) return body.template operator()<kAnyRank>();
  if (view.rank == 0) return body.template operator()<0>();
  body.template operator()<1>();
}

template <class Body>
decltype(auto) WithMargin(const ExchangeArgs& args, Body&& body) {
  return args.runner_up != nullptr ? body.template operator()<true>()
                                   : body.template operator()<false>();
}

}  // namespace

void LaunchReduce(const RankLaunch& launch, const ReduceArgs& args, Grid grid) {
  WithProtocol(launch.protocol, [&]<class Protocol> {
    if (launch.fault != nullptr) {
      FaultyReduceKernel<Protocol>
          <<<grid.blocks, grid.threads, 0, launch.stream>>>(launch.view, args, *launch.fault);
      return;
    }
    WithRank(launch.view, [&]<int kRank> {
      ReduceKernel<Protocol, kRank>
          <<<grid.blocks, grid.threads, 0, launch.stream>>>(launch.view, args);
    });
  });
}

void LaunchExchange(const RankLaunch& launch, const ExchangeArgs& args) {
  WithProtocol(launch.protocol, [&]<class Protocol> {
    WithMargin(args, [&]<bool kHasMargin> {
      if (launch.fault != nullptr) {
        FaultyExchangeKernel<Protocol, kHasMargin>
            <<<1, kWarp, 0, launch.stream>>>(launch.view, args, *launch.fault);
        return;
      }
      WithRank(launch.view, [&]<int kRank> {
        ExchangeKernel<Protocol, kRank, kHasMargin>
            <<<1, kWarp, 0, launch.stream>>>(launch.view, args);
      });
    });
  });
}

void LaunchCloseStep(const RankLaunch& launch, uint32_t* steps, Status* outcome) {
  WithProtocol(launch.protocol, [&]<class Protocol> {
    WithRank(launch.view, [&]<int kRank> {
      CloseStepKernel<Protocol, kRank><<<1, kWarp, 0, launch.stream>>>(launch.view, steps, outcome);
    });
  });
}

cudaError_t LaunchReduceBoth(const BothLaunch& launch, const ReduceArgs (&args)[2], Grid grid) {
  return WithProtocol(launch.protocol, [&]<class Protocol> {
    return LaunchBoth(&ReduceBothKernel<Protocol>, 2 * grid.blocks, grid.threads, launch, args);
  });
}

cudaError_t LaunchExchangeBoth(const BothLaunch& launch, const ExchangeArgs (&args)[2]) {
  return WithProtocol(launch.protocol, [&]<class Protocol> {
    return WithMargin(args[0], [&]<bool kHasMargin> {
      return LaunchBoth(&ExchangeBothKernel<Protocol, kHasMargin>, 2, kWarp, launch, args);
    });
  });
}

cudaError_t LaunchCloseStepBoth(const BothLaunch& launch, uint32_t* const (&steps)[2]) {
  return WithProtocol(launch.protocol, [&]<class Protocol> {
    return LaunchBoth<uint32_t*>(&CloseStepBothKernel<Protocol>, 2, kWarp, launch, steps);
  });
}

cudaError_t ResidentBlocks(int threads, int* blocks) {
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  int least = 1 << 20;
  const auto count = [&](auto* kernel) {
    int per_processor = 0;
    if (error != cudaSuccess) return;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, threads, 0);
    least = std::min(least, per_processor * multiprocessors);
  };
  count(&ReduceKernel<LineProtocol, 0>);
  count(&ReduceKernel<LineProtocol, kAnyRank>);
  count(&ReduceKernel<AckProtocol, 0>);
  count(&ReduceKernel<AckProtocol, kAnyRank>);
  count(&FaultyReduceKernel<LineProtocol>);
  count(&FaultyReduceKernel<AckProtocol>);
  count(&ReduceBothKernel<LineProtocol>);
  count(&ReduceBothKernel<AckProtocol>);
  *blocks = least;
  return error;
}

cudaError_t PreloadKernels() {
  cudaError_t error = PreloadPairKernels();
  if (error == cudaSuccess) error = PreloadHarnessKernels();
  if (error == cudaSuccess) error = PreloadProbeKernels();
  return error;
}

}  // namespace tp2::coll::cuda
