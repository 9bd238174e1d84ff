#include "libcore/collectives/cuda/probes.h"

#include <cuda_runtime.h>

#include "libcore/collectives/cuda/device_sys.cuh"
#include "libcore/device/preload.cuh"

namespace tp2::coll::cuda {
namespace {

constexpr int kProbeThreads = 256;
constexpr int kTornBlocks = 16;

template <ProbeAccess kAccess>
__device__ void Send(Line* to, uint32_t round, uint64_t now_ns) {
  const DeviceSys sys(nullptr, 0, 1);
  if constexpr (kAccess == ProbeAccess::kLine) {
    Line line;
    line.payload[0] = static_cast<uint32_t>(now_ns);
    line.payload[1] = static_cast<uint32_t>(now_ns >> 32);
    line.tag = round;
    sys.StoreLine(to, line);
  } else if constexpr (kAccess == ProbeAccess::kWord) {
    sys.StoreRelaxed(&to->tag, round);
  } else {
    sys.StoreRelease(&to->tag, round);
  }
}

template <ProbeAccess kAccess>
__device__ bool Receive(const Line* from, uint32_t round, uint64_t deadline_ns, uint64_t& sent_ns) {
  const DeviceSys sys(nullptr, 0, 1);
  for (int poll = 0;; ++poll) {
    if constexpr (kAccess == ProbeAccess::kLine) {
      const Line line = sys.LoadLine(from);
      sent_ns = line.payload[0] | uint64_t{line.payload[1]} << 32;
      if (line.tag == round) return true;
    } else if constexpr (kAccess == ProbeAccess::kWord) {
      if (sys.LoadRelaxed(&from->tag) == round) return true;
    } else {
      if (sys.LoadAcquire(&from->tag) == round) return true;
    }
    if (poll % 64 == 63 && sys.NowNs() > deadline_ns) return false;
  }
}

template <ProbeAccess kAccess>
__global__ void PingPongKernel(const PingPongArgs args, PingPongResult* result) {
  const DeviceSys sys(nullptr, 0, 1);
  const uint64_t deadline_ns = sys.NowNs() + args.timeout_ns;
  PingPongResult best;
  best.best_round_ns = UINT64_MAX;
  uint64_t first_ns = 0, peer_ns = 0;
  const auto round_count = static_cast<uint32_t>(args.rounds);
  for (uint32_t round = 1; round <= round_count; ++round) {
    if (!args.is_first) {
      if (!Receive<kAccess>(args.own, round, deadline_ns, peer_ns)) return;
      Send<kAccess>(args.peer, round, kAccess == ProbeAccess::kLine ? sys.NowNs() : 0);
      continue;
    }
    const uint64_t start_ns = sys.NowNs();
    if (round == 2) first_ns = start_ns;  // the first round waits for the partner's launch
    Send<kAccess>(args.peer, round, start_ns);
    if (!Receive<kAccess>(args.own, round, deadline_ns, peer_ns)) return;
    const uint64_t end_ns = sys.NowNs();
    if (end_ns - start_ns < best.best_round_ns) {
      best.best_round_ns = end_ns - start_ns;
      best.peer_clock_ahead_ns =
          static_cast<int64_t>(peer_ns - start_ns) - static_cast<int64_t>(end_ns - start_ns) / 2;
    }
  }
  if (!args.is_first) return;
  best.total_ns = sys.NowNs() - first_ns;
  *result = best;
}

__global__ void FenceCostKernel(Line* peer, int64_t bytes, int rounds, uint64_t* total_ns) {
  const DeviceSys sys(nullptr, 0, 1);
  for (int variant = 0; variant < 2; ++variant) {
    __syncthreads();
    const uint64_t start_ns = sys.NowNs();
    for (int round = 0; round < rounds; ++round) {
      const Line line;
      for (int64_t i = threadIdx.x; i * 16 < bytes; i += blockDim.x) sys.StoreLine(peer + i, line);
      __syncthreads();
      if (threadIdx.x == 0 && variant == 0) sys.Fence();
      __syncthreads();
    }
    if (threadIdx.x == 0) total_ns[variant] = sys.NowNs() - start_ns;
    sys.Fence();
  }
}

__global__ void PushRateKernel(Line* peer, int64_t count, int rounds) {
  const DeviceSys sys(nullptr, 0, 1);
  Line line;
  for (int round = 0; round < rounds; ++round) {
    line.tag = static_cast<uint32_t>(round);
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += int64_t{gridDim.x} * blockDim.x) {
      sys.StoreLine(peer + i, line);
    }
  }
}

__global__ void EmptyKernel() {}

__global__ void StampKernel(uint64_t* now_ns) { *now_ns = DeviceSys(nullptr, 0, 1).NowNs(); }

template <TornWidth kWidth>
__device__ void StoreUnit(Line* to, uint32_t value) {
  if constexpr (kWidth == TornWidth::kScalar128) {
    Line line;
    for (uint32_t& word : line.payload) word = value;
    line.tag = value;
    DeviceSys(nullptr, 0, 1).StoreLine(to, line);
  } else {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(to), "r"(value)
                 : "memory");
  }
}

template <TornWidth kWidth>
__device__ Line LoadUnit(const Line* from) {
  if constexpr (kWidth == TornWidth::kScalar128) return DeviceSys(nullptr, 0, 1).LoadLine(from);
  Line line;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.payload[0]), "=r"(line.payload[1]), "=r"(line.payload[2]), "=r"(line.tag)
               : "l"(from)
               : "memory");
  return line;
}

template <TornWidth kWidth>
__global__ void TornWriterKernel(Line* peer, int64_t count, int rounds) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int round = 1; round <= rounds; ++round) {
    for (int64_t i = index; i < count; i += int64_t{gridDim.x} * blockDim.x) {
      StoreUnit<kWidth>(peer + i, static_cast<uint32_t>(round));
    }
  }
}

template <TornWidth kWidth>
__global__ void TornReaderKernel(const Line* own, int64_t count, int rounds, uint64_t timeout_ns,
                                 TornResult* result) {
  const DeviceSys sys(nullptr, 0, 1);
  const uint64_t start_ns = sys.NowNs();
  unsigned long long torn = 0, units = 0, changes = 0;
  uint32_t newest = 0;
  bool is_last = false;
  // Warp-uniform turns: `count` is a multiple of the grid.
  while (!is_last) {
    bool has_all = true;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += int64_t{gridDim.x} * blockDim.x) {
      const Line line = LoadUnit<kWidth>(own + i);
      bool is_torn =
          line.payload[0] != line.tag || line.payload[1] != line.tag || line.payload[2] != line.tag;
      if constexpr (kWidth == TornWidth::kWarp128) {
        // Eight lanes hold one 128-byte line; its first lane judges.
        const uint32_t first = __shfl_sync(0xffffffffu, line.tag, 0, 8);
        const unsigned differing = __ballot_sync(0xffffffffu, is_torn || line.tag != first);
        const unsigned quarter = threadIdx.x % 32 / 8 * 8;
        is_torn = threadIdx.x % 8 == 0 && (differing >> quarter & 0xffu) != 0;
      }
      torn += is_torn;
      ++units;
      changes += line.tag > newest;
      newest = max(newest, line.tag);
      has_all &= line.tag == static_cast<uint32_t>(rounds);
    }
    const bool is_late = sys.NowNs() - start_ns > timeout_ns;
    is_last = __all_sync(0xffffffffu, has_all) || __any_sync(0xffffffffu, is_late);
  }
  atomicAdd(&result->torn, torn);
  atomicAdd(&result->units, units);
  atomicAdd(&result->changes, changes);
}

__global__ void PollLatencyKernel(const Line* address, int rounds, uint64_t* total_ns) {
  const DeviceSys sys(nullptr, 0, 1);
  const uint64_t start_ns = sys.NowNs();
  uint32_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    // The address depends on the value before: one load at a time.
    sum += sys.LoadRelaxed(&address[sum & 1].payload[0]);
  }
  total_ns[0] = sys.NowNs() - start_ns + (sum & 1);
}

}  // namespace

void LaunchPingPong(ProbeAccess access, const PingPongArgs& args, PingPongResult* result,
                    cudaStream_t stream) {
  switch (access) {
    case ProbeAccess::kWord:
      PingPongKernel<ProbeAccess::kWord><<<1, 1, 0, stream>>>(args, result);
      break;
    case ProbeAccess::kLine:
      PingPongKernel<ProbeAccess::kLine><<<1, 1, 0, stream>>>(args, result);
      break;
    case ProbeAccess::kAcquireRelease:
      PingPongKernel<ProbeAccess::kAcquireRelease><<<1, 1, 0, stream>>>(args, result);
      break;
  }
}
void LaunchFenceCost(Line* peer, int64_t bytes, int rounds, uint64_t* total_ns,
                     cudaStream_t stream) {
  FenceCostKernel<<<1, 512, 0, stream>>>(peer, bytes, rounds, total_ns);
}
void LaunchPushRate(Line* peer, int64_t count, int rounds, Grid grid, cudaStream_t stream) {
  PushRateKernel<<<grid.blocks, grid.threads, 0, stream>>>(peer, count, rounds);
}
void LaunchEmpty(cudaStream_t stream) { EmptyKernel<<<1, 1, 0, stream>>>(); }
cudaError_t LaunchProgrammatic(cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, EmptyKernel);
}
void LaunchStamp(uint64_t* now_ns, cudaStream_t stream) {
  StampKernel<<<1, 1, 0, stream>>>(now_ns);
}
void LaunchTornWriter(TornWidth width, Line* peer, int64_t count, int rounds, cudaStream_t stream) {
  switch (width) {
    case TornWidth::kScalar128:
      TornWriterKernel<TornWidth::kScalar128>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(peer, count, rounds);
      break;
    case TornWidth::kVector4:
      TornWriterKernel<TornWidth::kVector4>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(peer, count, rounds);
      break;
    case TornWidth::kWarp128:
      TornWriterKernel<TornWidth::kWarp128>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(peer, count, rounds);
      break;
  }
}
void LaunchTornReader(TornWidth width, const Line* own, int64_t count, int rounds,
                      uint64_t timeout_ns, TornResult* result, cudaStream_t stream) {
  switch (width) {
    case TornWidth::kScalar128:
      TornReaderKernel<TornWidth::kScalar128>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(own, count, rounds, timeout_ns, result);
      break;
    case TornWidth::kVector4:
      TornReaderKernel<TornWidth::kVector4>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(own, count, rounds, timeout_ns, result);
      break;
    case TornWidth::kWarp128:
      TornReaderKernel<TornWidth::kWarp128>
          <<<kTornBlocks, kProbeThreads, 0, stream>>>(own, count, rounds, timeout_ns, result);
      break;
  }
}
void LaunchPollLatency(const Line* address, int rounds, uint64_t* total_ns, cudaStream_t stream) {
  PollLatencyKernel<<<1, 1, 0, stream>>>(address, rounds, total_ns);
}

cudaError_t PreloadProbeKernels() {
#define TP2_PROBE_KERNELS
#include "libcore/collectives/cuda/kernel_list.inc"
#undef TP2_PROBE_KERNELS
  return cudaSuccess;
}

}  // namespace tp2::coll::cuda
