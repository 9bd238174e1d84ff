// Each operation of the CUDA op set: from the op's arguments to kernel launches.
#include <algorithm>

#include "libcore/base/check.h"
#include "libcore/exl3/linear.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/ops/cuda/kernels.h"

namespace tp2 {

static_assert(OpSet<CudaOps>);

cuda::LinearWorkspace CudaOps::workspace() {
  return {.quanta = quanta_.data(),
          .halves = halves_.data(),
          .row_sums = row_sums_.data(),
          .scales = scales_.data(),
          .partial_sums = partial_sums_.data(),
          .arrivals = arrivals_.data()};
}

// Two blocks of eight warps for every multiprocessor, parts of at least two 128-blocks, and int32
// sums: 127 * 1005 * 16384 < 2^31.
int CudaOps::SplitsOf(int k, int n, int job_count) const {
  constexpr int kMaxBlockInputs = 16384;
  const int blocks = n / 128 * job_count;
  const int least = (k + kMaxBlockInputs - 1) / kMaxBlockInputs;
  const bool has_space =
      int64_t{n} * job_count * cuda::kRowsPerPass <= static_cast<int64_t>(partial_sums_.size());
  if (!has_space) return least;
  const int wanted = (2 * multiprocessors_ + blocks - 1) / blocks;
  return std::max(least, std::min(blocks >= multiprocessors_ ? 1 : wanted, k / 256));
}

void CudaOps::RunProduct(const exl3::MatrixView& matrix, const float* x, int64_t x_stride, int rows,
                         float* y, int64_t y_stride) {
  cuda::LinearJobs jobs;
  jobs.single.matrix = cuda::DeviceViewOf(matrix);
  jobs.single.x_stride = x_stride;
  jobs.single.y_stride = y_stride;
  jobs.max_outputs = matrix.n;
  for (int begin = 0; begin < rows; begin += cuda::kRowsPerPass) {
    jobs.single.items = std::min(cuda::kRowsPerPass, rows - begin);
    jobs.max_items = jobs.single.items;
    jobs.single.x = x + begin * x_stride;
    jobs.single.y = y + begin * y_stride;
    cuda::LaunchPrepareRows(jobs, workspace(), stream());
    if (exl3::HasPortableBits(matrix)) {
      cuda::LaunchIntegerGemm(matrix.bits, jobs, workspace(), SplitsOf(matrix.k, matrix.n, 1),
                              stream());
    } else {
      cuda::LaunchHalfGemm(jobs, workspace(), stream());
    }
  }
}

void CudaOps::Widen(int rank, const WidenArgs& args) {
  if (args.count == 0) return;
  cuda::LaunchWiden(args.in, args.count, args.out, stream());
  CheckLaunch("Widen");
}

void CudaOps::Linear(int rank, const LinearOpArgs& args) {
  RunProduct(*args.matrix, args.x, args.x_stride, args.rows, args.y, args.matrix->n);
  CheckLaunch("Linear");
}

void CudaOps::RmsNorm(int rank, const RmsNormArgs& args) {
  if (args.rows == 0) return;
  cuda::LaunchRmsNorm(
      {args.x, cuda::DeviceViewOf(args.weight), args.eps, args.rows, args.columns, args.y},
      stream());
  CheckLaunch("RmsNorm");
}

void CudaOps::KvFinish(int rank, const KvFinishArgs<Bf16>& args) {
  if (args.rows == 0) return;
  const bool is_quantized = config_.kv_fake_quant == KvFakeQuant::kReference;
  cuda::LaunchKvFinish({.x = args.x,
                        .positions = args.positions,
                        .rope = rope_.data(),
                        .rows = args.rows,
                        .dims = config_.head_dim,
                        .rope_dims = config_.rope_dims,
                        .quantized_dims = is_quantized ? config_.fake_quant_dims() : 0,
                        .quant_group = config_.fake_quant_group(),
                        .out = args.out,
                        .out_rows = args.out_rows},
                       stream());
  CheckLaunch("KvFinish");
}

void CudaOps::QueryFinish(int rank, const QueryFinishArgs& args) {
  if (args.rows == 0) return;
  cuda::LaunchQueryFinish({.q = args.q,
                           .positions = args.positions,
                           .rope = rope_.data(),
                           .rows = args.rows,
                           .heads = args.heads,
                           .dims = config_.head_dim,
                           .rope_dims = config_.rope_dims,
                           .is_normed = config_.arch == Arch::kV4,
                           .eps = config_.norm_eps},
                          stream());
  CheckLaunch("QueryFinish");
}

void CudaOps::Embed(int rank, const EmbedArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchEmbed({args.ids, args.rows, cuda::DeviceViewOf(args.embed), args.streams, args.pre},
                    stream());
  CheckLaunch("Embed");
}

void CudaOps::Mix(int rank, const MixArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchMix({args.streams, args.weights.fn, kMixOutputs, args.rows, config_.dim,
                   config_.norm_eps, stream_dots_.data()},
                  args.weights.scale, args.weights.base, config_.hc_eps,
                  config_.sinkhorn_iterations, args.mix, stream());
  CheckLaunch("Mix");
}

void CudaOps::HeadMix(int rank, const HeadMixArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchHeadMix({args.streams, args.fn, kStreams, args.rows, config_.dim, config_.norm_eps,
                       stream_dots_.data()},
                      args.scale, args.base, config_.hc_eps, args.pre, stream());
  CheckLaunch("HeadMix");
}

void CudaOps::Collapse(int rank, const CollapseArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchCollapse({args.streams, args.weights, args.weight_stride, args.pick.take,
                        args.pick.of, args.rows, config_.dim, args.x},
                       stream());
  CheckLaunch("Collapse");
}

void CudaOps::Update(int rank, const UpdateArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchUpdate(args.streams, args.y, args.mix, args.rows, config_.dim, stream());
  CheckLaunch("Update");
}

void CudaOps::Attention(int rank, const AttentionArgs<Bf16>& args) {
  if (args.requests == 0) return;
  cuda::LaunchAttention({.q = args.q,
                         .rings = args.rings,
                         .windows = args.windows,
                         .block_kv = args.block_kv,
                         .sink = args.sink,
                         .positions = args.positions,
                         .rope = rope_.data(),
                         .requests = args.requests,
                         .heads = args.heads,
                         .dims = config_.head_dim,
                         .rope_dims = config_.rope_dims,
                         .ring_rows = config_.ring_rows(),
                         .max_window = config_.window,
                         .block_rows = kBlockRows,
                         .score_scale = score_scale_,
                         .o = args.o},
                        stream());
  CheckLaunch("Attention");
}

void CudaOps::GroupedOutput(int rank, const GroupedOutputArgs& args) {
  const int inputs = config_.group_inputs(), outputs = config_.o_lora_rank;
  if (args.rows == 0) return;
  if (args.wo_a->fp8 != nullptr) {
    cuda::LaunchGroupedOutput({.o = args.o,
                               .weights = args.wo_a->fp8,
                               .scale = args.wo_a->fp8_scale,
                               .block = args.wo_a->fp8_block,
                               .rows = args.rows,
                               .groups = args.groups,
                               .inputs = inputs,
                               .outputs = outputs,
                               .z = args.z},
                              stream());
  } else {
    for (int group = 0; group < args.groups; ++group) {
      RunProduct(args.wo_a->slices[group], args.o + int64_t{group} * inputs,
                 int64_t{args.groups} * inputs, args.rows, args.z + int64_t{group} * outputs,
                 int64_t{args.groups} * outputs);
    }
  }
  CheckLaunch("GroupedOutput");
}

void CudaOps::Router(int rank, const RouterArgs& args) {
  if (args.rows == 0) return;
  cuda::LaunchRouter({.x = args.x,
                      .gate = cuda::DeviceViewOf(args.gate),
                      .bias = args.bias,
                      .rows = args.rows,
                      .dim = config_.dim,
                      .experts = config_.experts,
                      .top_k = config_.experts_per_token,
                      .route_scale = config_.route_scale,
                      .logits = args.logits,
                      .choices = args.choices,
                      .error = error_words_.data() + rank},
                     stream());
  CheckLaunch("Router");
}

// One launch per width that the stage's experts have; a job of another width leaves at once. The
// shared expert's few jobs, the last ones, are split over K instead.
void CudaOps::RunExpertProducts(const ExpertTable& table, const cuda::LinearJobs& jobs,
                                std::span<const exl3::MatrixView* const> shared) {
  cuda::LaunchPrepareRows(jobs, workspace(), stream());
  const int shared_count = static_cast<int>(shared.size());
  cuda::LinearJobs routed = jobs;
  routed.job_count = jobs.narrow_jobs;
  routed.max_items = std::min(jobs.max_items, cuda::kRowsPerGroup);
  for (const int bits : table.bits) {
    cuda::LaunchIntegerGemm(bits, routed, workspace(), 1, stream());
  }
  cuda::LinearJobs last = jobs;
  last.list = jobs.list + routed.job_count;
  last.job_count = shared_count;
  std::set<int> shared_bits;
  for (const exl3::MatrixView* matrix : shared) {
    if (exl3::HasPortableBits(*matrix)) shared_bits.insert(matrix->bits);
  }
  for (const int bits : shared_bits) {
    cuda::LaunchIntegerGemm(bits, last, workspace(),
                            SplitsOf(shared[0]->k, shared[0]->n, shared_count), stream());
  }
  if (table.has_half) cuda::LaunchHalfGemm(jobs, workspace(), stream());
}

void CudaOps::Experts(int rank, const ExpertsArgs& args) {
  if (args.rows == 0) return;
  const ExpertTable& table = expert_tables_.at(args.stage->experts[0].w1.trellis);
  const int jobs = args.rows * config_.experts_per_token + 1;
  const cuda::RouteLaunch route = {.choices = args.choices,
                                   .rows = args.rows,
                                   .top_k = config_.experts_per_token,
                                   .experts = table.experts,
                                   .expert_count = config_.experts,
                                   .halves = static_cast<int>(args.stage->shared.w2.size()),
                                   .dim = config_.dim,
                                   .channels = args.stage->shared.w1.n,
                                   .x = args.x,
                                   .gate = gate_.data(),
                                   .up = up_.data(),
                                   .parts = parts_.data(),
                                   .item_capacity = item_capacity(),
                                   .group_capacity = group_capacity(),
                                   .job_capacity = jobs,
                                   .up_jobs = up_jobs_.data(),
                                   .down_jobs = down_jobs_.data(),
                                   .item_rows = item_rows_.data(),
                                   .item_weights = item_weights_.data(),
                                   .row_items = row_items_.data()};
  cuda::LaunchRoute(route, stream());
  cuda::LinearJobs products;
  products.list = up_jobs_.data();
  products.job_count = 2 * jobs;
  products.narrow_jobs = 2 * (jobs - 1);
  products.max_items = args.rows;
  products.max_outputs = route.channels;
  const RankExpert& shared = args.stage->shared;
  const exl3::MatrixView* up[] = {&shared.w1, &shared.w3};
  RunExpertProducts(table, products, up);
  cuda::LaunchActivation(route, config_.swiglu_limit, stream());
  products.list = down_jobs_.data();
  products.job_count = route.halves * jobs;
  products.narrow_jobs = route.halves * (jobs - 1);
  products.max_outputs = config_.dim;
  std::vector<const exl3::MatrixView*> down;
  for (const exl3::MatrixView& half : shared.w2) down.push_back(&half);
  RunExpertProducts(table, products, down);
  cuda::LaunchCombine(route, args.partials, args.half_stride, stream());
  CheckLaunch("Experts");
}

// BITS: half 0 + half 1, whoever holds them.
void CudaOps::AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
  TP2_CHECK(ranks.size() == 1 || ranks.size() == 2);
  const bool is_split = ranks.size() > 1;
  const float* half0 = ranks[0].partials;
  const float* half1 = is_split ? ranks[1].partials : half0 + ranks[0].half_stride;
  if (stands_in_) half1 = half0;
  cuda::LaunchAddHalves(half0, half1, int64_t{ranks[0].rows} * config_.dim, ranks[0].y,
                        is_split ? ranks[1].y : nullptr, stream());
  CheckLaunch("AllReduce");
}

void CudaOps::Markov(int rank, const MarkovArgs& args) {
  if (args.requests == 0) return;
  cuda::LaunchMarkov({.base = args.base,
                      .base_stride = args.base_stride,
                      .previous = args.previous,
                      .previous_stride = args.previous_stride,
                      .embed = cuda::DeviceViewOf(args.embed),
                      .head = cuda::DeviceViewOf(args.head),
                      .vocab_begin = args.vocab_begin,
                      .requests = args.requests,
                      .wants_second = args.wants_second,
                      .best = args.best,
                      .bias = args.bias,
                      .block_best = block_best_.data(),
                      .error = error_words_.data() + rank},
                     stream());
  CheckLaunch("Markov");
}

void CudaOps::Exchange(std::span<const ExchangeArgs> ranks) {
  TP2_CHECK(ranks.size() == 1 || ranks.size() == 2);
  cuda::ExchangeLaunch launch = {.sides = {},
                                 .side_count = static_cast<int>(ranks.size()),
                                 .requests = ranks[0].requests,
                                 .token_stride = ranks[0].token_stride,
                                 .result_stride = ranks[0].result_stride};
  for (size_t i = 0; i < ranks.size(); ++i) {
    launch.sides[i] = {ranks[i].best, ranks[i].token, ranks[i].runner_up, ranks[i].margin};
  }
  cuda::LaunchExchange(launch, stream());
  CheckLaunch("Exchange");
}

void CudaOps::Confidence(int rank, const ConfidenceArgs& args) {
  if (args.requests == 0 || args.n_out == 0) return;
  cuda::LaunchConfidence({.xc = args.xc,
                          .fed = args.fed,
                          .fed_stride = args.fed_stride,
                          .weight = cuda::DeviceViewOf(args.weight),
                          .embed = cuda::DeviceViewOf(args.embed),
                          .requests = args.requests,
                          .n_out = args.n_out,
                          .block_rows = kBlockRows,
                          .dim = config_.dim,
                          .logits = args.logits},
                         stream());
  CheckLaunch("Confidence");
}

}  // namespace tp2
