#include "cmd/run-owned/flags.h"

#include <algorithm>
#include <deque>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"
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

struct OptionTexts {
  std::deque<std::string> texts;
  std::deque<bool> switches;
  std::vector<CLI::Option*> options;
};

const char* ValueText(const config::SettingSpec& spec) {
  switch (spec.kind) {
    case config::SettingKind::kInteger:
      return "N";
    case config::SettingKind::kChoice:
      return spec.choices;
    default:
      return "TEXT";
  }
}

void AddOptions(CLI::App& app, OptionTexts& given, Flags& flags) {
  for (const config::SettingSpec& spec : OptionSpecs()) {
    const std::string name = absl::StrCat("--", spec.name);
    std::string& text = given.texts.emplace_back();
    bool& is_set = given.switches.emplace_back(false);
    CLI::Option* option = nullptr;
    if (spec.kind == config::SettingKind::kBoolean) {
      option = app.add_flag(name, is_set, spec.help);
    } else {
      const std::string fallback =
          *spec.default_text == '\0' ? "" : absl::StrCat(" [", spec.default_text, "]");
      option = app.add_option(name, text, spec.help)
                   ->option_text(absl::StrCat(ValueText(spec), fallback));
    }
    given.options.push_back(option->group(spec.group));
  }
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
  OptionTexts solo_given;
  OptionTexts pair_given;
  CLI::App* solo = app.add_subcommand("solo", "one card: run-owned solo [options] -- COMMAND");
  CLI::App* pair = app.add_subcommand("pair", "two cards: run-owned pair [options] -- COMMAND");
  AddOptions(*solo, solo_given, flags);
  AddOptions(*pair, pair_given, flags);
  std::optional<int> code = cmd::ParseFlags(app, static_cast<int>(split - argv), argv);
  if (code == kExitUsage) code = kExitOwnFailure;
  flags.mode = pair->parsed() ? Mode::kPair : Mode::kSolo;
  const OptionTexts& given = pair->parsed() ? pair_given : solo_given;
  for (size_t i = 0; i < given.options.size(); ++i) {
    if (given.options[i]->count() == 0) continue;
    const config::SettingSpec& spec = OptionSpecs()[i];
    flags.given.push_back(
        {.name = spec.name,
         .text = spec.kind == config::SettingKind::kBoolean ? "true" : given.texts[i],
         .origin = config::Origin::kFlag,
         .where = absl::StrCat("--", spec.name)});
  }
  return code;
}

}  // namespace tp2::owned
