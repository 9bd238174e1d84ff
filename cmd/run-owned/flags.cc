#include "cmd/run-owned/flags.h"

#include <algorithm>
#include <string_view>

#include "cmd/common/flags.h"
#include "cmd/common/setting_flags.h"
#include "cmd/run-owned/verdict.h"
#include "libcore/report/exit_code.h"

namespace tp2::owned {
namespace {

constexpr char kFooter[] =
    "Takes the locks of all cards or of none, starts the command in a process group and control\n"
    "group of its own, samples every card once a second, and ends that job alone: TERM, grace,\n"
    "KILL. Nothing of it is alive at the cap. Never touches services, clocks or power limits,\n"
    "never creates the permit. A pair always needs a permit, a solo run only when --permit is\n"
    "given.\n"
    "Examples:\n"
    "  run-owned pair --gpus c4e7a371,7744b44b --log run.log -- tp2-bench pair --json pair.json\n"
    "  run-owned solo --gpus 7744b44b --log solo.log --cap-ms 60000 -- ./probe\n"
    "  run-owned pair --gpus c4e7a371,7744b44b --log run.log --dry-run -- tp2-bench pair\n"
    "Exit codes: the command's own; 123 the permit does not name us (any more), 124 the cap,\n"
    "125 run-owned refused or failed, 126/127 the command cannot run, 128+n ended by signal n.\n"
    "The verdict in the summary tells them apart from the command's own numbers.";

void AddSwitches(CLI::App& app, Flags& flags) {
  app.add_flag("-n,--dry-run", flags.is_dry_run, "check everything, take and start nothing")
      ->group("Output");
  app.add_flag("--print-config", flags.only_prints_config, "each value and where it came from")
      ->group("Output");
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  // The command's own flags are none of ours.
  const char* const* const end = argv + argc;
  const char* const* const split =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (split != end) flags.command.assign(split + 1, end);

  CLI::App app;
  cmd::SetUpApp(app, "run-owned", "run a command on borrowed cards and leave nothing behind");
  app.require_subcommand(1);
  app.footer(kFooter);
  CLI::App* solo = app.add_subcommand("solo", "one card: run-owned solo [options] -- COMMAND");
  CLI::App* pair = app.add_subcommand("pair", "two cards: run-owned pair [options] -- COMMAND");
  const cmd::SettingFlags solo_given(*solo, OptionSpecs(Mode::kSolo), cmd::BooleanForm::kSwitch);
  const cmd::SettingFlags pair_given(*pair, OptionSpecs(Mode::kPair), cmd::BooleanForm::kSwitch);
  AddSwitches(*solo, flags);
  AddSwitches(*pair, flags);
  std::optional<int> code = cmd::ParseFlags(app, static_cast<int>(split - argv), argv);
  if (code == kExitUsage) code = kExitOwnFailure;
  flags.mode = pair->parsed() ? Mode::kPair : Mode::kSolo;
  flags.given = pair->parsed() ? pair_given.Given() : solo_given.Given();
  return code;
}

}  // namespace tp2::owned
