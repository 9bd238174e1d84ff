// Launchers of every kernel: enqueue on the queue, nothing else. Shapes and formulas are those of
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

// Where kernels go. `overlaps`: they may start while their predecessor still runs (launch.cuh);
// sm_90 and later.
struct Queue {
  cudaStream_t stream = nullptr;
  bool overlaps = false;
};

// linear.cu, integer_gemm_*.cu. Prepares the rows of every job (sign, scale, transform,
// quantization), then multiplies. `splits` parts of K meet in partial_sums; 1 needs none. The jobs
// of a split launch have one number of outputs. A list has its own launchers, which split as its
// length wants.
void LaunchPrepareRows(const LinearJobs& jobs, const LinearWorkspace& work, const Queue& queue);
void LaunchIntegerGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                       const Queue& queue);
void LaunchIntegerGemm12(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue);
void LaunchIntegerGemm34(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue);
void LaunchIntegerGemm56(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue);
void LaunchIntegerGemm78(int bits, const LinearJobs& jobs, const LinearWorkspace& work, int splits,
                         const Queue& queue);
void LaunchListGemm(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                    int multiprocessors, const Queue& queue);
void LaunchListGemm12(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue);
void LaunchListGemm34(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue);
void LaunchListGemm56(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue);
void LaunchListGemm78(int bits, const LinearJobs& jobs, const LinearWorkspace& work,
                      int multiprocessors, const Queue& queue);
// 3INST and mcg: fp32 sums in ascending k; jobs of other codebooks are skipped.
void LaunchHalfGemm(const LinearJobs& jobs, const LinearWorkspace& work, const Queue& queue);

// repack.cu. out: [k * n * bits / 16] units in the order of trellis.cuh, another array than the
// matrix's. Load time only.
void LaunchRepack(const DeviceMatrix& matrix, uint16_t* out, const Queue& queue);

// rows.cu, latents.cu
struct RmsNormLaunch {
  const float* x;
  DeviceHalf16 weight;
  float eps;
  int rows, columns;
  float* y;
};

// latents.cu
struct KvFinishLaunch {
  const float* x;
  DeviceHalf16 norm;  // null bits: x is normed already
  float eps;
  const int64_t* positions;
  const CosSin* rope;  // [position][rope_dims / 2]
  int rows, dims, rope_dims;
  int quantized_dims, quant_group;
  Bf16* out;
  const int32_t* out_rows;
};
void LaunchKvFinish(const KvFinishLaunch& args, const Queue& queue);
// Norm of one latent into `query.y`, ready for the product jobs.few[0] of it, beside norm and
// finish of the other.
void LaunchLatents(const RmsNormLaunch& query, const LinearJobs& jobs, const LinearWorkspace& work,
                   const KvFinishLaunch& kv, const Queue& queue);

// rows.cu
void LaunchWiden(const Bf16* in, int64_t count, float* out, const Queue& queue);
void LaunchRmsNorm(const RmsNormLaunch& args, const Queue& queue);
struct QueryFinishLaunch {
  float* q;
  const int64_t* positions;
  const CosSin* rope;
  int rows, heads, dims, rope_dims;
  bool is_normed;
  float eps;
};
void LaunchQueryFinish(const QueryFinishLaunch& args, const Queue& queue);
struct EmbedLaunch {
  const int32_t* ids;
  int rows;
  DeviceHalf16 embed;
  Bf16* streams;
  float* pre;
};
void LaunchEmbed(const EmbedLaunch& args, const Queue& queue);
struct CollapseLaunch {
  const Bf16* streams;
  const float* weights;
  int64_t weight_stride;
  int take, of;
  int rows, dim;
  float* x;
};
void LaunchCollapse(const CollapseLaunch& args, const Queue& queue);
// EnterArgs without Mix, which must not lie between Update and Collapse; dim at most 16384.
struct EnterLaunch {
  Bf16* streams;
  const float* half0;  // null, or y is bf16(half0 + half1) first
  const float* half1;
  Bf16* y;  // null: no update
  const MixCoefficients* update;
  const float* pre;
  int64_t pre_stride;
  int take, of;
  int rows, dim;
  DeviceHalf16 norm;
  float eps;
  float* collapsed;  // may be null
  float* x;          // null: neither collapse nor norm
};
void LaunchEnter(const EnterLaunch& args, const Queue& queue);
void LaunchUpdate(Bf16* streams, const Bf16* y, const MixCoefficients* mix, int rows, int dim,
                  const Queue& queue);
// y0 and y1 (which may be null) = bf16(half0 + half1).
void LaunchAddHalves(const float* half0, const float* half1, int64_t count, Bf16* y0, Bf16* y1,
                     const Queue& queue);

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
               int sinkhorn_iterations, MixCoefficients* mix, const Queue& queue);
void LaunchHeadMix(const StreamDotsLaunch& dots, const float* scale, const float* base,
                   float hc_eps, float* pre, const Queue& queue);

// attention.cu. heads is a multiple of kAttentionHeads, dims at most kMaxAttentionDims, a window
// and its block rows at most kMaxAttentionKeys, which a config's are.
inline constexpr int kAttentionHeads = 2;
inline constexpr int kMaxAttentionKeys = 4104;
inline constexpr int kMaxAttentionDims = 512;
struct AttentionLaunch {
  const float* q;
  float* unrotated = nullptr;  // q again, when it is still to be rotated, in place
  const Bf16* rings;
  const WindowRows* windows;
  const Bf16* block_kv;
  const float* sink;
  const int64_t* positions;
  const CosSin* rope;
  int requests, heads, dims, rope_dims, ring_rows, max_window, block_rows, multiprocessors;
  float score_scale;
  float* o;
};
void LaunchAttention(const AttentionLaunch& args, const Queue& queue);

// grouped_output.cu
struct GroupedOutputLaunch {
  const float* o;  // [rows, groups, inputs]
  const Fp8E4m3* weights;
  const float* scale;
  int block;
  int rows, groups, inputs, outputs;
  int multiprocessors;  // of the card
  float* z;
};
void LaunchGroupedOutput(const GroupedOutputLaunch& args, const Queue& queue);

// route.cuh. Items: one per (row, chosen expert), sorted by expert then row, then one per row for
// the shared expert, whose products are the caller's. Jobs: at most kRowsPerJob rows of one
// expert, in ascending id.
struct RouteLaunch {
  const GateChoice* choices;
  int rows, top_k;
  const DeviceExpert* experts;
  int halves;
  int dim, channels;
  const float* x;
  float *gate, *up;  // [items, channels]
  float* parts;      // [halves][item_capacity, dim]
  int item_capacity, group_capacity;
  LinearJob* up_jobs;    // [group_capacity][2]: w1, w3
  LinearJob* down_jobs;  // [group_capacity][halves]
  int *up_count, *down_count;
  int32_t* item_rows;   // [item_capacity]
  float* item_weights;  // [item_capacity]
  int32_t* row_items;   // [rows, top_k] items of a row in ascending expert
};
inline constexpr int kMaxRouteEntries = 160;  // rows * top_k

// matvec.cu. With a route it does the work of LaunchRoute too.
struct RouterLaunch {
  const float* x;
  DeviceHalf16 gate;
  const float* bias;
  int rows, dim, experts, top_k;
  float route_scale;
  int multiprocessors;  // of the card
  float* logits;
  GateChoice* choices;
  unsigned int* arrivals;  // [rows] at least; zero between launches
  int* error;
  RouteLaunch route = {};  // no rows: none
};
void LaunchRouter(const RouterLaunch& args, const Queue& queue);
struct ConfidenceLaunch {
  const float* xc;
  const int32_t* fed;
  int64_t fed_stride;
  DeviceHalf16 weight, embed;
  int requests, n_out, block_rows, dim;
  float* logits;
};
void LaunchConfidence(const ConfidenceLaunch& args, const Queue& queue);

// head.cu. block_best: [kMarkovBlocks][requests].
inline constexpr int kMarkovBlocks = 528;
inline constexpr int kMaxMarkovRequests = 4;
// Where a rank's chosen tokens go.
struct ChoiceTarget {
  int32_t* token;
  int32_t* runner_up;  // null with margin
  float* margin;
  int64_t token_stride, result_stride;
};
struct MarkovLaunch {
  const float* base;
  int64_t base_stride;
  const int32_t* previous;
  int64_t previous_stride;
  DeviceHalf16 embed, head;
  int vocab_begin;
  int requests;
  bool wants_second;
  bool is_reversed;     // from the last row to the first
  int multiprocessors;  // of the card
  TopTwo* best;
  float* bias;
  TopTwo* block_best;
  unsigned int* arrivals;  // zero between launches
  int* error;
  ChoiceTarget choice;  // no token: only `best` is wanted
};
void LaunchMarkov(const MarkovLaunch& args, const Queue& queue);
struct ExchangeLaunch {
  const TopTwo* best[2];
  ChoiceTarget targets[2];
  int side_count;
  int requests;
};
void LaunchExchange(const ExchangeLaunch& args, const Queue& queue);

// experts.cu
void LaunchRoute(const RouteLaunch& args, const Queue& queue);
void LaunchCombine(const RouteLaunch& args, float* partials, int64_t half_stride,
                   const Queue& queue);

// Loads every kernel of kernel_list.inc on the current device.
cudaError_t PreloadKernels();
cudaError_t PreloadLinear();
cudaError_t PreloadLatents();
cudaError_t PreloadRows();
cudaError_t PreloadMix();
cudaError_t PreloadAttention();
cudaError_t PreloadGroupedOutput();
cudaError_t PreloadMatVec();
cudaError_t PreloadHead();
cudaError_t PreloadExperts();
cudaError_t PreloadRepack();
cudaError_t PreloadIntegerGemm12();
cudaError_t PreloadIntegerGemm34();
cudaError_t PreloadIntegerGemm56();
cudaError_t PreloadIntegerGemm78();

}  // namespace tp2::cuda
