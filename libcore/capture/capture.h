// A capture (schema dspark-capture/1): what an engine fed its drafter and what it drafted, round by
// round, so that any drafter can be held against it later and elsewhere. A folder with capture.json
// and safetensors shards; cmd/tp2-parity/README.md is the format's description for writers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libcore/math/bf16.h"
#include "libcore/model/drafter_config.h"

namespace tp2 {

inline constexpr char kCaptureSchema[] = "dspark-capture/1";
inline constexpr char kCaptureIndexFile[] = "capture.json";

// Which rows a capture holds; it may hold both.
enum class CaptureWindow : uint8_t {
  kMainX,  // A: main_x, already projected and normed by the engine
  kTaps,   // B: the target's taps, from which the drafter computes main_x (production)
};

const char* CaptureWindowName(CaptureWindow window);  // "A", "B"

struct CaptureInfo {
  std::string model_identity;                // 64 hex digits: SHA-256 of the checkpoint's manifest
  std::string engine;                        // who drafted
  std::optional<uint64_t> numerics_version;  // when the engine's drafter was one of ours
  // Sizes of the drafter.
  int dim = 0;
  int tap_values = 0;
  int vocab = 0;
  int stages = 0;
  int experts = 0;
  int experts_per_token = 0;
  int window = 0;
  bool has_main_x = false;
  bool has_taps = false;
  // What optional tensors every shard has.
  bool has_logits = false;
  bool has_confidence = false;
  bool has_margins = false;
  bool has_routing = false;
};

CaptureInfo CaptureInfoOf(const DrafterConfig& config);  // sizes only

// One request of a round. Spans are empty where the capture does not hold the tensor.
struct CaptureBlock {
  int slot = 0;
  std::optional<int64_t> base;  // the slot was reset to this position before the round
  int64_t position = 0;         // of the first inserted row
  int row_count = 0;
  std::span<const Bf16> main_x;  // [row_count, dim]
  std::span<const Bf16> taps;    // [row_count, tap_values]
  int32_t anchor = 0;
  std::array<int32_t, kBlockRows> drafts{};  // -1 at and beyond n_out
  std::span<const float> logits;             // [kBlockRows, vocab] biased, before the argmax
  std::span<const float> confidence;         // [kBlockRows]
  std::span<const float> margins;            // [kBlockRows] best minus second best biased logit
  std::span<const int32_t> experts;          // [stages, kBlockRows, experts_per_token]
  // [stages, kBlockRows]: score of the last chosen expert minus that of the first not chosen.
  std::span<const float> route_margins;
};

struct CaptureRound {
  int n_out = 0;
  std::vector<CaptureBlock> blocks;  // 1 .. kMaxRequests, distinct slots, in request order
};

}  // namespace tp2
