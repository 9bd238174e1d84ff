#include "cmd/p2p-lifecycle/run.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/p2p-lifecycle/child.h"
#include "libcore/base/build_info.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"

namespace tp2::lifecycle {
namespace {

constexpr char kTool[] = "p2p-lifecycle";

absl::Status PrintList() {
  std::string text = "# case                 report     cards  claim\n";
  for (const CaseInfo& info : AllCases()) {
    absl::StrAppendFormat(&text, "%-22s %-10s %5d  %s%s\n", info.name, info.report, info.cards,
                          info.is_waived ? "waived: " : "", info.claim);
  }
  return PrintResult(text);
}

absl::StatusOr<std::vector<const CaseInfo*>> Choose(const Flags& flags) {
  std::vector<const CaseInfo*> chosen;
  for (const std::string& name : flags.cases) {
    const CaseInfo* info = FindCase(name);
    if (info == nullptr) {
      return MakeError(absl::StatusCode::kInvalidArgument, {.what = "--case",
                                                            .expected = "a name of --list",
                                                            .got = name,
                                                            .next = "see p2p-lifecycle --list"});
    }
    chosen.push_back(info);
  }
  if (!chosen.empty()) return chosen;
  for (const CaseInfo& info : AllCases()) {
    const bool is_wanted = !flags.options.model_dir.empty() && info.name == std::string("model");
    if (flags.is_full || info.is_quick || is_wanted) chosen.push_back(&info);
  }
  return chosen;
}

std::vector<std::string> ChildArguments(const CaseInfo& info, const CaseOptions& options) {
  std::vector<std::string> arguments = {"--child",
                                        "--case",
                                        info.name,
                                        "--protocol",
                                        options.protocol,
                                        "--cycles",
                                        absl::StrCat(options.cycles),
                                        "--collectives",
                                        absl::StrCat(options.collectives),
                                        "--max-words",
                                        absl::StrCat(options.max_words),
                                        "--seed",
                                        absl::StrCat(options.seed),
                                        "--timeout-ms",
                                        absl::StrCat(options.timeout_ms)};
  if (options.is_single_card) arguments.push_back("--single-card");
  if (options.is_swapped) arguments.push_back("--swapped");
  if (!options.model_dir.empty()) {
    arguments.insert(arguments.end(), {"--with-model", options.model_dir});
  }
  if (!options.gpus.empty()) {
    std::string list;
    for (const std::string& gpu : options.gpus) {
      absl::StrAppend(&list, list.empty() ? "" : ",", gpu);
    }
    arguments.insert(arguments.end(), {"--gpus", list});
  }
  return arguments;
}

Json ToJson(const CaseResult& result) {
  return {{"verdict", VerdictName(result.verdict)},
          {"reason", result.reason},
          {"details", result.details}};
}

CaseResult RunOne(const CaseInfo& info, const CaseOptions& options, int cards) {
  if (info.is_waived) return {Verdict::kWaived, info.claim, Json::object()};
  if (info.cards > cards) {
    return {Verdict::kWaived, absl::StrCat("needs ", info.cards, " cards"), Json::object()};
  }
  return RunInChild(info, ChildArguments(info, options));
}

absl::Status Write(const Flags& flags, const Json& document) {
  if (flags.json_path.empty()) return absl::OkStatus();
  const std::string text = document.dump(1) + "\n";
  if (flags.json_path == "-") return PrintResult(text);
  return WriteFileAtomically(flags.json_path, text,
                             flags.may_replace ? IfExists::kReplace : IfExists::kRefuse);
}

Json NewDocument(const char* schema, const Flags& flags, const CardCount& cards) {
  const BuildInfo build = GetBuildInfo();
  return {{"schema", schema},
          {"tool", {{"version", build.version}, {"git", build.git_id}}},
          {"cards", cards.cards},
          {"protocol", flags.options.protocol},
          {"single_card", flags.options.is_single_card},
          {"swapped", flags.options.is_swapped},
          {"cycles", flags.options.cycles},
          {"timeout_ms", flags.options.timeout_ms},
          {"seed", flags.options.seed}};
}

absl::StatusOr<bool> RunCases(const Flags& flags, const CardCount& cards) {
  TP2_ASSIGN_OR_RETURN(const std::vector<const CaseInfo*> chosen, Choose(flags));
  Json document = NewDocument("tp2-lifecycle/1", flags, cards);
  Json results = Json::array();
  const bool is_shown = flags.json_path != "-";
  const int usable = flags.options.is_single_card ? 1 : cards.count;
  int counts[3] = {};
  const SteadyClock clock;
  if (is_shown)
    TP2_RETURN_IF_ERROR(PrintResult("# verdict  case                    time  reason\n"));
  for (const CaseInfo* info : chosen) {
    const int64_t start_ns = clock.NowNs();
    const CaseResult result = RunOne(*info, flags.options, usable);
    const double seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
    ++counts[static_cast<int>(result.verdict)];
    Json entry = ToJson(result);
    entry["case"] = info->name;
    entry["report"] = info->report;
    entry["seconds"] = seconds;
    results.push_back(entry);
    if (!is_shown) continue;
    TP2_RETURN_IF_ERROR(
        PrintResult(absl::StrFormat("  %-7s  %-22s %5.1f  %s\n", VerdictName(result.verdict),
                                    info->name, seconds, result.reason)));
  }
  if (is_shown) {
    TP2_RETURN_IF_ERROR(PrintResult(
        absl::StrFormat("# %d passed, %d failed, %d waived\n", counts[0], counts[1], counts[2])));
  }
  document["cases"] = results;
  TP2_RETURN_IF_ERROR(Write(flags, document));
  return counts[1] == 0;
}

absl::StatusOr<bool> RunProbe(const Flags& flags, const CardCount& cards) {
  const CaseResult result = RunProbes(flags.options);
  Json document = NewDocument("tp2-probes/1", flags, cards);
  document["probes"] = result.details;
  if (flags.json_path != "-") {
    std::string text =
        absl::StrCat("# probes: ", VerdictName(result.verdict), " ", result.reason, "\n");
    for (const auto& [name, value] : result.details.items()) {
      absl::StrAppendFormat(&text, "  %-28s %s\n", name, value.dump());
    }
    TP2_RETURN_IF_ERROR(PrintResult(text));
  }
  TP2_RETURN_IF_ERROR(Write(flags, document));
  return result.verdict != Verdict::kFail;
}

}  // namespace

int Run(const Flags& flags) {
  if (flags.is_list) return ReportStatus(kTool, PrintList());
  if (flags.is_child) {
    const CaseInfo* info = flags.cases.size() == 1 ? FindCase(flags.cases.front()) : nullptr;
    if (info == nullptr) return kExitUsage;
    const CaseResult result = RunCase(*info, flags.options);
    return ReportStatus(kTool, PrintResult(ToJson(result).dump() + "\n"));
  }
  const CardCount cards = CountCards();
  const int needed = flags.options.is_single_card ? 1 : 2;
  if (cards.count < needed) {
    const std::string got = cards.why_none.empty() ? absl::StrCat(cards.count) : cards.why_none;
    return ReportStatus(kTool, MakeError(absl::StatusCode::kUnavailable,
                                         {.what = "cards",
                                          .expected = absl::StrCat("at least ", needed),
                                          .got = got,
                                          .next = "see --single-card and --list"}));
  }
  const absl::StatusOr<bool> passed =
      flags.is_probe ? RunProbe(flags, cards) : RunCases(flags, cards);
  if (!passed.ok()) return ReportStatus(kTool, passed.status());
  return *passed ? kExitOk : kExitCheckFailed;
}

}  // namespace tp2::lifecycle
