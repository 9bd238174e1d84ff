#include "libcore/collectives/cuda/harness.h"

#include <cuda_runtime.h>

#include "libcore/collectives/cuda/device_sys.cuh"
#include "libcore/device/preload.cuh"

namespace tp2::coll::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxGrid = 64;

__device__ int64_t FirstIndex() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t Stride() { return int64_t{gridDim.x} * blockDim.x; }

int GridFor(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < 1 ? 1 : blocks > kMaxGrid ? kMaxGrid : blocks);
}

__global__ void StallKernel(uint64_t duration_ns) {
  const DeviceSys sys(nullptr, 0, 1);
  const uint64_t start_ns = sys.NowNs();
  while (sys.NowNs() - start_ns < duration_ns) __nanosleep(500);
}

__global__ void FillKernel(const FillArgs args) {
  const uint32_t turn = *args.turn;
  for (int64_t i = FirstIndex(); i < args.count; i += Stride()) {
    args.values[i] = PayloadAt(args.seed, args.rank, turn, i);
  }
}

__global__ void FillBestKernel(const FillArgs args) {
  const int request = static_cast<int>(threadIdx.x);
  args.best[request] = BestAt(args.seed, args.rank, *args.turn, request, args.part);
}

__device__ bool SameBits(float a, float b) { return __float_as_uint(a) == __float_as_uint(b); }

__global__ void VerifyKernel(const VerifyArgs args) {
  const uint32_t turn = *args.turn;
  unsigned long long wrong = 0;
  for (int64_t i = FirstIndex(); i < args.count; i += Stride()) {
    float expected = PayloadAt(args.seed, 0, turn, i);
    for (int rank = 1; rank < args.rank_count; ++rank) {
      expected += PayloadAt(args.seed, rank, turn, i);
    }
    if (args.sum != nullptr) {
      wrong += !SameBits(args.sum[i], expected);
      const_cast<float*>(args.sum)[i] = __uint_as_float(0xffffffffu);
    }
    if (args.rounded != nullptr) {
      wrong += args.rounded[i].bits != ToBf16(expected).bits;
      const_cast<Bf16*>(args.rounded)[i].bits = 0xffffu;
    }
  }
  if (wrong != 0) atomicAdd(args.wrong_count, wrong);
}

__global__ void VerifyBestKernel(const VerifyArgs args) {
  const ExchangeArgs& seen = args.exchange;
  const int request = static_cast<int>(threadIdx.x);
  const uint32_t turn = *args.turn;
  TopTwo expected = BestAt(args.seed, 0, turn, request, args.parts[0]);
  for (int rank = 1; rank < args.rank_count; ++rank) {
    expected = Merge(expected, BestAt(args.seed, rank, turn, request, args.parts[rank]));
  }
  const float margin = expected.first.score - expected.second.score;
  int32_t& token = seen.token[request * seen.token_stride];
  unsigned long long wrong = token != expected.first.token;
  token = -1;
  if (seen.runner_up != nullptr) {
    int32_t& runner_up = seen.runner_up[request * seen.result_stride];
    float& seen_margin = seen.margin[request * seen.result_stride];
    wrong += runner_up != expected.second.token;
    wrong += !SameBits(seen_margin, margin);
    runner_up = -1;
    seen_margin = -1.0f;
  }
  if (wrong != 0) atomicAdd(args.wrong_count, wrong);
}

__global__ void CountTurnKernel(uint32_t* turn) { ++*turn; }

__global__ void AddKernel(const float* a, const float* b, int64_t count, float* sum,
                          Bf16* rounded) {
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    const float value = a[i] + b[i];
    if (sum != nullptr) sum[i] = value;
    if (rounded != nullptr) rounded[i] = ToBf16(value);
  }
}

__device__ Line PatternLine(uint64_t seed, int64_t index) {
  const uint64_t a = RandomAt(seed, static_cast<uint64_t>(index) * 2);
  const uint64_t b = RandomAt(seed, static_cast<uint64_t>(index) * 2 + 1);
  Line line;
  line.payload[0] = static_cast<uint32_t>(a);
  line.payload[1] = static_cast<uint32_t>(a >> 32);
  line.payload[2] = static_cast<uint32_t>(b);
  line.tag = static_cast<uint32_t>(b >> 32);
  return line;
}

__global__ void PatternStoreKernel(Line* lines, int64_t count, uint64_t seed) {
  const DeviceSys sys(nullptr, 0, 1);
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    sys.StoreLine(lines + i, PatternLine(seed, i));
  }
}

__global__ void PatternCheckKernel(const Line* lines, int64_t count, uint64_t seed,
                                   unsigned long long* wrong_count) {
  const DeviceSys sys(nullptr, 0, 1);
  unsigned long long wrong = 0;
  for (int64_t i = FirstIndex(); i < count; i += Stride()) {
    const Line seen = sys.LoadLine(lines + i), expected = PatternLine(seed, i);
    bool is_same = seen.tag == expected.tag;
    for (int j = 0; j < LineProtocol::kItemWords; ++j)
      is_same &= seen.payload[j] == expected.payload[j];
    wrong += !is_same;
  }
  if (wrong != 0) atomicAdd(wrong_count, wrong);
}

}  // namespace

void LaunchStall(uint64_t duration_ns, cudaStream_t stream) {
  StallKernel<<<1, 1, 0, stream>>>(duration_ns);
}
void LaunchFill(const FillArgs& args, cudaStream_t stream) {
  FillKernel<<<GridFor(args.count), kThreads, 0, stream>>>(args);
}
void LaunchFillBest(const FillArgs& args, cudaStream_t stream) {
  FillBestKernel<<<1, args.requests, 0, stream>>>(args);
}
void LaunchVerify(const VerifyArgs& args, cudaStream_t stream) {
  VerifyKernel<<<GridFor(args.count), kThreads, 0, stream>>>(args);
}
void LaunchVerifyBest(const VerifyArgs& args, cudaStream_t stream) {
  VerifyBestKernel<<<1, args.exchange.requests, 0, stream>>>(args);
}
void LaunchCountTurn(uint32_t* turn, cudaStream_t stream) {
  CountTurnKernel<<<1, 1, 0, stream>>>(turn);
}
void LaunchAdd(const float* a, const float* b, int64_t count, float* sum, Bf16* rounded,
               cudaStream_t stream) {
  AddKernel<<<GridFor(count), kThreads, 0, stream>>>(a, b, count, sum, rounded);
}
void LaunchPatternStore(Line* lines, int64_t count, uint64_t seed, cudaStream_t stream) {
  PatternStoreKernel<<<GridFor(count), kThreads, 0, stream>>>(lines, count, seed);
}
void LaunchPatternCheck(const Line* lines, int64_t count, uint64_t seed,
                        unsigned long long* wrong_count, cudaStream_t stream) {
  PatternCheckKernel<<<GridFor(count), kThreads, 0, stream>>>(lines, count, seed, wrong_count);
}

cudaError_t PreloadHarnessKernels() {
#define TP2_HARNESS_KERNELS
#include "libcore/collectives/cuda/kernel_list.inc"
#undef TP2_HARNESS_KERNELS
  return cudaSuccess;
}

}  // namespace tp2::coll::cuda
