// The EXL3 products of the CUDA op set: which launches they take, alone, together, by expert.
#include <algorithm>
#include <utility>
#include <vector>

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

// The first jobs.job_count of jobs.few, all together or one by one: body(jobs, their matrices).
void CudaOps::ForParts(
    const cuda::LinearJobs& jobs, std::span<const exl3::MatrixView* const> matrices,
    absl::FunctionRef<void(const cuda::LinearJobs&, std::span<const exl3::MatrixView* const>)> body)
    const {
  if (joins_products_) return body(jobs, matrices);
  cuda::LinearJobs part = jobs;
  part.job_count = 1;
  for (int i = 0; i < jobs.job_count; ++i) {
    part.few[0] = jobs.few[i];
    part.max_outputs = matrices[i]->n;
    body(part, matrices.subspan(i, 1));
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
    ForParts(jobs, matrices, [this](const auto& part, auto of_part) {
      cuda::LaunchPrepareRows(part, work_.view(), queue());
      Multiply(part, of_part, work_.view(), queue());
    });
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

// A product of all experts: `jobs` lists the routed ones', one launch per width that the stage's
// experts have (a job of another width leaves at once), and has the shared one's in jobs.few, split
// over K instead and beside them. So is a mix that is due.
void CudaOps::RunExperts(const ExpertTable& table, const cuda::LinearJobs& jobs,
                         std::span<const exl3::MatrixView* const> shared_matrices) {
  cuda::LaunchPrepareRows(jobs, work_.view(), queue());
  Fork();
  cuda::LinearJobs shared = jobs, routed = jobs;
  shared.list = {};
  shared.job_count = jobs.beside_count;
  shared.max_items = jobs.beside_items;
  routed.is_beside = !has_side_work_;
  if (const auto mix = std::exchange(mix_due_, std::nullopt); mix.has_value()) {
    cuda::LaunchMix(*mix, side_queue());
    shared.is_beside = routed.is_beside;
  }
  ForParts(shared, shared_matrices, [this](const auto& part, auto of_part) {
    Multiply(part, of_part, work_.beside_view(), side_queue());
  });
  for (const int bits : table.bits) {
    cuda::LaunchListGemm(bits, routed, work_.view(), multiprocessors_, queue());
  }
  if (table.has_half) cuda::LaunchHalfGemm(routed, work_.view(), queue());
  Join();
}

// The shared expert's jobs behind the routed ones' in the workspace.
void CudaOps::ListShared(const ExpertsArgs& args, const cuda::RouteLaunch& route,
                         cuda::LinearJobs& jobs) const {
  jobs.beside_items = args.rows;
  for (int i = 0; i < jobs.beside_count; ++i) {
    jobs.few[i].items = args.rows;
    jobs.few[i].first_item = cuda::kMaxHalves * route.item_capacity + i * cuda::kRowsPerPass;
    jobs.few[i].first_group =
        cuda::kMaxHalves * route.group_capacity + i * cuda::GroupsOf(cuda::kRowsPerPass);
  }
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
  const RankExpert& shared = args.stage->shared;
  const int entries = args.rows * config_.experts_per_token;
  const cuda::RouteLaunch route = RouteOf(args);
  if (std::exchange(routed_, nullptr) != args.stage) cuda::LaunchRoute(route, queue());

  const int64_t channels_at = int64_t{entries} * route.channels;
  const exl3::MatrixView* const up_matrices[] = {&shared.w1, &shared.w3};
  cuda::LinearJobs up;
  up.list = {route.up_jobs, route.up_count, config_.dim, route.channels};
  up.job_count = 2 * entries;
  up.beside_count = 2;
  up.max_items = std::min(args.rows, cuda::kRowsPerJob);
  up.max_outputs = route.channels;
  ListShared(args, route, up);
  for (int i = 0; i < up.beside_count; ++i) {
    up.few[i].matrix = cuda::DeviceViewOf(*up_matrices[i]);
    up.few[i].x = args.x;
    up.few[i].x_stride = config_.dim;
    up.few[i].y = (i == 0 ? route.gate : route.up) + channels_at;
    up.few[i].y_stride = route.channels;
  }
  RunExperts(table, up, up_matrices);

  std::vector<const exl3::MatrixView*> down_matrices;
  cuda::LinearJobs down;
  down.list = {route.down_jobs, route.down_count, shared.w2[0].k, config_.dim};
  down.job_count = route.halves * entries;
  down.beside_count = route.halves;
  down.is_gated = true;
  down.max_items = up.max_items;
  down.max_outputs = config_.dim;
  down.swiglu_limit = config_.swiglu_limit;
  ListShared(args, route, down);
  int64_t begin = channels_at;
  for (int i = 0; i < down.beside_count; ++i) {
    const exl3::MatrixView& half = shared.w2[i];
    down_matrices.push_back(&half);
    down.few[i].matrix = cuda::DeviceViewOf(half);
    down.few[i].x = route.gate + begin;
    down.few[i].up = route.up + begin;
    down.few[i].weights = ones_.data();
    down.few[i].x_stride = route.channels;
    down.few[i].y = route.parts + (int64_t{i} * route.item_capacity + entries) * config_.dim;
    down.few[i].y_stride = config_.dim;
    begin += half.k;
  }
  RunExperts(table, down, down_matrices);

  cuda::LaunchCombine(route, args.partials, args.half_stride, queue());
  CheckLaunch("Experts");
}

}  // namespace tp2
