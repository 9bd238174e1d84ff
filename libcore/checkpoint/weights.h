// Every weight of a drafter as typed views into the mapped checkpoint. Filled by the loader, which
// has checked completeness, dtypes, shapes, alignment and finiteness: code that holds one of these
// need not check again.
#pragma once

#include <cstdint>
#include <vector>

#include "libcore/exl3/matrix.h"
#include "libcore/math/bf16.h"
#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"

namespace tp2 {

// A 16-bit float matrix or vector, row-major, in either of the two 16-bit types that packs use.
struct Half16View {
  const uint16_t* bits = nullptr;
  bool is_fp16 = false;  // else bf16
  int rows = 1;
  int columns = 0;

  float At(int64_t index) const {
    return is_fp16 ? ToFloat(Fp16{bits[index]}) : ToFloat(Bf16{bits[index]});
  }
};

// Hyper-connection parameters of one sublayer (mathematics in math/mixing.h).
struct MixWeights {
  const float* fn = nullptr;     // [24, 4*dim] fp32
  const float* base = nullptr;   // [24] fp32
  const float* scale = nullptr;  // [3] fp32
};

// The grouped output projection, in one of two stored forms.
struct OutputProjection {
  // FP8 form: [o_groups * o_lora_rank, group_inputs] e4m3 and one fp32 power of two per block x
  // block square, [rows / block, columns / block]. Null when the pack stores EXL3 slices.
  const Fp8E4m3* fp8 = nullptr;
  const float* fp8_scale = nullptr;
  int fp8_block = 0;
  // EXL3 form: one [group_inputs -> o_lora_rank] matrix per group. Empty for the FP8 form.
  std::vector<exl3::MatrixView> slices;
};

struct ExpertWeights {
  exl3::MatrixView w1;  // gate: dim -> moe_inter
  exl3::MatrixView w3;  // up: dim -> moe_inter
  exl3::MatrixView w2;  // down: moe_inter -> dim
};

struct StageWeights {
  exl3::MatrixView wq_a, wq_b, wkv, wo_b;
  OutputProjection wo_a;
  Half16View q_norm, kv_norm, attn_norm, ffn_norm;
  const float* attn_sink = nullptr;  // [heads] fp32, raw logits
  MixWeights attn_mix, ffn_mix;
  Half16View gate;                   // [experts, dim]
  const float* gate_bias = nullptr;  // [experts] fp32, selection only
  std::vector<ExpertWeights> experts;
  ExpertWeights shared;
};

struct DrafterWeights {
  Half16View embed;            // [vocab, dim]
  exl3::MatrixView head;       // dim -> vocab
  exl3::MatrixView main_proj;  // tap_values -> dim
  Half16View main_norm, final_norm;
  std::vector<StageWeights> stages;
  Half16View markov_embed, markov_head;  // [vocab, markov_rank]
  Half16View confidence;                 // [1, dim + markov_rank]
  // arch v4 only: the learned collapse in front of the head; null for v41.
  const float* head_mix_fn = nullptr;     // [4, 4*dim] fp32
  const float* head_mix_base = nullptr;   // [4] fp32
  const float* head_mix_scale = nullptr;  // [1] fp32
};

}  // namespace tp2
