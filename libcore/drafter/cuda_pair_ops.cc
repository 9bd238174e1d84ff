#include "libcore/drafter/cuda_pair_ops.h"

#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/pair_latch.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {

static_assert(OpSet<CudaPairOps>);

namespace {

// No error word has all bits set: the status of a draft that has not ended.
constexpr uint32_t kNotEnded = ~uint32_t{0};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPairOps>> CudaPairOps::Create(const DrafterConfig& config,
                                                                 int64_t max_positions,
                                                                 const Options& options) {
  TP2_CHECK(options.cards.size() == 2);
  std::unique_ptr<CudaPairOps> ops(new CudaPairOps(config, options));
  TP2_RETURN_IF_ERROR(ops->Initialize(max_positions));
  return ops;
}

CudaPairOps::~CudaPairOps() {
  if (pair_ != nullptr) pair_->Drain().IgnoreError();
}

absl::Status CudaPairOps::Initialize(int64_t max_positions) {
  coll::CudaPairOptions pair = {
      .cards = options_.cards,
      .protocol = options_.protocol,
      .max_words = int64_t{kMaxRequests} * kBlockRows * config_.dim,
      .tokens = {},
      .timeout_ns = static_cast<uint64_t>(options_.timeout_ms) * 1'000'000,
      .max_epoch = options_.max_epoch,
      .kernels = options_.kernels};
  for (int rank = 0; rank < 2; ++rank) {
    TP2_ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(config_, 2, rank));
    pair.tokens.push_back({plan.vocab.begin, plan.vocab.end});
  }
  TP2_ASSIGN_OR_RETURN(pair_, coll::CudaPair::Create(pair));
  TP2_ASSIGN_OR_RETURN(outcomes_, device::PinnedBuffer<coll::Status>::Create(2));
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinal(rank));
    TP2_ASSIGN_OR_RETURN(ops_[rank],
                         CudaOps::Create(config_, 2, max_positions, options_.cards[rank]));
    ops_[rank]->set_kernels(options_.kernels);
  }
  set_uses_graphs(true);
  return absl::OkStatus();
}

void CudaPairOps::set_uses_graphs(bool uses_graphs) {
  uses_graphs_ = uses_graphs;
  for (const auto& ops : ops_) ops->set_uses_graphs(uses_graphs);
}

const absl::Status& CudaPairOps::setup_status() const {
  return ops_[0]->setup_status().ok() ? ops_[1]->setup_status() : ops_[0]->setup_status();
}

void CudaPairOps::Check(int rank, const absl::Status& status) {
  if (status.ok() || errors_[rank].is_set()) return;
  error_texts_[rank] = std::string(status.message());
  errors_[rank].Note("pair", error_texts_[rank].c_str(), absl::StatusCode::kAborted);
}

void CudaPairOps::NoteUse(int rank) { Check(rank, pair_->NoteReplay(rank, stream(rank))); }

void CudaPairOps::SendUpload(int rank) {
  const std::optional<PendingUpload> upload = std::exchange(uploads_[rank], std::nullopt);
  if (!upload.has_value()) return;
  const device::DeviceGuard guard(ordinal(rank));
  NoteUse(rank);
  ops_[rank]->Upload(rank, upload->host, upload->out);
}

void CudaPairOps::ExpectOutcomes() {
  for (int rank = 0; rank < 2; ++rank) {
    outcomes_.data()[rank].error = kNotEnded;
    awaits_outcome_[rank] = true;
  }
}

bool CudaPairOps::BeforeReplay(const GraphKey& key) {
  if (std::exchange(is_reset_due_, false)) Recover();
  if (key.kind == GraphKey::Kind::kDraft) ExpectOutcomes();
  for (int rank = 0; rank < 2; ++rank) NoteUse(rank);
  return !errors_[0].is_set() && !errors_[1].is_set();
}

void CudaPairOps::Replay(int rank, const GraphKey& key) {
  SendUpload(rank);
  const device::DeviceGuard guard(ordinal(rank));
  const bool is_draft = key.kind == GraphKey::Kind::kDraft;
  if (is_draft && draft_hook_ && !draft_hook_(rank, stream(rank))) return;
  ops_[rank]->Run(key, [] {});
}

void CudaPairOps::Wait(int rank) {
  for (const int sent : {0, 1}) SendUpload(sent);
  Check(rank, pair_->Drain());
}

void CudaPairOps::AllReduce(std::span<const AllReduceArgs<Bf16>> ranks) {
  TP2_CHECK(ranks.size() == 2);
  for (const int rank : {1, 0}) {
    if (!IsActive(rank)) continue;
    const AllReduceArgs<Bf16>& args = ranks[rank];
    Check(rank,
          pair_->AllReduce(
              rank,
              {.x = args.partials, .count = int64_t{args.rows} * config_.dim, .rounded = args.y},
              stream(rank)));
  }
}

void CudaPairOps::Exchange(std::span<const ExchangeArgs> ranks) {
  TP2_CHECK(ranks.size() == 2);
  for (const int rank : {1, 0}) {
    if (!IsActive(rank)) continue;
    const ExchangeArgs& args = ranks[rank];
    Check(rank, pair_->Exchange(rank,
                                {.best = args.best,
                                 .requests = args.requests,
                                 .token = args.token,
                                 .token_stride = args.token_stride,
                                 .runner_up = args.runner_up,
                                 .margin = args.margin,
                                 .result_stride = args.result_stride},
                                stream(rank)));
  }
}

void CudaPairOps::CloseStep() {
  if (!active_rank_.has_value()) ExpectOutcomes();
  for (const int rank : {1, 0}) {
    if (!IsActive(rank)) continue;
    Check(rank, pair_->CloseStep(rank, stream(rank), outcomes_.data() + rank));
  }
}

void CudaPairOps::Mark(StepMark mark) {
  for (int rank = 0; rank < 2; ++rank) {
    const device::DeviceGuard guard(ordinal(rank));
    ops_[rank]->Mark(mark);
  }
}

FirstError& CudaPairOps::error(int rank) {
  Wait(rank);
  const bool is_awaited = std::exchange(awaits_outcome_[rank], false);
  // Nobody may wait for a rank that did not become idle.
  if (errors_[rank].is_set()) return errors_[rank];
  const device::DeviceGuard guard(ordinal(rank));
  FirstError& latch = ops_[rank]->error(rank);
  if (!is_awaited) return latch;
  const coll::Status& outcome = outcomes_.data()[rank];
  is_reset_due_ = is_reset_due_ || pair_->IsNearExhaustion(outcome);
  if (outcome.error == 0) return latch;
  error_texts_[rank] =
      outcome.error == kNotEnded ? "a draft did not end" : coll::ErrorText(outcome.error);
  latch.Note("collective", error_texts_[rank].c_str());
  return latch;
}

void CudaPairOps::Recover() {
  if (!is_healthy()) return;
  // A reset that fails has poisoned the pair, which is_healthy says.
  pair_->Recover().IgnoreError();
}

absl::Status CudaPairOps::MaintainWhileIdle() {
  if (std::exchange(is_reset_due_, false)) Recover();
  if (is_healthy()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kAborted, {.what = "reset of the pair between STEPs",
                                                .expected = "a usable pair",
                                                .got = "a poisoned one",
                                                .next = "restart the process"});
}

}  // namespace tp2
