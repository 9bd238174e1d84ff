// Sizes and switches of one drafter, read once from a Hugging Face config.json, validated, then
// immutable. One struct covers V4.1-Flash (arch v41), V4-Flash and V4-Pro (arch v4) and the tiny
// shapes; `arch` is the only switch that is not a number. Source of every field: research note
// dspark-model, section 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tp2 {

inline constexpr int kBlockRows =
    5;  // rows the drafter was trained with; more or fewer change every row
inline constexpr int kMaxRequests = 4;  // requests of one STEP
inline constexpr int kSlotCount = 8;
inline constexpr int kRingSlack =
    16;  // ring rows beyond the window: a rollback of up to 16 keeps a full window
inline constexpr int kMaxRowsPerMessage = 128;
// Longest sequence of the models, and the smaller of the two lengths that production uses (its RoPE
// table takes 84 MB).
inline constexpr int64_t kMaxModelLength = 1'048'576;
inline constexpr int64_t kDefaultModelLength = 327'680;
inline constexpr int kHadamardBlock = 128;  // EXL3 dimensions are multiples of this

enum class Arch { kV41, kV4 };

// Whether KV rows pass through the reference's e4m3 rounding before they are stored.
enum class KvFakeQuant { kReference, kNone };

struct DrafterConfig {
  Arch arch = Arch::kV41;
  int dim = 0;
  int trunk_layers = 0;
  int stages = 0;
  int vocab = 0;
  int heads = 0;
  int head_dim = 0;
  int rope_dims = 0;
  int q_lora_rank = 0;
  int o_groups = 0;
  int o_lora_rank = 0;
  int experts = 0;  // the drafter's own bank, not the trunk's
  int experts_per_token = 0;
  int moe_inter = 0;
  float route_scale = 0;
  float swiglu_limit = 0;
  int window = 0;
  double rope_theta = 0;
  float norm_eps = 0;
  int sinkhorn_iterations = 0;
  float hc_eps = 0;
  int noise_token = 0;
  std::vector<int> target_layers;  // layers whose streams the engine taps, ascending
  int markov_rank = 0;
  KvFakeQuant kv_fake_quant = KvFakeQuant::kReference;

  int ring_rows() const { return window + kRingSlack; }
  int tap_count() const { return static_cast<int>(target_layers.size()); }
  int tap_values() const { return tap_count() * dim; }  // bf16 values of one tap row
  int query_values() const { return heads * head_dim; }
  int group_inputs() const { return query_values() / o_groups; }  // wo_a inputs of one group
  int output_values() const { return o_groups * o_lora_rank; }    // wo_b inputs
  int fp8_block() const {
    return arch == Arch::kV41 ? 32 : 128;
  }  // wo_a scale block, both directions
  int fake_quant_group() const { return arch == Arch::kV41 ? 32 : 64; }
  // Leading dimensions of a KV row that the fake quantization covers: all for v41, the unrotated
  // ones for v4.
  int fake_quant_dims() const { return arch == Arch::kV41 ? head_dim : head_dim - rope_dims; }

  // `key=value` lines, sorted: what client and worker must agree on beside the checkpoint itself.
  std::string Canonical() const;
};

const char* ArchName(Arch arch);                // "v41", "v4"
const char* KvFakeQuantName(KvFakeQuant mode);  // "reference", "none"

// Parses a config.json text; `where` names it in errors. Errors: kInvalidArgument naming the field.
absl::StatusOr<DrafterConfig> ParseDrafterConfig(std::string_view json_text,
                                                 const std::string& where);

// Reads DIR/config.json.
absl::StatusOr<DrafterConfig> LoadDrafterConfig(const std::string& model_dir);

// Cross-field rules (multiples of 128, ranges, block size 5, ...). Errors: kInvalidArgument naming
// the field.
absl::Status ValidateDrafterConfig(const DrafterConfig& config, const std::string& where);

}  // namespace tp2
