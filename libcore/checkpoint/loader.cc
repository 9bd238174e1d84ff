#include "libcore/checkpoint/loader.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/manifest.h"
#include "libcore/checkpoint/shard_set.h"
#include "libcore/checkpoint/tensor_binder.h"
#include "libcore/checkpoint/tensor_registry.h"
#include "libcore/checkpoint/value_checks.h"

namespace tp2 {
namespace {

class MappedCheckpoint final : public Checkpoint {
 public:
  MappedCheckpoint(DrafterConfig config, ShardSet shards)
      : config_(std::move(config)), shards_(std::move(shards)) {}

  absl::Status Bind(const std::string& model_dir);

  const DrafterConfig& config() const override { return config_; }
  const DrafterWeights& weights() const override { return weights_; }
  const std::vector<TensorView>& tensors() const override { return shards_.tensors; }

  Sha256Digest IdentityDigest() const override {
    std::call_once(identity_once_, [this] {
      ThreadPool pool;
      identity_ = IdentityOf(shards_.tensors, ContentDigests(shards_.tensors, pool));
    });
    return identity_;
  }

 private:
  DrafterConfig config_;
  ShardSet shards_;
  ExpandedTensors expanded_;
  DrafterWeights weights_;
  mutable std::once_flag identity_once_;
  mutable Sha256Digest identity_{};
};

MixWeights BindMix(TensorBinder& binder, const std::string& prefix) {
  return {.fn = binder.Floats(prefix + "_fn"),
          .base = binder.Floats(prefix + "_base"),
          .scale = binder.Floats(prefix + "_scale")};
}

ExpertWeights BindExpert(TensorBinder& binder, const std::string& prefix) {
  return {.w1 = binder.Matrix(prefix + "w1"),
          .w3 = binder.Matrix(prefix + "w3"),
          .w2 = binder.Matrix(prefix + "w2")};
}

StageWeights BindStage(TensorBinder& binder, const DrafterConfig& config, int stage) {
  const std::string prefix = StagePrefix(stage);
  const std::string attention = prefix + "attn.";
  StageWeights weights;
  weights.attn_mix = BindMix(binder, prefix + "hc_attn");
  weights.attn_norm = binder.Half(prefix + "attn_norm.weight");
  weights.wq_a = binder.Matrix(attention + "wq_a");
  weights.q_norm = binder.Half(attention + "q_norm.weight");
  weights.wq_b = binder.Matrix(attention + "wq_b");
  weights.wkv = binder.Matrix(attention + "wkv");
  weights.kv_norm = binder.Half(attention + "kv_norm.weight");
  weights.attn_sink = binder.Floats(attention + "attn_sink");
  weights.wo_a = binder.GroupedProjection(attention + "wo_a");
  weights.wo_b = binder.Matrix(attention + "wo_b");
  weights.ffn_mix = BindMix(binder, prefix + "hc_ffn");
  weights.ffn_norm = binder.Half(prefix + "ffn_norm.weight");
  weights.gate = binder.Half(prefix + "ffn.gate.weight");
  weights.gate_bias = binder.Floats(prefix + "ffn.gate.bias");
  if (config.arch == Arch::kV41) binder.SkipUnused(prefix + "ffn.gate.bias_vl");
  weights.shared = BindExpert(binder, prefix + "ffn.shared_experts.");
  for (int expert = 0; expert < config.experts && binder.status().ok(); ++expert) {
    weights.experts.push_back(BindExpert(binder, ExpertPrefix(stage, expert)));
  }
  return weights;
}

DrafterWeights BindAll(TensorBinder& binder, const DrafterConfig& config) {
  DrafterWeights weights;
  weights.embed = binder.Half("embed.weight");
  weights.main_proj = binder.Matrix(StagePrefix(0) + "main_proj");
  weights.main_norm = binder.Half(StagePrefix(0) + "main_norm.weight");
  for (int stage = 0; stage < config.stages && binder.status().ok(); ++stage) {
    weights.stages.push_back(BindStage(binder, config, stage));
  }
  const std::string last = StagePrefix(config.stages - 1);
  weights.final_norm = binder.Half(last + "norm.weight");
  weights.markov_embed = binder.Half(MarkovEmbedName(config));
  weights.markov_head = binder.Half(MarkovHeadName(config));
  weights.confidence = binder.Half(last + "confidence_head.proj.weight");
  if (config.arch == Arch::kV4) {
    weights.head_mix_fn = binder.Floats(last + "hc_head_fn");
    weights.head_mix_base = binder.Floats(last + "hc_head_base");
    weights.head_mix_scale = binder.Floats(last + "hc_head_scale");
  }
  weights.head = binder.Matrix("head");
  return weights;
}

// One past the largest N of `mtp.N.`; 0 without any.
int64_t StagesInFiles(const std::vector<TensorView>& tensors) {
  int64_t stages = 0;
  for (const TensorView& view : tensors) {
    if (!view.name.starts_with("mtp.")) continue;
    const char* begin = view.name.data() + 4;
    int64_t stage = 0;
    const auto parsed = std::from_chars(begin, view.name.data() + view.name.size(), stage);
    if (parsed.ec == std::errc() && *parsed.ptr == '.' && stage >= 0 && stage < INT32_MAX) {
      stages = std::max(stages, stage + 1);
    }
  }
  return stages;
}

// The two mistakes that would otherwise show as hundreds of missing or unexpected tensors.
absl::Status CheckKind(const std::vector<TensorView>& tensors, const DrafterConfig& config,
                       const std::string& model_dir) {
  const bool has_main_proj =
      std::any_of(tensors.begin(), tensors.end(),
                  [](const TensorView& view) { return view.name.starts_with("mtp.0.main_proj."); });
  if (!has_main_proj) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "tensor mtp.0.main_proj",
                      .expected = "the projection of the target's taps",
                      .got = "no such tensor",
                      .where = model_dir,
                      .next = "a plain MTP checkpoint cannot draft here; use a DSpark one"});
  }
  const int64_t stages = StagesInFiles(tensors);
  if (stages == config.stages) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "drafter stages",
                    .expected = absl::StrCat(config.stages, " by config.json"),
                    .got = absl::StrCat("tensors mtp.0 .. mtp.", stages - 1),
                    .where = model_dir,
                    .next = "check that config.json belongs to these files"});
}

absl::Status MappedCheckpoint::Bind(const std::string& model_dir) {
  TP2_RETURN_IF_ERROR(CheckKind(shards_.tensors, config_, model_dir));
  TensorBinder binder(config_, shards_.tensors, model_dir, expanded_);
  weights_ = BindAll(binder, config_);
  binder.Finish();
  TP2_RETURN_IF_ERROR(binder.status());
  ThreadPool pool;
  return RunValueChecks(binder.value_checks(), pool);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& model_dir) {
  TP2_ASSIGN_OR_RETURN(DrafterConfig config, LoadDrafterConfig(model_dir));
  TP2_ASSIGN_OR_RETURN(ShardSet shards, OpenShards(model_dir));
  auto checkpoint = std::make_unique<MappedCheckpoint>(std::move(config), std::move(shards));
  TP2_RETURN_IF_ERROR(checkpoint->Bind(model_dir));
  return checkpoint;
}

}  // namespace tp2
