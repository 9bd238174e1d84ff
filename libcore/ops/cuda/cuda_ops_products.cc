// The EXL3 products of the CUDA op set: which launches they take, alone, together, by expert.
#include <algorithm>

#include "libcore/exl3/linear.h"
#include "libcore/ops/cuda/cuda_ops.h"
#include "libcore/ops/cuda/kernels.h"
#include "libcore/tuning/launch_limits.h"

namespace tp2 {

static_assert(cuda::kRowsPerGroup == tuning::kRowsPerBucket);
static_assert(cuda::kRowsPerPass == tuning::kMaxPassRows);

// What the table says for the launch of one width, else the safe default for all blocks.
int CudaOps::SplitsOf(const tuning::ProductKey& key, int block_count) const {
  const std::optional<int> chosen =
      kernels_ != nullptr ? kernels_->Splits(key) : std::optional<int>();
  return chosen.value_or(tuning::SafeSplits(key.k, block_count, multiprocessors_));
}

// Products of jobs that have one k. `matrices`: theirs, for what the launches are to hold.
void CudaOps::Multiply(const cuda::LinearJobs& jobs,
                       std::span<const exl3::MatrixView* const> matrices,
                       const cuda::LinearWorkspace& work, const cuda::Queue& queue) {
  std::map<int, int> blocks_of;  // by width
  int block_count = 0;
  bool has_half = false;
  for (const exl3::MatrixView* matrix : matrices) {
    block_count += matrix->n / tuning::kBlockOutputs;
    if (exl3::HasPortableBits(*matrix)) {
      blocks_of[matrix->bits] += matrix->n / tuning::kBlockOutputs;
    } else {
      has_half = true;
    }
  }
  const int k = matrices[0]->k;
  const bool has_room = tuning::HasRoomForSums(jobs.job_count, jobs.max_outputs);
  for (const auto& [bits, blocks] : blocks_of) {
    const int splits =
        has_room ? SplitsOf({bits, k, blocks, tuning::RowBucketOf(jobs.max_items)}, block_count)
                 : tuning::LeastSplits(k);
    cuda::LaunchIntegerGemm(bits, jobs, work, splits, queue);
  }
  if (has_half) cuda::LaunchHalfGemm(jobs, work, queue);
}

// The first jobs.job_count of jobs.few, prepared and multiplied: in one launch, or one by one.
void CudaOps::RunFew(const cuda::LinearJobs& jobs,
                     std::span<const exl3::MatrixView* const> matrices,
                     const cuda::LinearWorkspace& work, bool is_beside) {
  const int at_once = joins_products_ ? jobs.job_count : 1;
  cuda::LinearJobs part = jobs;
  part.job_count = at_once;
  for (int begin = 0; begin < jobs.job_count; begin += at_once) {
    if (at_once == 1) {
      part.few[0] = jobs.few[begin];
      part.max_outputs = matrices[begin]->n;
    }
    const auto next_queue = [&] { return is_beside ? QueueOf(shared_branch_) : queue(); };
    cuda::LaunchPrepareRows(part, work, next_queue());
    Multiply(part, matrices.subspan(begin, at_once), work, next_queue());
  }
}

void CudaOps::RunTogether(std::span<const Product> products) {
  cuda::LinearJobs jobs;
  jobs.job_count = static_cast<int>(products.size());
  std::vector<const exl3::MatrixView*> matrices;
  for (const Product& product : products) {
    matrices.push_back(product.args.matrix);
    jobs.max_outputs = std::max(jobs.max_outputs, product.args.matrix->n);
  }
  const int rows = products[0].args.rows;
  for (int begin = 0; begin < rows; begin += cuda::kRowsPerPass) {
    const int items = std::min(cuda::kRowsPerPass, rows - begin);
    jobs.max_items = items;
    for (size_t i = 0; i < products.size(); ++i) {
      const auto& [args, y_stride] = products[i];
      cuda::LinearJob& job = jobs.few[i];
      job.matrix = cuda::DeviceViewOf(*args.matrix);
      job.x = args.x + begin * args.x_stride;
      job.x_stride = args.x_stride;
      job.y = args.y + begin * y_stride;
      job.y_stride = y_stride;
      job.items = items;
      job.first_item = static_cast<int>(i) * cuda::kRowsPerPass;
      job.first_group = static_cast<int>(i) * cuda::GroupsOf(cuda::kRowsPerPass);
    }
    RunFew(jobs, matrices, main_.view(), false);
  }
}

void CudaOps::RunProducts(std::span<const Product> products) {
  while (!products.empty()) {
    const LinearOpArgs& first = products[0].args;
    size_t count = 1;
    while (count < products.size() && count < cuda::kFewJobs &&
           products[count].args.rows == first.rows &&
           products[count].args.matrix->k == first.matrix->k) {
      ++count;
    }
    RunTogether(products.first(count));
    products = products.subspan(count);
  }
}

void CudaOps::Linear(int rank, std::span<const LinearOpArgs> products) {
  std::vector<Product> all;
  for (const LinearOpArgs& args : products) all.push_back({args, args.matrix->n});
  RunProducts(all);
  CheckLaunch("Linear");
}

// The routed experts' products: one launch per width that the stage's experts have; a job of
// another width leaves at once.
void CudaOps::RunRouted(const ExpertTable& table, const cuda::LinearJobs& jobs) {
  cuda::LaunchPrepareRows(jobs, main_.view(), queue());
  for (const int bits : table.bits) {
    cuda::LaunchListGemm(bits, jobs, main_.view(), multiprocessors_, queue());
  }
  if (table.has_half) cuda::LaunchHalfGemm(jobs, main_.view(), queue());
}

// The shared expert beside the routed ones. Its few jobs are split over K instead.
void CudaOps::RunShared(const cuda::RouteLaunch& route, const ExpertsArgs& args) {
  const RankExpert& shared = args.stage->shared;
  const int entries = args.rows * route.top_k;
  const int64_t offset = int64_t{entries} * route.channels;
  cuda::LinearJobs jobs;
  jobs.max_items = args.rows;
  jobs.swiglu_limit = config_.swiglu_limit;
  for (int i = 0; i < cuda::kFewJobs; ++i) {
    jobs.few[i].items = args.rows;
    jobs.few[i].first_item = i * cuda::kRowsPerPass;
    jobs.few[i].first_group = i * cuda::GroupsOf(cuda::kRowsPerPass);
  }
  const exl3::MatrixView* const up[] = {&shared.w1, &shared.w3};
  jobs.job_count = 2;
  jobs.max_outputs = route.channels;
  for (int i = 0; i < jobs.job_count; ++i) {
    jobs.few[i].matrix = cuda::DeviceViewOf(*up[i]);
    jobs.few[i].x = args.x;
    jobs.few[i].x_stride = config_.dim;
    jobs.few[i].y = (i == 0 ? route.gate : route.up) + offset;
    jobs.few[i].y_stride = route.channels;
  }
  RunFew(jobs, up, side_.view(), true);
  std::vector<const exl3::MatrixView*> down;
  jobs.job_count = route.halves;
  jobs.is_gated = true;
  jobs.max_outputs = config_.dim;
  int64_t begin = offset;
  for (int i = 0; i < jobs.job_count; ++i) {
    const exl3::MatrixView& half = shared.w2[i];
    down.push_back(&half);
    jobs.few[i].matrix = cuda::DeviceViewOf(half);
    jobs.few[i].x = route.gate + begin;
    jobs.few[i].up = route.up + begin;
    jobs.few[i].weights = ones_.data();
    jobs.few[i].x_stride = route.channels;
    jobs.few[i].y = route.parts + (int64_t{i} * route.item_capacity + entries) * config_.dim;
    jobs.few[i].y_stride = config_.dim;
    begin += half.k;
  }
  RunFew(jobs, down, side_.view(), true);
}

const CudaOps::ExpertTable& CudaOps::TableOf(const RankStage& stage) const {
  return expert_tables_.at(stage.experts[0].w1.trellis);
}

static_assert(kMaxRequests * kBlockRows * kMaxExpertsPerToken <= cuda::kMaxRouteEntries);

cuda::RouteLaunch CudaOps::RouteOf(const ExpertsArgs& args) {
  return {.choices = args.choices,
          .rows = args.rows,
          .top_k = config_.experts_per_token,
          .experts = TableOf(*args.stage).experts,
          .halves = static_cast<int>(args.stage->shared.w2.size()),
          .dim = config_.dim,
          .channels = args.stage->shared.w1.n,
          .x = args.x,
          .gate = gate_.data(),
          .up = up_.data(),
          .parts = parts_.data(),
          .item_capacity = item_capacity(),
          .group_capacity = group_capacity(),
          .up_jobs = up_jobs_.data(),
          .down_jobs = down_jobs_.data(),
          .up_count = job_counts_.data(),
          .down_count = job_counts_.data() + 1,
          .item_rows = item_rows_.data(),
          .item_weights = item_weights_.data(),
          .row_items = row_items_.data()};
}

void CudaOps::Experts(int rank, const ExpertsArgs& args) {
  if (args.rows == 0) return;
  const ExpertTable& table = TableOf(*args.stage);
  const int jobs = args.rows * config_.experts_per_token;
  const cuda::RouteLaunch route = RouteOf(args);
  const bool is_routed = std::exchange(routed_, nullptr) == args.stage;
  if (!is_routed || !shared_branch_.is_open) Fork(&shared_branch_);
  RunShared(route, args);
  MixOn(shared_branch_);
  if (!is_routed) cuda::LaunchRoute(route, queue());
  cuda::LinearJobs products;
  products.list = {route.up_jobs, route.up_count, config_.dim, route.channels};
  products.job_count = 2 * jobs;
  products.max_items = std::min(args.rows, cuda::kRowsPerJob);
  products.max_outputs = route.channels;
  products.swiglu_limit = config_.swiglu_limit;
  RunRouted(table, products);
  products.list = {route.down_jobs, route.down_count, args.stage->shared.w2[0].k, config_.dim};
  products.job_count = route.halves * jobs;
  products.max_outputs = config_.dim;
  products.is_gated = true;
  RunRouted(table, products);
  Join();
  cuda::LaunchCombine(route, args.partials, args.half_stride, queue());
  CheckLaunch("Experts");
}

}  // namespace tp2
