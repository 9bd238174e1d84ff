// The collective kernels: the protocols' operations over the card's policy.
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "libcore/collectives/cuda/device_sys.cuh"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/cuda/launch.h"
#include "libcore/collectives/cuda/probes.h"
#include "libcore/device/preload.cuh"

namespace tp2::coll::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;

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

// What the kernels of a pair's rank are given: a RankView without the room for more ranks, because
// a card fetches arguments by the cache line.
template <int kRank>
struct PairView {
  explicit PairView(const RankView& view)
      : states{view.states[0], view.states[1]},
        item_capacity(view.item_capacity),
        max_epoch(view.max_epoch),
        timeout_ns(view.timeout_ns),
        tokens{view.tokens[0], view.tokens[1]} {}

  uint8_t* states[2];
  int32_t item_capacity;
  uint32_t max_epoch;
  uint64_t timeout_ns;
  TokenRange tokens[2];
};

// The view whose rank and rank count are constants.
template <int kRank>
__device__ RankView Known(const PairView<kRank>& pair) {
  RankView view;
  TP2_UNROLL
  for (int rank = 0; rank < 2; ++rank) {
    view.states[rank] = pair.states[rank];
    view.tokens[rank] = pair.tokens[rank];
  }
  view.item_capacity = pair.item_capacity;
  view.max_epoch = pair.max_epoch;
  view.timeout_ns = pair.timeout_ns;
  view.rank = kRank;
  view.rank_count = 2;
  return view;
}
// Any rank's view is used where it lies: its arrays are indexed at run time.
__device__ const RankView& Known(const RankView& view) { return view; }

// Where sums go: to the one output that is wanted, or to those that are not null.
enum class Output { kSum, kRounded, kAny };

template <class Protocol, ItemsPerThread kItems, Output kOutput, class Sys>
__device__ void Reduce(Sys& sys, const RankView& view, const ReduceArgs& args) {
  const bool has_sum = kOutput == Output::kAny ? args.sum != nullptr : kOutput == Output::kSum;
  const bool has_rounded =
      kOutput == Output::kAny ? args.rounded != nullptr : kOutput == Output::kRounded;
  AllReduce<Protocol, kItems>(
      sys, view, static_cast<int32_t>(args.count), [&](int32_t i) { return args.x[i]; },
      [&](int32_t i, float sum) {
        if (has_sum) args.sum[i] = sum;
        if (has_rounded) args.rounded[i] = ToBf16(sum);
      });
}

__device__ inline int32_t TokenOf(Scored best) {
  return best.token == kNoScore.token ? 0 : best.token;  // no rank had a candidate
}

// One warp, a request per lane. What a request without a result keeps leaves look-ups in range; it
// is stored first, so that a failure has nothing left to do.
template <class Protocol, bool kHasMargin, class Sys>
__device__ void ExchangeBest(Sys& sys, const RankView& view, const ExchangeArgs& args,
                             bool has_foreign_id) {
  const auto load = [&](int32_t request) {
    TopTwo best = args.best[request];
    if (has_foreign_id) best.first.token = view.tokens[view.rank].end;
    return best;
  };
  const int request = sys.thread();
  int32_t* const token = args.token + request * static_cast<int32_t>(args.token_stride);
  if (request < args.requests) *token = 0;
  if constexpr (kHasMargin) {
    const int offset = request * static_cast<int32_t>(args.result_stride);
    int32_t* const runner_up = args.runner_up + offset;
    float* const margin = args.margin + offset;
    if (request < args.requests) {
      *runner_up = 0;
      *margin = 0;
    }
    Exchange<Protocol, BestTwoRecord, ItemsPerThread::kOne>(
        sys, view, args.requests, load, [&](int32_t, const TopTwo& best) {
          *token = TokenOf(best.first);
          *runner_up = TokenOf(best.second);
          *margin = best.first.score - best.second.score;
        });
  } else {
    Exchange<Protocol, BestRecord, ItemsPerThread::kOne>(
        sys, view, args.requests, [&](int32_t i) { return load(i).first; },
        [&](int32_t, Scored best) { *token = TokenOf(best); });
  }
}

template <class Protocol>
__device__ void Close(DeviceSys& sys, const RankView& view, uint32_t* steps, Status* outcome) {
  const bool is_done = CloseStep<Protocol>(sys, view);
  if (sys.thread() != 0) return;
  if (is_done && steps != nullptr) ++*steps;
  if (outcome != nullptr) *outcome = sys.LoadStatus(OwnHeader(view));
}

__device__ DeviceSys Requested(DeviceSys sys) {
  sys.RequestStatus();
  return sys;
}
__device__ DeviceSys GridSys(const RankView& view) {
  return Requested({OwnHeader(view), static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
}
__device__ DeviceSys WarpSys(const RankView& view) {
  return Requested({OwnHeader(view), 0, 1, true});
}

// Of any number of ranks and items.
template <class Protocol>
__global__ void __launch_bounds__(kMaxThreads)
    ReduceKernel(const __grid_constant__ RankView view, const __grid_constant__ ReduceArgs args) {
  DeviceSys sys = GridSys(view);
  Reduce<Protocol, ItemsPerThread::kAny, Output::kAny>(sys, view, args);
}

// A pair's, with a thread for every item.
template <class Protocol, class View, Output kOutput>
__global__ void __launch_bounds__(kMaxThreads)
    ReducePairKernel(const __grid_constant__ View given, const __grid_constant__ ReduceArgs args) {
  const RankView& view = Known(given);
  DeviceSys sys = GridSys(view);
  Reduce<Protocol, ItemsPerThread::kOne, kOutput>(sys, view, args);
}

template <class Protocol>
__global__ void __launch_bounds__(kMaxThreads)
    FaultyReduceKernel(const __grid_constant__ RankView view,
                       const __grid_constant__ ReduceArgs args,
                       const __grid_constant__ Fault fault) {
  FaultSys sys(GridSys(view), OwnHeader(view), fault);
  Reduce<Protocol, ItemsPerThread::kAny, Output::kAny>(sys, view, args);
}

template <class Protocol, class View, bool kHasMargin>
__global__ void __launch_bounds__(kWarp)
    ExchangeKernel(const __grid_constant__ View given, const __grid_constant__ ExchangeArgs args) {
  const RankView& view = Known(given);
  DeviceSys sys = WarpSys(view);
  ExchangeBest<Protocol, kHasMargin>(sys, view, args, false);
}

template <class Protocol, bool kHasMargin>
__global__ void __launch_bounds__(kWarp)
    FaultyExchangeKernel(const __grid_constant__ RankView view,
                         const __grid_constant__ ExchangeArgs args,
                         const __grid_constant__ Fault fault) {
  FaultSys sys(WarpSys(view), OwnHeader(view), fault);
  ExchangeBest<Protocol, kHasMargin>(sys, view, args, fault.has_foreign_id);
}

template <class Protocol, class View>
__global__ void __launch_bounds__(kWarp)
    CloseStepKernel(const __grid_constant__ View given, uint32_t* steps, Status* outcome) {
  const RankView& view = Known(given);
  DeviceSys sys = WarpSys(view);
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
  return Requested({OwnHeader(view), static_cast<int>(blockIdx.x) % block_count, block_count});
}

template <class Protocol>
__global__ void __launch_bounds__(kMaxThreads)
    ReduceBothKernel(const __grid_constant__ BothViews views,
                     const __grid_constant__ Both<ReduceArgs> args) {
  int block_count;
  const int rank = HalfOf(block_count);
  const auto reduce = [block_count](const RankView& view, const ReduceArgs& of_rank) {
    DeviceSys sys = HalfSys(view, block_count);
    Reduce<Protocol, ItemsPerThread::kAny, Output::kAny>(sys, view, of_rank);
  };
  // Arguments at places known to the compiler: an index takes registers that 1024 threads lack.
  if (rank == 0) {
    reduce(views.ranks[0], args.ranks[0]);
  } else {
    reduce(views.ranks[1], args.ranks[1]);
  }
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

// body(the view for the rank's kernels).
template <class Body>
void WithView(const RankView& view, Body&& body) {
  if (view.rank_count != 2) return body(view);
  if (view.rank == 0) return body(PairView<0>(view));
  body(PairView<1>(view));
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
    const bool has_thread_each =
        ItemsOf<Protocol>(args.count) <= int64_t{grid.blocks} * grid.threads;
    const bool has_one_output = (args.sum == nullptr) != (args.rounded == nullptr);
    WithView(launch.view, [&]<class View>(const View& view) {
      if constexpr (!std::is_same_v<View, RankView>) {
        if (has_thread_each && has_one_output) {
          const auto kernel = args.sum != nullptr
                                  ? &ReducePairKernel<Protocol, View, Output::kSum>
                                  : &ReducePairKernel<Protocol, View, Output::kRounded>;
          kernel<<<grid.blocks, grid.threads, 0, launch.stream>>>(view, args);
          return;
        }
      }
      ReduceKernel<Protocol><<<grid.blocks, grid.threads, 0, launch.stream>>>(launch.view, args);
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
      WithView(launch.view, [&]<class View>(const View& view) {
        ExchangeKernel<Protocol, View, kHasMargin><<<1, kWarp, 0, launch.stream>>>(view, args);
      });
    });
  });
}

void LaunchCloseStep(const RankLaunch& launch, uint32_t* steps, Status* outcome) {
  WithProtocol(launch.protocol, [&]<class Protocol> {
    WithView(launch.view, [&]<class View>(const View& view) {
      CloseStepKernel<Protocol, View><<<1, kWarp, 0, launch.stream>>>(view, steps, outcome);
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
  count(&ReduceKernel<LineProtocol>);
  count(&ReducePairKernel<LineProtocol, PairView<0>, Output::kSum>);
  count(&ReducePairKernel<LineProtocol, PairView<0>, Output::kRounded>);
  count(&ReduceKernel<AckProtocol>);
  count(&ReducePairKernel<AckProtocol, PairView<0>, Output::kSum>);
  count(&ReducePairKernel<AckProtocol, PairView<0>, Output::kRounded>);
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
