// Setup, copies, errors and graphs of the CUDA op set.
#include "libcore/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/device/cuda_status.h"
#include "libcore/exl3/linear.h"
#include "libcore/ops/cuda/kernels.h"

namespace tp2 {
namespace {

constexpr int kMaxRows = kMaxRequests * kBlockRows;
static_assert(cuda::kMaxMarkovRequests == kMaxRequests);

template <class T>
absl::Status AllocateInto(device::Buffer<T>& buffer, int64_t count) {
  TP2_ASSIGN_OR_RETURN(buffer, device::Buffer<T>::Create(count));
  return absl::OkStatus();
}

// What the kernels' fixed register and shared memory plans ask of a config.
absl::Status CheckSizes(const DrafterConfig& config) {
  const bool fits = config.head_dim <= cuda::kMaxAttentionDims &&
                    config.heads / config.o_groups % cuda::kAttentionHeads == 0 &&
                    int64_t{config.dim} <= 16384 && config.moe_inter <= 16384;
  if (fits) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnimplemented,
                   {.what = "CUDA op set",
                    .expected = absl::StrCat("head_dim up to ", cuda::kMaxAttentionDims,
                                             ", an even number of heads per group, dim and "
                                             "moe_inter up to 16384"),
                    .got = absl::StrCat("head_dim ", config.head_dim, ", heads ", config.heads,
                                        ", dim ", config.dim, ", moe_inter ", config.moe_inter),
                    .next = "use --backend cpu"});
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const DrafterConfig& config,
                                                         int rank_count, int64_t max_positions,
                                                         const device::DeviceInfo& device) {
  TP2_RETURN_IF_ERROR(CheckSizes(config));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaSetDevice(device.ordinal)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cuda::PreloadKernels()));
  std::unique_ptr<CudaOps> ops(new CudaOps(config, rank_count));
  ops->ordinal_ = device.ordinal;
  ops->multiprocessors_ = device.multiprocessors;
  ops->can_overlap_ = device.capability >= 90;
  TP2_RETURN_IF_ERROR(ops->Initialize(max_positions));
  return ops;
}

// A card that cannot be made current fails the next call, whose status is looked at.
void CudaOps::UseThread() { (void)cudaSetDevice(ordinal_); }

absl::Status CudaOps::Initialize(int64_t max_positions) {
  TP2_ASSIGN_OR_RETURN(stream_, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(capture_stream_, device::Stream::Create(device::Stream::Kind::kCapture));
  TP2_RETURN_IF_ERROR(shared_branch_.Create());
  TP2_RETURN_IF_ERROR(mix_branch_.Create());
  TP2_ASSIGN_OR_RETURN(forked_, device::Event::Create());
  for (device::Event& mark : marks_) {
    TP2_ASSIGN_OR_RETURN(mark, device::Event::Create());
  }
  score_scale_ = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  TP2_RETURN_IF_ERROR(BuildRopeTable(max_positions));
  TP2_ASSIGN_OR_RETURN(error_words_, HostBuffer<int>::Create(static_cast<int64_t>(errors_.size())));
  const int64_t segments = (int64_t{kStreams} * config_.dim + 1023) / 1024;
  TP2_RETURN_IF_ERROR(AllocateInto(stream_dots_, kMaxRows * (kMixOutputs + 1) * segments));
  TP2_RETURN_IF_ERROR(AllocateInto(block_best_, cuda::kMarkovBlocks * kMaxRequests));
  TP2_RETURN_IF_ERROR(AllocateInto(markov_arrivals_, 1));
  TP2_RETURN_IF_ERROR(AllocateInto(router_arrivals_, kMaxRows));
  return BuildExpertBuffers();
}

absl::Status CudaOps::BuildRopeTable(int64_t max_positions) {
  const int pairs = config_.rope_dims / 2;
  std::vector<float> frequencies;
  for (int pair = 0; pair < pairs; ++pair) {
    frequencies.push_back(RopeFrequency(config_.rope_theta, config_.rope_dims, pair));
  }
  const int64_t positions = max_positions + kBlockRows;
  std::vector<CosSin> table(static_cast<size_t>(positions) * pairs);
  for (int64_t p = 0; p < positions; ++p) {
    RopeTableRow(p, frequencies.data(), pairs, table.data() + p * pairs);
  }
  TP2_RETURN_IF_ERROR(AllocateInto(rope_, static_cast<int64_t>(table.size())));
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaMemcpyAsync(rope_.data(), table.data(), table.size() * sizeof(CosSin),
                               cudaMemcpyHostToDevice, stream_.get())));
  return stream_.Synchronize();
}

// Routed entries and one item per row for the shared expert.
int CudaOps::item_capacity() const { return kMaxRows * (config_.experts_per_token + 1); }

// Every routed entry may be alone in its job, which is one group.
int CudaOps::group_capacity() const { return kMaxRows * config_.experts_per_token; }

absl::Status CudaOps::BuildExpertBuffers() {
  const int64_t items = item_capacity(), jobs = group_capacity();
  const int64_t channels = config_.moe_inter, dim = config_.dim;
  TP2_RETURN_IF_ERROR(AllocateInto(gate_, items * channels));
  TP2_RETURN_IF_ERROR(AllocateInto(up_, items * channels));
  TP2_RETURN_IF_ERROR(AllocateInto(parts_, cuda::kMaxHalves * items * dim));
  TP2_RETURN_IF_ERROR(AllocateInto(up_jobs_, 2 * jobs));
  TP2_RETURN_IF_ERROR(AllocateInto(down_jobs_, cuda::kMaxHalves * jobs));
  TP2_RETURN_IF_ERROR(AllocateInto(job_counts_, 2));
  TP2_RETURN_IF_ERROR(AllocateInto(item_rows_, items));
  TP2_RETURN_IF_ERROR(AllocateInto(item_weights_, items));
  const std::vector<float> ones(static_cast<size_t>(kMaxRows), 1.0f);
  TP2_RETURN_IF_ERROR(AllocateInto(ones_, kMaxRows));
  TP2_RETURN_IF_ERROR(TP2_CUDA(
      cudaMemcpy(ones_.data(), ones.data(), kMaxRows * sizeof(float), cudaMemcpyHostToDevice)));
  TP2_RETURN_IF_ERROR(AllocateInto(row_items_, kMaxRows * config_.experts_per_token));
  // A body for more groups than a job has reads one group past it.
  const int64_t widest = std::max<int64_t>(
      {config_.tap_values(), config_.output_values(), config_.group_inputs(), dim, channels});
  const int64_t few = cuda::kFewJobs * cuda::GroupsOf(cuda::kRowsPerPass) + 1;
  const int64_t groups = std::max<int64_t>(few, 2 * group_capacity() + 1);
  const int64_t rows = std::max<int64_t>(2 * items, cuda::kFewJobs * cuda::kRowsPerPass);
  Workspace::Counts counts = {.quanta = 2 * groups * widest,
                              .halves = cuda::kRowsPerGroup * groups * widest,
                              .items = rows,
                              .sums = int64_t{cuda::kRowsPerPass} * tuning::kMaxSplitOutputs,
                              .arrivals = tuning::kMaxSplitOutputs / tuning::kBlockOutputs};
  TP2_RETURN_IF_ERROR(side_.Allocate(counts));
  static_assert(cuda::kMaxHalves == 2);  // as many matrices per job as up has
  const int64_t routed_outputs = std::max(channels, dim);
  counts.sums = std::max(counts.sums, 2 * items * routed_outputs);
  counts.arrivals = std::max(counts.arrivals, 2 * jobs * routed_outputs / 128);
  return main_.Allocate(counts);
}

absl::Status CudaOps::Workspace::Allocate(const Counts& counts) {
  TP2_RETURN_IF_ERROR(AllocateInto(quanta, counts.quanta));
  TP2_RETURN_IF_ERROR(AllocateInto(halves, counts.halves));
  TP2_RETURN_IF_ERROR(AllocateInto(row_sums, counts.items));
  TP2_RETURN_IF_ERROR(AllocateInto(scales, counts.items));
  TP2_RETURN_IF_ERROR(AllocateInto(partial_sums, counts.sums));
  return AllocateInto(arrivals, counts.arrivals);
}

cuda::LinearWorkspace CudaOps::Workspace::view() {
  return {.quanta = quanta.data(),
          .halves = halves.data(),
          .row_sums = row_sums.data(),
          .scales = scales.data(),
          .partial_sums = partial_sums.data(),
          .arrivals = arrivals.data()};
}

RankWeights CudaOps::Place(int rank, const RankWeights& host) {
  if (!setup_status_.ok()) return host;
  absl::StatusOr<RankWeights> placed = cuda::PlaceWeights(config_, host, arena_);
  if (!placed.ok()) {
    setup_status_ = placed.status();
    return host;
  }
  for (const RankStage& stage : placed->stages) {
    if (setup_status_.ok()) setup_status_ = PlaceExperts(stage);
  }
  return *std::move(placed);
}

absl::Status CudaOps::PlaceExperts(const RankStage& stage) {
  ExpertTable table;
  TP2_ASSIGN_OR_RETURN(table.experts, cuda::PlaceExpertTable(stage, arena_));
  const auto note = [&table](const exl3::MatrixView& matrix, bool is_routed) {
    if (!exl3::HasPortableBits(matrix)) {
      table.has_half = true;
    } else if (is_routed) {
      table.bits.insert(matrix.bits);
    }
  };
  const auto note_expert = [&note](const RankExpert& expert, bool is_routed) {
    note(expert.w1, is_routed);
    note(expert.w3, is_routed);
    for (const exl3::MatrixView& half : expert.w2) note(half, is_routed);
  };
  for (const RankExpert& expert : stage.experts) note_expert(expert, true);
  note_expert(stage.shared, false);
  expert_tables_[stage.experts[0].w1.trellis] = table;
  return absl::OkStatus();
}

void CudaOps::Check(const absl::Status& status) {
  if (!status.ok() && fault_.empty()) fault_ = std::string(status.message());
}

void CudaOps::CheckLaunch(const char* op) {
  const cudaError_t error = cudaPeekAtLastError();
  if (error != cudaSuccess) Check(device::ToStatus(error, absl::StrCat("launch of ", op)));
}

absl::Status CudaOps::Branch::Create() {
  TP2_ASSIGN_OR_RETURN(stream, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(capture, device::Stream::Create(device::Stream::Kind::kCapture));
  TP2_ASSIGN_OR_RETURN(end, device::Event::Create());
  return absl::OkStatus();
}

void CudaOps::Fork(Branch* branch) {
  Check(forked_.Record(main_stream()));
  Check(forked_.HoldBack(QueueOf(*branch).stream));
  must_wait_ = true;
  branch->is_open = true;
}

void CudaOps::Join() {
  for (Branch* branch : {&shared_branch_, &mix_branch_}) {
    if (!std::exchange(branch->is_open, false)) continue;
    Check(branch->end.Record(QueueOf(*branch).stream));
    Check(branch->end.HoldBack(main_stream()));
    must_wait_ = true;
  }
}

void CudaOps::MixOn(const Branch& branch) {
  if (!mix_due_.has_value()) return;
  EnqueueMix(*std::exchange(mix_due_, std::nullopt), QueueOf(branch));
}

void CudaOps::Settle() {
  Join();
  if (mix_due_.has_value()) EnqueueMix(*std::exchange(mix_due_, std::nullopt), queue());
}

void CudaOps::Copy(const void* in, size_t bytes, void* out) {
  Settle();
  must_wait_ = true;
  Check(TP2_CUDA(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDefault, main_stream())));
}

void CudaOps::Wait(int rank) {
  if (is_recording_)
    return errors_[rank].Note("graph", "an operation that waits is no part of one");
  Settle();
  Check(stream_.Synchronize());
}

void CudaOps::Mark(StepMark mark) { Check(marks_[static_cast<int>(mark)].Record(stream_.get())); }

int64_t CudaOps::NsBetween(int rank, StepMark from, StepMark to) {
  const absl::StatusOr<int64_t> ns =
      device::NsBetween(marks_[static_cast<int>(from)], marks_[static_cast<int>(to)]);
  Check(ns.status());
  return ns.value_or(0);
}

FirstError& CudaOps::error(int rank) {
  Wait(rank);
  if (!fault_.empty()) errors_[rank].Note("cuda", fault_.c_str(), absl::StatusCode::kAborted);
  switch (static_cast<cuda::KernelError>(std::exchange(error_words_.data()[rank], 0))) {
    case cuda::KernelError::kNone:
      break;
    case cuda::KernelError::kRouterNan:
      errors_[rank].Note("router", "a gate logit is not a number");
      break;
    case cuda::KernelError::kMarkovNan:
      errors_[rank].Note("markov", "a logit is not a number");
      break;
  }
  return errors_[rank];
}

absl::Status CudaOps::Capture(const GraphKey& key, absl::FunctionRef<void()> body) {
  is_recording_ = true;
  must_wait_ = true;
  overlaps_ = can_overlap_;
  absl::StatusOr<device::Graph> graph =
      device::Graph::Capture(capture_stream_, ordinal_, [&] { body(), Settle(); });
  must_wait_ = true;
  overlaps_ = false;
  is_recording_ = false;
  if (!graph.ok()) return WithContext(graph.status(), absl::StrCat("graph key ", key.Name()));
  TP2_RETURN_IF_ERROR(graph->Upload(stream_));
  graphs_[key] = *std::move(graph);
  return absl::OkStatus();
}

std::vector<GraphSize> CudaOps::GraphSizes() const {
  std::vector<GraphSize> sizes;
  for (const auto& [key, graph] : graphs_) {
    const device::GraphNodes& nodes = graph.nodes();
    sizes.push_back({key, nodes.kernels, nodes.copies, nodes.fills, nodes.events});
  }
  return sizes;
}

void CudaOps::Replay(const GraphKey& key) {
  const auto graph = graphs_.find(key);
  // Never by running it another way: a missing graph is a bug.
  if (graph == graphs_.end()) return Check(absl::InternalError("a graph key was not recorded"));
  Check(graph->second.Launch(stream_));
}

}  // namespace tp2
