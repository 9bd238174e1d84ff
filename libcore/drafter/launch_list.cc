#include "libcore/drafter/launch_list.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/exl3/matrix.h"
#include "libcore/ops/graph_key.h"
#include "libcore/shard/memory_report.h"
#include "libcore/shard/shard_plan.h"

namespace tp2 {
namespace {

using tuning::ProductLaunch;

constexpr char kSlice[] = ".slice.";
constexpr std::string_view kTrellis = ".trellis";

struct Matrix {
  MatrixForm form;
  int outputs = 0;
};

// Collects the launches of one operation after the other.
class Collector {
 public:
  explicit Collector(bool joins_products) : at_once_(joins_products ? kJoinedProducts : 1) {}

  // Products of equal k and rows.
  void Add(const std::string& what, int k, int rows, std::span<const Matrix> matrices) {
    for (size_t begin = 0; begin < matrices.size(); begin += at_once_) {
      const auto part = matrices.subspan(begin, std::min(at_once_, matrices.size() - begin));
      for (int done = 0; done < rows; done += tuning::kMaxPassRows) {
        AddLaunch(what, k, std::min(tuning::kMaxPassRows, rows - done), part);
      }
    }
  }

  void set_is_insert(bool is_insert) { is_insert_ = is_insert; }
  std::vector<ProductLaunch> Take() { return std::move(launches_); }

 private:
  void AddLaunch(const std::string& what, int k, int rows, std::span<const Matrix> matrices) {
    std::map<int, std::vector<int>> by_width;
    int max_outputs = 0;
    for (const Matrix& matrix : matrices) {
      if (matrix.form.is_integer) by_width[matrix.form.bits].push_back(matrix.outputs);
      max_outputs = std::max(max_outputs, matrix.outputs);
    }
    for (const auto& [bits, outputs] : by_width) {
      ProductLaunch launch = {
          what, bits, k, outputs, static_cast<int>(matrices.size()), max_outputs, rows, is_insert_};
      if (seen_.insert(launch.key()).second) launches_.push_back(std::move(launch));
    }
  }

  size_t at_once_;
  bool is_insert_ = false;
  std::set<tuning::ProductKey> seen_;
  std::vector<ProductLaunch> launches_;
};

void AddStage(const DrafterConfig& config, const ShardPlan& plan, const MatrixForms& forms,
              int stage, int rows, Collector& list) {
  const std::string attn = StagePrefix(stage) + "attn.";
  const std::string shared = StagePrefix(stage) + "ffn.shared_experts.";
  const Matrix down[] = {{forms(attn + "wq_a"), config.q_lora_rank},
                         {forms(attn + "wkv"), config.head_dim}};
  list.Add("wq_a + wkv", config.dim, rows, down);
  const Matrix wq_b = {forms(attn + "wq_b"), plan.heads.count() * config.head_dim};
  list.Add("wq_b", config.q_lora_rank, rows, {&wq_b, 1});
  std::vector<Matrix> slices;
  for (int group = plan.groups.begin; group < plan.groups.end; ++group) {
    const MatrixForm form = forms(absl::StrCat(attn, "wo_a", kSlice, group));
    if (form.bits != 0) slices.push_back({form, config.o_lora_rank});
  }
  list.Add("wo_a", config.group_inputs(), rows, slices);
  const std::vector<Matrix> up(plan.halves.count(), {forms(attn + "wo_b"), config.dim});
  list.Add("wo_b", HalfOf(config.output_values(), 0).count(), rows, up);
  const Matrix gate_up[] = {{forms(shared + "w1"), plan.channels.count()},
                            {forms(shared + "w3"), plan.channels.count()}};
  list.Add("shared w1 + w3", config.dim, rows, gate_up);
  const std::vector<Matrix> w2(plan.halves.count(), {forms(shared + "w2"), config.dim});
  list.Add("shared w2", HalfOf(config.moe_inter, 0).count(), rows, w2);
}

void AddInsert(const DrafterConfig& config, const MatrixForms& forms, int rows, Collector& list) {
  const Matrix main_proj = {forms(StagePrefix(0) + "main_proj"), config.dim};
  list.Add("main_proj", config.tap_values(), rows, {&main_proj, 1});
  std::vector<Matrix> wkv;
  for (int stage = 0; stage < config.stages; ++stage) {
    wkv.push_back({forms(StagePrefix(stage) + "attn.wkv"), config.head_dim});
  }
  list.Add("wkv of the stages", config.dim, rows, wkv);
}

void AddRank(const DrafterConfig& config, const ShardPlan& plan, const MatrixForms& forms,
             Collector& list) {
  for (int requests = 1; requests <= kMaxRequests; ++requests) {
    for (int stage = 0; stage < config.stages; ++stage) {
      AddStage(config, plan, forms, stage, requests * kBlockRows, list);
    }
    const Matrix head = {forms("head"), plan.vocab.count()};
    // The most rows of a bucket first: those are timed.
    for (int n_out = kBlockRows; n_out >= 1; --n_out) {
      list.Add("head", config.dim, requests * n_out, {&head, 1});
    }
  }
  list.set_is_insert(true);
  for (const int rows : kInsertBuckets) AddInsert(config, forms, rows, list);
  list.set_is_insert(false);
}

// What the map has, else no EXL3 matrix.
MatrixForms LookUp(std::map<std::string, MatrixForm> all) {
  const auto shared = std::make_shared<const std::map<std::string, MatrixForm>>(std::move(all));
  return [shared](const std::string& name) {
    const auto found = shared->find(name);
    return found == shared->end() ? MatrixForm() : found->second;
  };
}

}  // namespace

MatrixForms MissionForms(const DrafterConfig& config) {
  std::map<std::string, MatrixForm> all;
  for (const TensorRule& rule : ExpectedTensors(config)) {
    if (rule.storage == Storage::kExl3) all[rule.name] = {MissionForm(rule, config).bits};
  }
  return LookUp(std::move(all));
}

MatrixForms FormsIn(const std::vector<TensorView>& tensors) {
  std::map<std::string, MatrixForm> all;
  std::set<std::string> names;
  for (const TensorView& view : tensors) names.insert(view.name);
  for (const TensorView& view : tensors) {
    if (!view.name.ends_with(kTrellis) || view.shape.size() != 3) continue;
    const std::string name = view.name.substr(0, view.name.size() - kTrellis.size());
    all[name] = {static_cast<int>(view.shape[2] / exl3::kTile), names.count(name + ".mul1") > 0};
  }
  return LookUp(std::move(all));
}

std::vector<tuning::KernelKey> LaunchList::Keys() const {
  std::vector<tuning::KernelKey> keys;
  for (const ProductLaunch& launch : products) {
    if (launch.has_room_for_sums()) keys.push_back(launch.key());
  }
  keys.insert(keys.end(), reduces.begin(), reduces.end());
  return keys;
}

absl::StatusOr<LaunchList> ListLaunches(const DrafterConfig& config, std::span<const int> tps,
                                        const MatrixForms& forms, bool joins_products) {
  Collector list(joins_products);
  LaunchList launches;
  for (const int tp : tps) {
    for (int rank = 0; rank < tp; ++rank) {
      TP2_ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(config, tp, rank));
      AddRank(config, plan, forms, list);
    }
    for (int requests = 1; tp > 1 && requests <= kMaxRequests; ++requests) {
      launches.reduces.push_back({int64_t{requests} * kBlockRows * config.dim});
    }
  }
  launches.products = list.Take();
  return launches;
}

}  // namespace tp2
