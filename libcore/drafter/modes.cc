#include "libcore/drafter/modes.h"

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"

namespace tp2 {
namespace {

constexpr Mode kModes[] = {
    {"one-card", 1, 0, 1, Collective::kReference, true},
    {"solo-0", 2, 0, 1, Collective::kStandIn, false},
    {"solo-1", 2, 1, 1, Collective::kStandIn, false},
    {"emulated", 2, 0, 2, Collective::kReference, true},
    {"host-pair", 2, 0, 2, Collective::kHostPair, true},
    {"pair", 2, 0, 2, Collective::kPair, true},
};

}  // namespace

std::span<const Mode> Modes() { return kModes; }

std::string ModeNames() {
  std::string names;
  for (const Mode& mode : kModes) absl::StrAppend(&names, names.empty() ? "" : ", ", mode.name);
  return names;
}

absl::StatusOr<Mode> FindMode(std::string_view name) {
  for (const Mode& mode : kModes) {
    if (name == mode.name) return mode;
  }
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "mode", .expected = ModeNames(), .got = std::string(name), .where = "", .next = ""});
}

}  // namespace tp2
