#include "cmd/p2p-lifecycle/flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"
#include "libcore/config/env.h"

namespace tp2::lifecycle {
namespace {

void AddSelection(CLI::App& app, Flags& flags) {
  app.add_flag("--quick", flags.is_quick, "the short cases (default)")->group("Cases");
  app.add_flag("--full", flags.is_full, "all cases")->group("Cases");
  app.add_option("--case", flags.cases, "only these")->option_text("NAME ...")->group("Cases");
  app.add_flag_callback(
         "--legacy-capture", [&flags] { flags.cases.push_back("legacy-capture"); },
         "only the legacy-stream capture reproduction")
      ->group("Cases");
  app.add_flag_callback(
         "--allocator-import", [&flags] { flags.cases.push_back("allocator-import"); },
         "only the expandable-segments reproduction")
      ->group("Cases");
  app.add_option("--with-model", flags.options.model_dir,
                 "adds the case with a drafter, over this checkpoint")
      ->option_text("DIR")
      ->group("Cases");
  app.add_flag("--isolate", flags.is_isolated, "a fresh process for each case (always so)")
      ->group("Cases");
  app.add_flag("--list", flags.is_list, "names and claims; runs nothing")->group("Cases");
  app.add_flag("--child", flags.is_child, "run one case in this process")->group("");
}

void AddHardware(CLI::App& app, CaseOptions& options) {
  app.add_option("--gpus", options.gpus, "by rank; the first two cards without it")
      ->delimiter(',')
      ->option_text("UUID,UUID")
      ->group("Hardware");
  app.add_flag("--swapped", options.is_swapped, "ranks on the cards in reverse order")
      ->group("Hardware");
  app.add_flag("--single-card", options.is_single_card, "both ranks on one card")
      ->group("Hardware");
  app.add_option("--protocol", options.protocol, "line or ack")
      ->check(CLI::IsMember({"line", "ack"}))
      ->option_text("NAME [line]")
      ->group("Hardware");
  app.add_option("--timeout-ms", options.timeout_ms, "deadline of each wait; DSPARK_TP_TIMEOUT_MS")
      ->check(CLI::Range(10, 60000))
      ->option_text("N [2000]")
      ->group("Hardware");
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  CaseOptions& options = flags.options;
  cmd::SetUpApp(app, "p2p-lifecycle", "qualify peer state, capture and teardown");
  AddSelection(app, flags);
  AddHardware(app, options);
  app.add_option("--cycles", options.cycles, "of the lifecycle case")
      ->check(CLI::Range(1, 1000))
      ->option_text("N [2]")
      ->group("Measurement");
  app.add_option("--collectives", options.collectives, "of the soak")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->option_text("N [1000000]")
      ->group("Measurement");
  app.add_option("--max-words", options.max_words, "largest all-reduce")
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 24))
      ->option_text("N [163840]")
      ->group("Measurement");
  app.add_option("--seed", options.seed, "of payloads and scripts")
      ->option_text("N [1]")
      ->group("Measurement");
  app.add_option("--json", flags.json_path, "write JSON, - for stdout")
      ->option_text("FILE|-")
      ->group("Output");
  app.add_flag("--force", flags.may_replace, "replace an existing JSON file")->group("Output");
  CLI::App* probe = app.add_subcommand("probe", "latencies, rates and torn lines of the link");
  probe->callback([&flags] { flags.is_probe = true; });
  probe->fallthrough();
  app.footer(
      absl::StrCat("Examples:\n"
                   "  p2p-lifecycle --full --cycles 5 --json pair.json\n"
                   "  p2p-lifecycle --single-card --case faults\n"
                   "  p2p-lifecycle --with-model DIR --case model --cycles 5\n"
                   "  p2p-lifecycle probe --json probes.json\n",
                   cmd::kExitCodesHelp));
  // An environment variable is the default of its flag.
  int from_environment = 0;
  const auto text = config::ReadVariable("DSPARK_TP_TIMEOUT_MS");
  if (text.has_value() && absl::SimpleAtoi(*text, &from_environment) && from_environment >= 10) {
    options.timeout_ms = from_environment;
  }
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::lifecycle
