#include "libcore/drafter/host_pair_ops.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "libcore/base/check.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

HostPairOps::HostPairOps(const DrafterConfig& config, int rank_count, int thread_count,
                         const coll::LatchOptions& latch_options)
    : dim_(config.dim) {
  TP2_CHECK(rank_count == 2);
  const int threads =
      thread_count > 0 ? thread_count : static_cast<int>(std::thread::hardware_concurrency());
  coll::HostPairOptions options;
  options.max_values = int64_t{kMaxRequests} * kBlockRows * config.dim;
  options.max_epoch = latch_options.max_epoch;
  for (int rank = 0; rank < 2; ++rank) {
    const auto plan = MakeShardPlan(config, 2, rank);
    TP2_CHECK(plan.ok());  // the controller's plans come from the same sizes
    options.tokens[rank] = {plan->vocab.begin, plan->vocab.end};
    ops_[rank] = std::make_unique<Ops>(config, 2, std::max(1, threads / 2));
    sums_[rank].resize(static_cast<size_t>(options.max_values));
    streams_[rank] = std::make_unique<coll::HostStream>();
  }
  pair_ = std::make_unique<coll::HostPair>(options);
  latch_ = std::make_unique<coll::PairLatch>(latch_options, Hooks());
}

HostPairOps::~HostPairOps() = default;

bool HostPairOps::MayLaunch() {
  const absl::Status status = latch_->BeforeLaunch(1);
  if (status.ok()) return true;
  refusal_ = std::string(status.message());
  for (int rank = 0; rank < 2; ++rank) {
    Queue(rank, [this, rank] {
      ops_[rank]->error(rank).Note("collective", refusal_.c_str(), absl::StatusCode::kAborted);
    });
  }
  return false;
}

void HostPairOps::AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
  TP2_CHECK(ranks.size() == 2);
  if (!MayLaunch()) return;
  for (int rank = 0; rank < 2; ++rank) {
    Queue(rank, [this, rank, args = ranks[rank]] { ReduceHere(rank, args); });
  }
}

void HostPairOps::ReduceHere(int rank, const AllReduceArgs<Bf16>& args) {
  const int64_t count = int64_t{args.rows} * dim_;
  float* sum = sums_[rank].data();
  if (!pair_->AllReduce(rank, args.partials, count, sum)) return;
  for (int64_t i = 0; i < count; ++i) args.y[i] = ToBf16(sum[i]);
}

void HostPairOps::Exchange(std::span<const ExchangeArgs> ranks) {
  TP2_CHECK(ranks.size() == 2);
  if (!MayLaunch()) return;
  for (int rank = 0; rank < 2; ++rank) {
    Queue(rank, [this, rank, args = ranks[rank]] { ExchangeHere(rank, args); });
  }
}

void HostPairOps::ExchangeHere(int rank, const ExchangeArgs& args) {
  std::array<TopTwo, kMaxRequests> best;
  std::copy_n(args.best, args.requests, best.begin());
  const bool is_done = pair_->Exchange(rank, best.data(), args.requests);
  for (int request = 0; request < args.requests; ++request) {
    TopTwo& two = best[request];
    // Only after a failure, which a latch has noted: keep later look-ups in range.
    if (!is_done || two.first.token == kNoScore.token) two = {{0.0f, 0}, {0.0f, 0}};
    args.token[request * args.token_stride] = two.first.token;
    if (args.margin == nullptr) continue;
    args.runner_up[request * args.result_stride] = two.second.token;
    args.margin[request * args.result_stride] = two.first.score - two.second.score;
  }
}

void HostPairOps::CloseStep() {
  if (!MayLaunch()) return;
  for (int rank = 0; rank < 2; ++rank) {
    Queue(rank, [this, rank] { pair_->CloseStep(rank); });
  }
}

FirstError& HostPairOps::error(int rank) {
  streams_[rank]->Drain();
  FirstError& latch = ops_[rank]->error(rank);
  if (const uint32_t bits = pair_->error(rank); bits != 0) {
    error_texts_[rank] = coll::ErrorText(bits);
    latch.Note("collective", error_texts_[rank].c_str());
  }
  return latch;
}

coll::LatchHooks HostPairOps::Hooks() {
  return {.wait_idle =
              [this](int64_t timeout_ms) {
                for (const auto& stream : streams_) {
                  if (stream->DrainFor(std::chrono::milliseconds(timeout_ms))) continue;
                  return absl::DeadlineExceededError("a rank did not become idle");
                }
                return absl::OkStatus();
              },
          .read_errors =
              [this](std::vector<uint32_t>& errors) {
                errors = {pair_->error(0), pair_->error(1)};
                return absl::OkStatus();
              },
          .clear_states =
              [this] {
                pair_->Reset();
                return absl::OkStatus();
              }};
}

// A reset that fails has poisoned the pair, which is_healthy says.
void HostPairOps::Recover() { latch_->Reset().IgnoreError(); }

}  // namespace tp2
