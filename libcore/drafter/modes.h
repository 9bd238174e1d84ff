// Modes as data: which ranks run, and how their halves meet.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tp2 {

enum class Collective {
  kReference,  // all ranks in one place: add and compare
  kStandIn,    // one rank alone: its own half and its own best stand in for the partner's
  kHostPair,   // two threads and the collective protocol
  kPair,       // two cards and the collective protocol
};

struct Mode {
  const char* name;
  int tp;
  int first_rank;
  int rank_count;  // active ranks, from first_rank on
  Collective collective;
  bool has_real_bits;  // false: stand-ins; for times, never for drafts
};

std::span<const Mode> Modes();

// "one-card, solo-0, ...", for help texts and errors.
std::string ModeNames();

// Errors: kInvalidArgument.
absl::StatusOr<Mode> FindMode(std::string_view name);

}  // namespace tp2
