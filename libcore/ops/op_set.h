// What the drafter's controller asks of an op set. A missing operation is a compile error that
// names this concept.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "libcore/ops/first_error.h"
#include "libcore/ops/graph_key.h"
#include "libcore/ops/op_args.h"

namespace tp2 {

// Points of a STEP that an op set can time on the device.
enum class StepMark { kBegin, kInserted, kDrafted };
inline constexpr int kStepMarks = 3;

// An op set enqueues work for one rank at a time; failures go to the rank's FirstError. Collectives
// take all active ranks, because in one process both halves must be issued before either can
// finish.
template <class O>
concept OpSet = requires(
    O ops, int rank, const WidenArgs& widen, std::span<const LinearOpArgs> products,
    const RmsNormArgs& norm, const EnterArgs<typename O::Stored>& enter,
    const LatentArgs<typename O::Stored>& latents, const KvFinishArgs<typename O::Stored>& kv,
    const QueryFinishArgs& query, const EmbedArgs<typename O::Stored>& embed,
    const MixArgs<typename O::Stored>& mix, const HeadMixArgs<typename O::Stored>& head_mix,
    const CollapseArgs<typename O::Stored>& collapse, const UpdateArgs<typename O::Stored>& update,
    const AttentionArgs<typename O::Stored>& attention,
    const AttendArgs<typename O::Stored>& attend, const GroupedOutputArgs& grouped,
    const RouterArgs& router, const ExpertsArgs& experts, const MarkovArgs& markov,
    const ConfidenceArgs& confidence, std::span<const AllReduceArgs<typename O::Stored>> sums,
    std::span<const ExchangeArgs> exchanges, const GraphKey& key) {
  typename O::Stored;
  { ops.Widen(rank, widen) } -> std::same_as<void>;
  { ops.Linear(rank, products) } -> std::same_as<void>;
  { ops.RmsNorm(rank, norm) } -> std::same_as<void>;
  { ops.KvFinish(rank, kv) } -> std::same_as<void>;
  { ops.QueryFinish(rank, query) } -> std::same_as<void>;
  { ops.Embed(rank, embed) } -> std::same_as<void>;
  { ops.Mix(rank, mix) } -> std::same_as<void>;
  { ops.HeadMix(rank, head_mix) } -> std::same_as<void>;
  { ops.Collapse(rank, collapse) } -> std::same_as<void>;
  { ops.Update(rank, update) } -> std::same_as<void>;
  { ops.Enter(rank, enter) } -> std::same_as<void>;      // as EnterByParts
  { ops.Latents(rank, latents) } -> std::same_as<void>;  // as LatentsByParts
  { ops.Attention(rank, attention) } -> std::same_as<void>;
  { ops.Attend(rank, attend) } -> std::same_as<void>;  // as AttendByParts
  { ops.GroupedOutput(rank, grouped) } -> std::same_as<void>;
  { ops.Router(rank, router) } -> std::same_as<void>;
  { ops.Experts(rank, experts) } -> std::same_as<void>;
  { ops.Markov(rank, markov) } -> std::same_as<void>;
  { ops.Confidence(rank, confidence) } -> std::same_as<void>;
  { ops.AllReduce(sums) } -> std::same_as<void>;      // one entry per active rank, in rank order
  { ops.Exchange(exchanges) } -> std::same_as<void>;  // one entry per active rank, in rank order
  // Memory of a rank, and memory of the host that it exchanges copies with; both zeroed.
  { ops.template Allocate<float>(rank, int64_t{1}).data() } -> std::same_as<float*>;
  { ops.template AllocateHost<float>(rank, int64_t{1}).data() } -> std::same_as<float*>;
  // Copies between the two. Upload and ReadBack only enqueue, so the host's side must be left alone
  // until Wait; Download waits for the rank's work, takes any host memory and is not for graphs.
  { ops.Upload(rank, std::span<const float>(), std::declval<float*>()) } -> std::same_as<void>;
  { ops.ReadBack(rank, std::declval<const float*>(), std::span<float>()) } -> std::same_as<void>;
  { ops.Download(rank, std::declval<const float*>(), std::span<float>()) } -> std::same_as<void>;
  { ops.Wait(rank) } -> std::same_as<void>;
  // The rank's weights where the operations can read them.
  { ops.Place(rank, std::declval<const RankWeights&>()) } -> std::same_as<RankWeights>;
  // A body that enqueues the same operations whenever the key is the same: Record may note them
  // down without running any, Run then replays them or calls the body.
  { ops.Record(key, std::declval<void (*)()>()) } -> std::same_as<void>;
  { ops.Run(key, std::declval<void (*)()>()) } -> std::same_as<void>;
  // Every key that is replayed from a recording; none when bodies are called.
  { std::as_const(ops).GraphSizes() } -> std::same_as<std::vector<GraphSize>>;
  // Rows that an insert of so many computes, at most kMaxRowsPerMessage.
  { ops.PaddedRows(int{}) } -> std::same_as<int>;
  // Time stamps in every rank's work, and the time between two of a rank's once it has been waited
  // for; 0 where there is no device.
  { ops.Mark(StepMark{}) } -> std::same_as<void>;
  { ops.NsBetween(rank, StepMark{}, StepMark{}) } -> std::same_as<int64_t>;
  // Ends a STEP: op sets whose ranks learn of each other's errors only through an exchange make
  // one.
  { ops.CloseStep() } -> std::same_as<void>;
  // Waits for the rank's work.
  { ops.error(rank) } -> std::same_as<FirstError&>;
  // After an error was taken: brings the ranks back to a state in which a STEP can start, or gives
  // up.
  { ops.Recover() } -> std::same_as<void>;
  // False once nothing can be enqueued again in this process.
  { std::as_const(ops).is_healthy() } -> std::same_as<bool>;
};

}  // namespace tp2
