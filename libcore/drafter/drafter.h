// The controller: context insert and draft step over an op set and one or more ranks. Knows shapes
// and order, no arithmetic and no hardware. Source of the order: research note dspark-model,
// sections 4 to 8.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/clock.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/drafter/observer.h"
#include "libcore/drafter/rank.h"
#include "libcore/drafter/step_engine.h"
#include "libcore/ops/op_set.h"

namespace tp2 {

template <OpSet O>
class Drafter final : public StepEngine {
 public:
  // One rank per plan, all in this process; `ops` has an error latch for each of them.
  Drafter(EngineInfo info, std::unique_ptr<Checkpoint> checkpoint, std::unique_ptr<O> ops,
          std::span<const ShardPlan> plans);
  // Queued work still reads and writes the ranks' memory.
  ~Drafter() override {
    ForEachRank([this](RankType& rank) { ops_->Wait(rank.index); });
  }

  // Lets the op set record every graph key, then runs each once with nothing in it, so that no
  // later run is the first of its kind. Errors: the op set's.
  absl::Status Record();

  void UseThread() override {
    if constexpr (requires { ops_->UseThread(); }) ops_->UseThread();
  }
  const EngineInfo& info() const override { return info_; }
  absl::Status ResetSlot(int slot, int64_t base) override;
  const SlotWindow& window(int slot) const override { return windows_[slot]; }
  absl::Status Insert(const InsertRows& rows) override;
  absl::StatusOr<StepOutputs> Step(const StepRequest& request) override;
  std::vector<GraphSize> GraphSizes() const override { return ops_->GraphSizes(); }
  tuning::TableUse kernel_table_use() const override {
    if constexpr (requires { ops_->kernel_table_use(); }) return ops_->kernel_table_use();
    return {};
  }
  absl::Status MaintainWhileIdle() override {
    if constexpr (requires { ops_->MaintainWhileIdle(); }) return ops_->MaintainWhileIdle();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<ReplicatedTensor>> ReadReplicas() override;
  absl::Status FlipReplicaBit(const std::string& name, int64_t bit) override;
  bool is_healthy() const override { return ops_->is_healthy(); }
  const O& ops() const { return *ops_; }

  // `observer` may be null; it must outlive its use. Only rank 0's tensors are shown.
  void set_observer(StepObserver* observer) { observer_ = observer; }
  bool SetObserver(StepObserver* observer) override {
    observer_ = observer;
    return true;
  }

 private:
  using S = typename O::Stored;
  using RankType = Rank<O>;

  // One context row on its way into a ring.
  struct RowSource {
    int slot;
    int64_t position;
    const Bf16* values;
  };
  // At most kMaxRowsPerMessage rows of one kind, whatever their slots.
  struct InsertChunk {
    RowKind kind;
    int64_t row_values;
    std::vector<RowSource> rows;
    int64_t value_count() const { return static_cast<int64_t>(rows.size()) * row_values; }
  };

  template <class Fn>
  void ForEachRank(Fn&& fn) {
    for (auto& rank : ranks_) fn(*rank);
  }

  int64_t RowValues(RowKind kind) const {
    return kind == RowKind::kTaps ? config_.tap_values() : config_.dim;
  }
  absl::Status CheckInsert(const InsertRows& rows) const;
  absl::Status CheckStep(const StepRequest& request) const;
  absl::Status TakeErrors();

  // Everything on its way to the ranks: `block` may be null.
  void SendAndInsert(std::span<const InsertRows> inserts, const StepRequest* block);
  std::vector<InsertChunk> ChunksOf(std::span<const InsertRows> inserts) const;
  void StageBlock(StepHead& head, const StepRequest& request) const;
  void StageRows(const InsertChunk& chunk);
  // The head and so many values of rows.
  void Send(RankType& rank, int64_t value_count);
  void Run(const GraphKey& key);
  void Enqueue(const GraphKey& key);
  void EnqueueInsert(const GraphKey& key);

  void EnqueueDraft(const GraphKey& key);
  void RunStage(int stage, int requests);
  void AttentionPartials(RankType& rank, int stage, int requests);
  void FfnPartials(RankType& rank, int stage, int rows);
  // The weights with which a sublayer collapses its input. v41 delays them by one sublayer:
  // attention uses the previous stage's FFN mix (or copy 0), the FFN uses attention's. v4 uses the
  // sublayer's own.
  struct CollapseWeights {
    const float* weights;
    int64_t stride;
  };
  static CollapseWeights PreOf(const MixCoefficients* mix) {
    static_assert(sizeof(MixCoefficients) % sizeof(float) == 0);
    return {mix->pre, sizeof(MixCoefficients) / sizeof(float)};
  }
  bool is_v41() const { return config_.arch == Arch::kV41; }
  // One rank that holds both halves.
  bool is_alone() const { return ranks_.size() == 1 && ranks_[0]->plan.halves.count() == 2; }
  EnterArgs<S> UpdateOf(RankType& rank, const MixCoefficients* mix) const;
  void EnterSublayer(RankType& rank, EnterArgs<S> args, const CollapseWeights& pre, Half16View norm,
                     int rows);
  void Reduce(int rows);
  void RunHead(int requests, int n_out, bool has_margins);
  void RunConfidence(int requests, int n_out);
  StepOutputs Collect(const StepRequest& request);
  void CollectDebug(const StepRequest& request, StepOutputs& outputs);

  // fn(name, element bytes, that tensor as bytes) for every replicated tensor of a rank.
  template <class Fn>
  void ForEachReplica(RankType& rank, Fn&& fn);

  template <class T>
  void Observe(const RankType& rank, const char* name, int stage, const T* values,
               std::vector<int64_t> shape);
  void ObserveMix(const RankType& rank, const char* sublayer, int stage, const MixCoefficients* mix,
                  int rows);
  void ObserveUpdate(const RankType& rank, const char* output, const char* streams, int stage,
                     int rows);
  void ObserveRing(const RankType& rank, int stage, int requests);
  void ObserveRouting(const RankType& rank, int stage, int rows);
  void ObserveBest(const RankType& rank, int position, int requests);

  EngineInfo info_;
  const DrafterConfig& config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<O> ops_;
  // Every rank is sent the same image; what comes back goes elsewhere, because another rank may
  // still be reading.
  StepMemory<typename O::template HostBuffer<std::byte>> staged_;
  typename O::template HostBuffer<StepResult> result_;
  std::vector<std::unique_ptr<RankType>> ranks_;
  std::vector<SlotWindow> windows_;
  SteadyClock clock_;
  StepObserver* observer_ = nullptr;
};

}  // namespace tp2
