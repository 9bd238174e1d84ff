// One shard of a capture: a safetensors file whose bytes may be hostile, as checked spans. A shard
// covers whole rounds; offsets count within it.
//
//   round_blocks  I64 [rounds + 1]           blocks of round r: round_blocks[r] .. [r + 1] - 1
//   n_out         I32 [rounds]               drafts asked for, 1 .. 5
//   slots         I32 [blocks]               0 .. 7, distinct within a round
//   bases         I64 [blocks]               slot reset to this position before the round; -1: none
//   positions     I64 [blocks]               of the block's first inserted row
//   row_offsets   I64 [blocks + 1]           rows of block b: row_offsets[b] .. [b + 1] - 1
//   anchors       I32 [blocks]
//   drafts        I32 [blocks, 5]            -1 at and beyond n_out
//   rows.A        BF16 [rows, dim]           when the capture has window A
//   rows.B        BF16 [rows, tap_values]    when it has window B
// and where capture.json lists them under "optional":
//   logits        F32 [blocks, 5, vocab]     confidence  F32 [blocks, 5]     margins  F32 [blocks,
//   5] experts       I32 [blocks, stages, 5, experts_per_token]     \ "routing" route_margins F32
//   [blocks, stages, 5]                        /
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "libcore/capture/capture.h"

namespace tp2 {

struct CaptureShard {
  std::span<const int64_t> round_blocks;
  std::span<const int32_t> n_out;
  std::span<const int32_t> slots;
  std::span<const int64_t> bases;
  std::span<const int64_t> positions;
  std::span<const int64_t> row_offsets;
  std::span<const int32_t> anchors;
  std::span<const int32_t> drafts;
  std::span<const Bf16> main_x, taps;
  std::span<const float> logits, confidence, margins, route_margins;
  std::span<const int32_t> experts;

  int64_t round_count() const { return static_cast<int64_t>(n_out.size()); }
  int64_t block_count() const { return static_cast<int64_t>(slots.size()); }
};

// Views into `bytes`, 8-byte aligned as maps are. Checks the format, every offset, every range and
// that rows and optional values are finite; what spans rounds (gaps, rollbacks) is the reader's.
// Errors: kInvalidArgument, kDataLoss, one line each.
absl::StatusOr<CaptureShard> ParseCaptureShard(std::span<const std::byte> bytes,
                                               const CaptureInfo& info, const std::string& where);

// Round `round` of the shard.
CaptureRound RoundOf(const CaptureShard& shard, const CaptureInfo& info, int64_t round);

}  // namespace tp2
