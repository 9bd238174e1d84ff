#include "cmd/dspark-selftest/rounds.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/clock.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/table.h"

namespace tp2::selftest {

absl::StatusOr<std::string> RenderRounds(Twin* twin, int rounds, uint64_t seed) {
  Table table({{"round", ""},
               {"length", "(rows)"},
               {"window", "(rows)"},
               {"anchor", "(token)"},
               {"drafts", "(tokens)"},
               {"confidence", "(logits)"},
               {"time", "(ms)"}});
  const SteadyClock clock;
  Rng rng(seed);
  TP2_ASSIGN_OR_RETURN(TwinSlot slot, twin->Open(0, 0));
  uint32_t anchor =
      static_cast<uint32_t>(rng.Below(static_cast<uint64_t>(twin->engine().info().config.vocab)));
  for (int round = 0; round < rounds; ++round) {
    const int new_rows = 1 + static_cast<int>(rng.Below(kBlockRows + 1));
    const StepPart part{&slot, slot.length, new_rows, anchor};
    const BuiltStep step = twin->Build({&part, 1}, kBlockRows);
    const int64_t begin_ns = clock.NowNs();
    TP2_ASSIGN_OR_RETURN(const auto answer, twin->client().Step(step.message));
    const double ms = static_cast<double>(clock.NowNs() - begin_ns) / 1e6;
    TP2_RETURN_IF_ERROR(ExpectCode("STEP", contract::Code::kOk, answer.code));
    const contract::StepReplyEntry& entry = answer.value->entries[0];
    std::string drafts;
    std::string confidence;
    for (int i = 0; i < kBlockRows; ++i) {
      absl::StrAppend(&drafts, i == 0 ? "" : " ", entry.tokens[i]);
      absl::StrAppend(&confidence, i == 0 ? "" : " ",
                      absl::StrFormat("%+.2f", entry.confidence[i]));
    }
    table.AddRow({absl::StrCat(round), absl::StrCat(entry.length), absl::StrCat(entry.window_rows),
                  absl::StrCat(anchor), drafts, confidence, FormatMs(ms)});
    slot.length = static_cast<int64_t>(entry.length);
    anchor = static_cast<uint32_t>(entry.tokens[new_rows % kBlockRows]);
  }
  TP2_RETURN_IF_ERROR(twin->Close(slot));
  return table.Render();
}

}  // namespace tp2::selftest
