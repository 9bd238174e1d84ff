#include "cmd/tp2-bench/pair_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/report/table.h"

namespace tp2::bench {
namespace {

double P50Ms(const Json& cell, const char* series) {
  return cell[series].is_null() ? 0 : cell[series]["p50"].get<double>() * 1e-3;
}

const Json* OneCardOf(const Json& result, const Json& pair) {
  for (const Json& cell : result["cells"]) {
    if (cell["mode"] == "one-card" && cell["requests"] == pair["requests"] &&
        cell["n_out"] == pair["n_out"]) {
      return &cell;
    }
  }
  return nullptr;
}

}  // namespace

std::string PairTable(const Json& result) {
  Table table({{"req", "(n)"},
               {"n_out", "(n)"},
               {"one card", "(ms)"},
               {"pair", "(ms)"},
               {"change", "(%)"},
               {"host wall", "(ms)"},
               {"change", "(%)"},
               {"rank 0", "(ms)"},
               {"rank 1", "(ms)"},
               {"collectives", "(ms)"}});
  bool is_empty = true;
  for (const Json& pair : result["cells"]) {
    const Json* one_card = pair["mode"] == "pair" ? OneCardOf(result, pair) : nullptr;
    if (one_card == nullptr) continue;
    is_empty = false;
    const double before = P50Ms(*one_card, "draft_device_us"), now = P50Ms(pair, "draft_device_us");
    const double host_before = P50Ms(*one_card, "step_host_us"),
                 host_now = P50Ms(pair, "step_host_us");
    const bool has_groups = pair.contains("groups");
    table.AddRow({absl::StrCat(pair["requests"].get<int>()), absl::StrCat(pair["n_out"].get<int>()),
                  FormatMs(before), FormatMs(now),
                  absl::StrFormat("%+.1f", 100 * (now / before - 1)), FormatMs(host_now),
                  absl::StrFormat("%+.1f", 100 * (host_now / host_before - 1)), FormatMs(now),
                  FormatMs(P50Ms(pair, "last_rank_draft_device_us")),
                  has_groups ? FormatMs(P50Ms(pair["groups"]["collectives"], "us")) : "-"});
  }
  if (is_empty) return "";
  return absl::StrCat(
      "#\n# pair against one card, p50; rank 0 and 1: between events of their streams, waits for\n"
      "# the other included; collectives: of rank 0, instrumented, waits included\n",
      table.Render());
}

}  // namespace tp2::bench
