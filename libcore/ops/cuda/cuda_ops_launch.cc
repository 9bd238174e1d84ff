// The operations of the CUDA op set but for its products: from the op's arguments to kernel
// launches.
#include "libcore/base/check.h"
#include "libcore/ops/composed_ops.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/ops/cuda/kernels.h"

namespace tp2 {

static_assert(OpSet<CudaOps>);

void CudaOps::Widen(int rank, const WidenArgs& args) {
  if (args.count == 0) return;
  cuda::LaunchWiden(args.in, args.count, args.out, queue());
  CheckLaunch("Widen");
}

void CudaOps::RmsNorm(int rank, const RmsNormArgs& args) {
  if (args.rows == 0) return;
  cuda::LaunchRmsNorm(
      {args.x, cuda::DeviceViewOf(args.weight), args.eps, args.rows, args.columns, args.y},
      queue());
  CheckLaunch("RmsNorm");
}

cuda::KvFinishLaunch CudaOps::KvLaunchOf(const KvFinishArgs<Bf16>& args) const {
  const bool is_quantized = config_.kv_fake_quant == KvFakeQuant::kReference;
  return {.x = args.x,
          .norm = {},
          .eps = 0,
          .positions = args.positions,
          .rope = rope_.data(),
          .rows = args.rows,
          .dims = config_.head_dim,
          .rope_dims = config_.rope_dims,
          .quantized_dims = is_quantized ? config_.fake_quant_dims() : 0,
          .quant_group = config_.fake_quant_group(),
          .out = args.out,
          .out_rows = args.out_rows};
}

void CudaOps::KvFinish(int rank, const KvFinishArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchKvFinish(KvLaunchOf(args), queue());
  CheckLaunch("KvFinish");
}

void CudaOps::Latents(int rank, const LatentArgs<Bf16>& args) {
  const LinearOpArgs& product = args.wq_b;
  if (product.rows == 0) return;
  if (product.rows > cuda::kRowsPerPass) return LatentsByParts(*this, rank, args);
  cuda::KvFinishLaunch kv = KvLaunchOf(args.kv_finish);
  kv.x = args.kv_norm.x;
  kv.norm = cuda::DeviceViewOf(args.kv_norm.weight);
  kv.eps = args.kv_norm.eps;
  cuda::LinearJobs jobs;
  jobs.max_items = product.rows;
  jobs.max_outputs = product.matrix->n;
  jobs.few[0].matrix = cuda::DeviceViewOf(*product.matrix);
  jobs.few[0].x = product.x;
  jobs.few[0].x_stride = product.x_stride;
  jobs.few[0].y = product.y;
  jobs.few[0].y_stride = product.matrix->n;
  jobs.few[0].items = product.rows;
  const RmsNormArgs& norm = args.query_norm;
  cuda::LaunchLatents(
      {norm.x, cuda::DeviceViewOf(norm.weight), norm.eps, norm.rows, norm.columns, norm.y}, jobs,
      main_.view(), kv, queue());
  Multiply(jobs, {&product.matrix, 1}, main_.view(), queue());
  CheckLaunch("Latents");
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
                          queue());
  CheckLaunch("QueryFinish");
}

void CudaOps::Embed(int rank, const EmbedArgs<Bf16>& args) {
  if (args.rows == 0) return;
  cuda::LaunchEmbed({args.ids, args.rows, cuda::DeviceViewOf(args.embed), args.streams, args.pre},
                    queue());
  CheckLaunch("Embed");
}

void CudaOps::EnqueueMix(const MixArgs<Bf16>& args, const cuda::Queue& queue) {
  cuda::LaunchMix({args.streams, args.weights.fn, kMixOutputs, args.rows, config_.dim,
                   config_.norm_eps, stream_dots_.data()},
                  args.weights.scale, args.weights.base, config_.hc_eps,
                  config_.sinkhorn_iterations, args.mix, queue);
  CheckLaunch("Mix");
}

void CudaOps::Mix(int rank, const MixArgs<Bf16>& args) {
  if (args.rows == 0) return;
  Settle();
  EnqueueMix(args, queue());
}

// v41 collapses with a mix that it has: the new one is computed beside the attention or the
// experts.
void CudaOps::Enter(int rank, const EnterArgs<Bf16>& args) {
  if (args.rows == 0) return;
  if (config_.arch != Arch::kV41 && args.mix != nullptr) {
    return EnterByParts(*this, rank, config_.norm_eps, config_.dim, args);
  }
  Settle();
  cuda::LaunchEnter({.streams = args.streams,
                     .half0 = args.partials,
                     .half1 = args.partials + args.half_stride,
                     .y = args.y,
                     .update = args.update,
                     .pre = args.pre,
                     .pre_stride = args.pre_stride,
                     .take = args.pick.take,
                     .of = args.pick.of,
                     .rows = args.rows,
                     .dim = config_.dim,
                     .norm = cuda::DeviceViewOf(args.norm),
                     .eps = config_.norm_eps,
                     .collapsed = args.collapsed,
                     .x = args.x},
                    queue());
  CheckLaunch("Enter");
  if (args.mix != nullptr) mix_due_ = {args.streams, args.mix_weights, args.rows, args.mix};
}

void CudaOps::HeadMix(int rank, const HeadMixArgs<Bf16>& args) {
  if (args.rows == 0) return;
  Settle();
  cuda::LaunchHeadMix({args.streams, args.fn, kStreams, args.rows, config_.dim, config_.norm_eps,
                       stream_dots_.data()},
                      args.scale, args.base, config_.hc_eps, args.pre, queue());
  CheckLaunch("HeadMix");
}

void CudaOps::Collapse(int rank, const CollapseArgs<Bf16>& args) {
  if (args.rows == 0) return;
  Settle();
  cuda::LaunchCollapse({args.streams, args.weights, args.weight_stride, args.pick.take,
                        args.pick.of, args.rows, config_.dim, args.x},
                       queue());
  CheckLaunch("Collapse");
}

void CudaOps::Update(int rank, const UpdateArgs<Bf16>& args) {
  if (args.rows == 0) return;
  Settle();
  cuda::LaunchUpdate(args.streams, args.y, args.mix, args.rows, config_.dim, queue());
  CheckLaunch("Update");
}

cuda::AttentionLaunch CudaOps::AttentionOf(const AttentionArgs<Bf16>& args) const {
  return {.q = args.q,
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
          .multiprocessors = multiprocessors_,
          .score_scale = score_scale_,
          .o = args.o};
}

void CudaOps::Attention(int rank, const AttentionArgs<Bf16>& args) {
  if (args.requests == 0) return;
  cuda::LaunchAttention(AttentionOf(args), queue());
  CheckLaunch("Attention");
}

// v4 norms whole queries first.
void CudaOps::Attend(int rank, const AttendArgs<Bf16>& args) {
  if (config_.arch == Arch::kV4) return AttendByParts(*this, rank, args);
  if (args.attention.requests == 0) return;
  cuda::AttentionLaunch launch = AttentionOf(args.attention);
  launch.unrotated = args.queries.q;
  if (mix_due_.has_value()) Fork(&mix_branch_);
  cuda::LaunchAttention(launch, PlainQueue());
  CheckLaunch("Attend");
  MixOn(mix_branch_);
}

void CudaOps::GroupedOutput(int rank, const GroupedOutputArgs& args) {
  const int inputs = config_.group_inputs(), outputs = config_.o_lora_rank;
  if (args.rows == 0) return;
  Join();
  if (args.wo_a->fp8 != nullptr) {
    cuda::LaunchGroupedOutput({.o = args.o,
                               .weights = args.wo_a->fp8,
                               .scale = args.wo_a->fp8_scale,
                               .block = args.wo_a->fp8_block,
                               .rows = args.rows,
                               .groups = args.groups,
                               .inputs = inputs,
                               .outputs = outputs,
                               .multiprocessors = multiprocessors_,
                               .z = args.z},
                              PlainQueue());
  } else {
    std::vector<Product> slices;
    for (int group = 0; group < args.groups; ++group) {
      slices.push_back(
          {{&args.wo_a->slices[group], args.o + int64_t{group} * inputs,
            int64_t{args.groups} * inputs, args.rows, args.z + int64_t{group} * outputs},
           int64_t{args.groups} * outputs});
    }
    RunProducts(slices);
  }
  CheckLaunch("GroupedOutput");
}

void CudaOps::Router(int rank, const RouterArgs& args) {
  if (args.rows == 0) return;
  routed_ = args.stage;
  cuda::RouteLaunch route = {};
  if (args.stage != nullptr) {
    Fork(&shared_branch_);  // the shared expert of Experts needs no choices
    route = RouteOf({.x = args.x, .choices = args.choices, .stage = args.stage, .rows = args.rows});
  }
  // One request's finds room beside the router; that of more would be in the way of what follows.
  const bool mixes = mix_due_.has_value() && args.rows <= kBlockRows;
  if (mixes) Fork(&mix_branch_);
  cuda::LaunchRouter({.x = args.x,
                      .gate = cuda::DeviceViewOf(args.gate),
                      .bias = args.bias,
                      .rows = args.rows,
                      .dim = config_.dim,
                      .experts = config_.experts,
                      .top_k = config_.experts_per_token,
                      .route_scale = config_.route_scale,
                      .multiprocessors = multiprocessors_,
                      .logits = args.logits,
                      .choices = args.choices,
                      .arrivals = router_arrivals_.data(),
                      .error = error_words_.data() + rank,
                      .route = route},
                     queue());
  CheckLaunch("Router");
  if (mixes) MixOn(mix_branch_);
}

// BITS: half 0 + half 1, whoever holds them.
void CudaOps::AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
  TP2_CHECK(ranks.size() == 1 || ranks.size() == 2);
  const bool is_split = ranks.size() > 1;
  const float* half0 = ranks[0].partials;
  const float* half1 = is_split ? ranks[1].partials : half0 + ranks[0].half_stride;
  if (stands_in_) half1 = half0;
  cuda::LaunchAddHalves(half0, half1, int64_t{ranks[0].rows} * config_.dim, ranks[0].y,
                        is_split ? ranks[1].y : nullptr, queue());
  CheckLaunch("AllReduce");
}

namespace {

cuda::ChoiceTarget ChoiceTargetOf(const ExchangeArgs& args) {
  return {args.token, args.runner_up, args.margin, args.token_stride, args.result_stride};
}

}  // namespace

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
                      .is_reversed = std::exchange(is_reversed_, !is_reversed_),
                      .multiprocessors = multiprocessors_,
                      .best = args.best,
                      .bias = args.bias,
                      .block_best = block_best_.data(),
                      .arrivals = markov_arrivals_.data(),
                      .error = error_words_.data() + rank,
                      .choice = ChoiceTargetOf(args.choice)},
                     queue());
  CheckLaunch("Markov");
}

void CudaOps::Exchange(std::span<const ExchangeArgs> ranks) {
  TP2_CHECK(ranks.size() == 1 || ranks.size() == 2);
  cuda::ExchangeLaunch launch = {.best = {},
                                 .targets = {},
                                 .side_count = static_cast<int>(ranks.size()),
                                 .requests = ranks[0].requests};
  for (size_t i = 0; i < ranks.size(); ++i) {
    launch.best[i] = ranks[i].best;
    launch.targets[i] = ChoiceTargetOf(ranks[i]);
  }
  cuda::LaunchExchange(launch, queue());
  CheckLaunch("Exchange");
}

// Beside the choice of the last token.
void CudaOps::Confidence(int rank, const ConfidenceArgs& args) {
  if (args.requests == 0 || args.n_out == 0) return;
  Fork(&shared_branch_);
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
                         QueueOf(shared_branch_));
  CheckLaunch("Confidence");
}

}  // namespace tp2
