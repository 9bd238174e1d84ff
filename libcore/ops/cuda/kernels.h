// Launchers of every kernel: enqueue on `stream`, nothing else. Shapes and formulas are those of
// ops/op_args.h; the bits are those of the CPU op set. Errors are found by cudaPeekAtLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "libcore/math/argmax.h"
#include "libcore/math/bf16.h"
#include "libcore/math/gate.h"
#include "libcore/math/mixing.h"
#include "libcore/math/rope.h"
#include "libcore/ops/cuda/device_types.h"
#include "libcore/ops/window_rows.h"

namespace tp2::cuda {

// linear.cu, integer_gemm_*.cu. Prepares the rows of every job (sign, scale, transform,
// quantization), then multiplies. `splits` parts of K meet in partial_sums; 1 needs none. The jobs
// of a split launch have one number of outputs.
void LaunchPrepareRows(const LinearJobs& jobs, const LinearWorkspace& work, cudaStream_t stream);
void LaunchIntegerGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                       cudaStream_t stream);
void LaunchIntegerGemm12(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         cudaStream_t stream);
void LaunchIntegerGemm34(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         cudaStream_t stream);
void LaunchIntegerGemm56(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         cudaStream_t stream);
void LaunchIntegerGemm78(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         cudaStream_t stream);
// 3INST and mcg: fp32 sums in ascending k; jobs of other codebooks are skipped.
void LaunchHalfGemm(const LinearJobs& jobs, const LinearWorkspace& work, cudaStream_t stream);

// repack.cu. out: [k * n * bits / 16] units in the order of trellis.cuh, another array than the
// matrix's. Load time only.
void LaunchRepack(const DeviceMatrix& matrix, uint16_t* out, cudaStream_t stream);

// rows.cu
void LaunchWiden(const Bf16* in, int64_t count, float* out, cudaStream_t stream);
struct RmsNormLaunch {
  const float* x;
  DeviceHalf16 weight;
  float eps;
  int rows, columns;
  float* y;
};
void LaunchRmsNorm(const RmsNormLaunch& args, cudaStream_t stream);
struct KvFinishLaunch {
  const float* x;
  const int64_t* positions;
  const CosSin* rope;  // [position][rope_dims / 2]
  int rows, dims, rope_dims;
  int quantized_dims, quant_group;
  Bf16* out;
  const int32_t* out_rows;
};
void LaunchKvFinish(const KvFinishLaunch& args, cudaStream_t stream);
struct QueryFinishLaunch {
  float* q;
  const int64_t* positions;
  const CosSin* rope;
  int rows, heads, dims, rope_dims;
  bool is_normed;
  float eps;
};
void LaunchQueryFinish(const QueryFinishLaunch& args, cudaStream_t stream);
struct EmbedLaunch {
  const int32_t* ids;
  int rows;
  DeviceHalf16 embed;
  Bf16* streams;
  float* pre;
};
void LaunchEmbed(const EmbedLaunch& args, cudaStream_t stream);
struct CollapseLaunch {
  const Bf16* streams;
  const float* weights;
  int64_t weight_stride;
  int take, of;
  int rows, dim;
  float* x;
};
void LaunchCollapse(const CollapseLaunch& args, cudaStream_t stream);
void LaunchUpdate(Bf16* streams, const Bf16* y, const MixCoefficients* mix, int rows, int dim,
                  cudaStream_t stream);
// y0 and y1 (which may be null) = bf16(half0 + half1).
void LaunchAddHalves(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1,
                     cudaStream_t stream);

// mix.cu. partials: [rows][kMixOutputs + 1][segments], segments = ceil(4 dim / 1024).
struct StreamDotsLaunch {
  const Bf16* streams;
  const float* fn;
  int outputs;
  int rows, dim;
  float norm_eps;
  float* partials;
};
void LaunchMix(const StreamDotsLaunch& dots, const float* scale, const float* base, float hc_eps,
               int sinkhorn_iterations, MixCoefficients* mix, cudaStream_t stream);
void LaunchHeadMix(const StreamDotsLaunch& dots, const float* scale, const float* base,
                   float hc_eps, float* pre, cudaStream_t stream);

// attention.cu. heads is a multiple of kAttentionHeads, dims at most kMaxAttentionDims.
inline constexpr int kAttentionHeads = 2;
inline constexpr int kMaxAttentionDims = 512;
struct AttentionLaunch {
  const float* q;
  const Bf16* rings;
  const WindowRows* windows;
  const Bf16* block_kv;
  const float* sink;
  const int64_t* positions;
  const CosSin* rope;
  int requests, heads, dims, rope_dims, ring_rows, max_window, block_rows;
  float score_scale;
  float* o;
};
void LaunchAttention(const AttentionLaunch& args, cudaStream_t stream);

// matvec.cu
struct GroupedOutputLaunch {
  const float* o;  // [rows, groups, inputs]
  const Fp8E4m3* weights;
  const float* scale;
  int block;
  int rows, groups, inputs, outputs;
  float* z;
};
void LaunchGroupedOutput(const GroupedOutputLaunch& args, cudaStream_t stream);
struct RouterLaunch {
  const float* x;
  DeviceHalf16 gate;
  const float* bias;
  int rows, dim, experts, top_k;
  float route_scale;
  float* logits;
  GateChoice* choices;
  int* error;
};
void LaunchRouter(const RouterLaunch& args, cudaStream_t stream);
struct ConfidenceLaunch {
  const float* xc;
  const int32_t* fed;
  int64_t fed_stride;
  DeviceHalf16 weight, embed;
  int requests, n_out, block_rows, dim;
  float* logits;
};
void LaunchConfidence(const ConfidenceLaunch& args, cudaStream_t stream);

// head.cu. block_best: [kMarkovBlocks][requests].
inline constexpr int kMarkovBlocks = 528;
struct MarkovLaunch {
  const float* base;
  int64_t base_stride;
  const int32_t* previous;
  int64_t previous_stride;
  DeviceHalf16 embed, head;
  int vocab_begin;
  int requests;
  bool wants_second;
  TopTwo* best;
  float* bias;
  TopTwo* block_best;
  int* error;
};
void LaunchMarkov(const MarkovLaunch& args, cudaStream_t stream);
struct ExchangeSide {
  const TopTwo* best;
  int32_t* token;
  int32_t* runner_up;  // null with margin
  float* margin;
};
struct ExchangeLaunch {
  ExchangeSide sides[2];
  int side_count;
  int requests;
  int64_t token_stride, result_stride;
};
void LaunchExchange(const ExchangeLaunch& args, cudaStream_t stream);

// experts.cu. Items: one per (row, chosen expert), sorted by expert then row, then one per row for
// the shared expert. Jobs: one per distinct expert in ascending id, the shared one last.
struct RouteLaunch {
  const GateChoice* choices;
  int rows, top_k;
  const DeviceExpert* experts;  // [expert_count + 1], the shared one last
  int expert_count;
  int halves;
  int dim, channels;
  const float* x;
  float *gate, *up;  // [items, channels]
  float* parts;      // [halves][item_capacity, dim]
  int item_capacity, group_capacity, job_capacity;
  LinearJob* up_jobs;    // [job_capacity][2]: w1, w3
  LinearJob* down_jobs;  // [job_capacity][halves]
  int32_t* item_rows;    // [item_capacity]
  float* item_weights;   // [item_capacity]
  int32_t* row_items;    // [rows, top_k] items of a row in ascending expert
};
void LaunchRoute(const RouteLaunch& args, cudaStream_t stream);
void LaunchActivation(const RouteLaunch& args, float limit, cudaStream_t stream);
void LaunchCombine(const RouteLaunch& args, float* partials, int64_t half_stride,
                   cudaStream_t stream);

// Loads every kernel of kernel_list.inc on the current device.
cudaError_t PreloadKernels();
cudaError_t PreloadLinear();
cudaError_t PreloadRows();
cudaError_t PreloadMix();
cudaError_t PreloadAttention();
cudaError_t PreloadMatVec();
cudaError_t PreloadHead();
cudaError_t PreloadExperts();
cudaError_t PreloadRepack();
cudaError_t PreloadIntegerGemm12();
cudaError_t PreloadIntegerGemm34();
cudaError_t PreloadIntegerGemm56();
cudaError_t PreloadIntegerGemm78();

}  // namespace tp2::cuda
