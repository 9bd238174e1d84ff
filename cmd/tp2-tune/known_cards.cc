#include "cmd/tp2-tune/known_cards.h"

#include "absl/strings/str_join.h"
#include "libcore/base/check.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/device_probe.h"

namespace tp2::tune {
namespace {

struct Known {
  const char* flag;
  const char* name;
  int sm;
  int multiprocessors;
};
constexpr Known kKnown[] = {{"h200", "NVIDIA H200", 90, 132},
                            {"rtx3090", "NVIDIA GeForce RTX 3090", 86, 82}};

}  // namespace

std::vector<std::string> KnownCardFlags() {
  std::vector<std::string> flags;
  for (const Known& card : kKnown) flags.push_back(card.flag);
  return flags;
}

std::string KnownCardNames() { return absl::StrJoin(KnownCardFlags(), " or "); }

tuning::CardKind KnownCard(const std::string& name) {
  for (const Known& card : kKnown) {
    if (name == card.flag) return {card.name, card.sm, card.multiprocessors};
  }
  TP2_CHECK(false);
  return {};
}

absl::StatusOr<tuning::CardKind> FindCard(const std::string& name,
                                          const std::vector<std::string>& device_uuids) {
  if (!name.empty()) return KnownCard(name);
  TP2_ASSIGN_OR_RETURN(const std::vector<bench::CardFacts> cards,
                       bench::SelectCards(device_uuids, 1));
  return tuning::CardKind{cards[0].name, cards[0].capability, cards[0].multiprocessors};
}

}  // namespace tp2::tune
