#include "cmd/tp2-bench/list.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/bench/device_probe.h"
#include "libcore/report/output.h"

namespace tp2::bench {
namespace {

constexpr char kCases[] =
    "one-card   REQxN        one STEP of REQ requests drafting N positions, everything on one "
    "card\n"
    "solo       REQxN        the same for rank 0 and rank 1 of two, each alone with stand-ins\n"
    "emulated   REQxN        the same with both ranks on one card\n"
    "           REQxN+ROWS   with --insert-rows: the STEP inserts ROWS rows per request first\n"
    "insert     ROWS         the context insert of ROWS rows into one slot\n"
    "memory                  bytes per item and rank; nothing is timed\n";

}  // namespace

absl::Status PrintList() {
  std::string text = absl::StrCat("# cells\n", kCases, "# cards\n");
  const auto cards = ListCards();
  if (!cards.ok()) absl::StrAppend(&text, "# ", std::string(cards.status().message()), "\n");
  if (cards.ok()) {
    for (const CardFacts& card : *cards) {
      absl::StrAppendFormat(&text, "%s  %s  sm_%d  %d SM  %.1f GiB  L2 %d MiB\n", card.uuid,
                            card.name, card.capability, card.multiprocessors,
                            static_cast<double>(card.memory_bytes) / (1 << 30),
                            card.l2_bytes >> 20);
    }
  }
  return PrintResult(text);
}

}  // namespace tp2::bench
