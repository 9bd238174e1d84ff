#include "cmd/tp2-tune/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"
#include "cmd/tp2-tune/known_cards.h"

namespace tp2::tune {
namespace {

void AddModel(CLI::App* sub, Flags& flags) {
  sub->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
}

void AddConfigOnly(CLI::App* sub, Flags& flags) {
  sub->add_flag("--config-only", flags.is_config_only,
                "widths of the mission's pack: config.json is enough")
      ->group("Input");
}

void AddTp(CLI::App* sub, Flags& flags, const std::string& fallback) {
  sub->add_option("--tp", flags.tps, "numbers of ranks; several with commas")
      ->check(CLI::Range(1, 2))
      ->delimiter(',')
      ->option_text(absl::StrCat("LIST [", fallback, "]"))
      ->group("Input");
}

void AddCard(CLI::App* sub, Flags& flags) {
  sub->add_option("--card", flags.card, absl::StrCat(KnownCardNames(), "; else this machine's"))
      ->check(CLI::IsMember(KnownCardFlags()))
      ->option_text("NAME")
      ->group("Hardware");
}

void AddGpu(CLI::App* sub, Flags& flags, const std::string& help) {
  sub->add_option("--gpu", flags.device_uuids, help)
      ->delimiter(',')
      ->option_text("UUID[,UUID]")
      ->group("Hardware");
}

void AddOnly(CLI::App* sub, Flags& flags) {
  sub->add_option("--only", flags.only, "a key, or its first parts, as in product/K6")
      ->option_text("KEY")
      ->group("Input");
}

void AddPath(CLI::App* sub, const char* name, std::string& path) {
  sub->add_option(name, path, "kernel table")->required()->option_text(" ")->group("Input");
}

std::string Footer(const std::string& examples) {
  return absl::StrCat("Examples:\n", examples, cmd::kExitCodesHelp);
}

void AddPlan(CLI::App& app, Flags& flags) {
  CLI::App* sub =
      app.add_subcommand("plan", "launches, candidates, and why others are not; no GPU needed");
  AddModel(sub, flags);
  AddConfigOnly(sub, flags);
  AddTp(sub, flags, "1,2");
  AddOnly(sub, flags);
  AddCard(sub, flags);
  AddGpu(sub, flags, "one of this machine's");
  sub->add_option("--json", flags.json_path,
                  "write the safe choices as a table, derived and not measured")
      ->option_text("FILE")
      ->group("Output");
  sub->footer(
      Footer("  tp2-tune plan --model MODEL --card h200\n"
             "  tp2-tune plan --model MODEL --tp 1 --only product/K6\n"));
  sub->callback([&flags] { flags.command = Command::kPlan; });
}

void AddRun(CLI::App& app, Flags& flags) {
  CLI::App* sub = app.add_subcommand("run", "time the candidates on cards and write a table");
  AddModel(sub, flags);
  AddOnly(sub, flags);
  AddGpu(sub, flags, "one card, or two for a pair as well");
  sub->add_option("--nvml", flags.nvml_library, "the driver's library for clocks and power")
      ->option_text("FILE")
      ->group("Hardware");
  sub->add_option("--repeat", flags.rounds, "rounds; each times all candidates there and back")
      ->check(CLI::Range(1, 1000))
      ->option_text("N [3]")
      ->group("Measurement");
  sub->add_option("--replays", flags.replays, "graph replays of each turn")
      ->check(CLI::Range(1, 100000))
      ->option_text("N [10]")
      ->group("Measurement");
  sub->add_option("--json", flags.table_path, "the table; never over a file but with --merge")
      ->required()
      ->option_text("FILE")
      ->group("Output");
  sub->add_flag("--merge", flags.may_merge, "keep what the file has of other keys")
      ->group("Output");
  sub->footer(absl::StrCat(
      "Drafts are compared before and after: when a bit differs, nothing is written (exit 1).\n",
      Footer("  tp2-tune run --model MODEL --gpu GPU-c4e7a371 --json tp2_kernels.json\n"
             "  tp2-tune run --model MODEL --gpu GPU-c4e7a371,GPU-7744b44b --json pair.json\n"
             "  tp2-tune run --model MODEL --only all_reduce --gpu A,B --merge --json pair.json\n"),
      ",\n  5 throttled, 130 interrupted"));
  sub->callback([&flags] { flags.command = Command::kRun; });
}

void AddCheck(CLI::App& app, Flags& flags) {
  CLI::App* sub = app.add_subcommand("check", "does a table cover this model, card and build?");
  AddPath(sub, "FILE", flags.table_path);
  AddModel(sub, flags);
  AddConfigOnly(sub, flags);
  AddTp(sub, flags, "1");
  AddCard(sub, flags);
  AddGpu(sub, flags, "one of this machine's");
  sub->footer(
      absl::StrCat("Exit 1: launches of the model are missing. Exit 3: another card or build.\n",
                   Footer("  tp2-tune check tp2_kernels.json --model MODEL\n"
                          "  tp2-tune check pair.json --model MODEL --tp 1,2 --card h200\n")));
  sub->callback([&flags] { flags.command = Command::kCheck; });
}

void AddShow(CLI::App& app, Flags& flags) {
  CLI::App* sub = app.add_subcommand("show", "a table for people");
  AddPath(sub, "FILE", flags.table_path);
  sub->footer(Footer("  tp2-tune show tp2_kernels.json\n"));
  sub->callback([&flags] { flags.command = Command::kShow; });
}

void AddDiff(CLI::App& app, Flags& flags) {
  CLI::App* sub = app.add_subcommand("diff", "what changes from one table to another");
  AddPath(sub, "OLD", flags.table_path);
  AddPath(sub, "NEW", flags.other_path);
  sub->footer(Footer("  tp2-tune diff old.json new.json\n"));
  sub->callback([&flags] { flags.command = Command::kDiff; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-tune", "choose a shape for each launch; times change, drafts never");
  app.require_subcommand(1);
  AddPlan(app, flags);
  AddRun(app, flags);
  AddCheck(app, flags);
  AddShow(app, flags);
  AddDiff(app, flags);
  app.footer(
      absl::StrCat("Examples:\n"
                   "  tp2-tune plan --model MODEL --card h200\n"
                   "  tp2-tune run --model MODEL --json tp2_kernels.json\n"
                   "  dspark-serve --model MODEL --kernels tp2_kernels.json\n",
                   cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::tune
