#include "cmd/dspark-pack/flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"
#include "libcore/model/synthetic_shape.h"

namespace tp2::pack {
namespace {

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const SyntheticShape& shape : SyntheticShapes()) names.push_back(shape.name);
  return names;
}

std::string ShapeHelp() {
  std::string text = "Shapes:\n";
  for (const SyntheticShape& shape : SyntheticShapes()) {
    absl::StrAppend(&text, "  ", shape.name, std::string(12 - shape.name.size(), ' '),
                    shape.summary, "\n");
  }
  return text;
}

// CLI11 lets -1 wrap around to the largest unsigned value.
std::string SeedComplaint(std::string& text) {
  return text.starts_with("-") ? "expected a number from 0 on, got " + text : "";
}

void AddSynth(CLI::App& app, Flags& flags) {
  CLI::App* synth = app.add_subcommand("synth", "write a deterministic synthetic checkpoint");
  synth->add_option("--shape", flags.shape, "which sizes, see below")
      ->required()
      ->check(CLI::IsMember(ShapeNames()))
      ->option_text("NAME")
      ->group("Input");
  synth->add_option("--seed", flags.seed, "the same seed gives the same bytes everywhere")
      ->check(CLI::Validator(SeedComplaint, ""))
      ->option_text(absl::StrCat("N [", flags.seed, "]"))
      ->group("Input");
  synth->add_option("--threads", flags.threads, "0: one per hardware thread; bytes do not change")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  synth->add_option("--out", flags.out_dir, "folder to create; appears complete or not at all")
      ->required()
      ->option_text("DIR")
      ->group("Output");
  synth->add_flag("--force", flags.may_replace, "replace a folder that holds only a checkpoint")
      ->group("Output");
  synth->add_flag("-n,--dry-run", flags.is_dry_run, "say what would be written")->group("Output");
  synth->add_flag("-q,--quiet", flags.is_quiet, "no summary line")->group("Output");
  synth->footer(absl::StrCat(ShapeHelp(),
                             "Examples:\n"
                             "  dspark-pack synth --shape tiny --out tiny\n"
                             "  dspark-pack synth --shape medium --seed 7 --out medium-7\n"
                             "  dspark-pack synth --shape v41-flash --out full --dry-run\n",
                             cmd::kExitCodesHelp));
  synth->callback([&flags] { flags.command = Command::kSynth; });
}

void AddInspect(CLI::App& app, Flags& flags) {
  CLI::App* inspect = app.add_subcommand("inspect", "list what a folder holds");
  inspect->add_option("DIR", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text(" ")
      ->group("Input");
  inspect
      ->add_flag("--all", flags.wants_every_tensor, "every stage and expert on a line of its own")
      ->group("Output");
  inspect->add_option("--json", flags.json_path, "write JSON, - for stdout")
      ->option_text("FILE|-")
      ->group("Output");
  inspect->add_flag("--force", flags.may_replace, "replace an existing JSON file")->group("Output");
  inspect->footer(
      absl::StrCat("Examples:\n"
                   "  dspark-pack inspect MODEL\n"
                   "  dspark-pack inspect MODEL --all\n"
                   "  dspark-pack inspect MODEL --json -\n",
                   cmd::kExitCodesHelp));
  inspect->callback([&flags] { flags.command = Command::kInspect; });
}

void AddVerify(CLI::App& app, Flags& flags) {
  CLI::App* verify =
      app.add_subcommand("verify", "check completeness and contents, print the identity");
  verify->add_option("DIR", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text(" ")
      ->group("Input");
  verify->add_option("--identity", flags.expected_identity, "fail unless the identity is this one")
      ->option_text("HEX")
      ->group("Input");
  verify->footer(
      absl::StrCat("Examples:\n"
                   "  dspark-pack verify MODEL\n"
                   "  dspark-pack verify MODEL --identity 5d1c...\n"
                   "  dspark-pack verify MODEL && dspark-serve --model MODEL\n",
                   cmd::kExitCodesHelp));
  verify->callback([&flags] { flags.command = Command::kVerify; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "dspark-pack", "synthesize, inspect and verify drafter checkpoints");
  app.require_subcommand(1);
  AddSynth(app, flags);
  AddInspect(app, flags);
  AddVerify(app, flags);
  app.footer(
      absl::StrCat("Examples:\n"
                   "  dspark-pack synth --shape tiny --out tiny\n"
                   "  dspark-pack inspect tiny\n"
                   "  dspark-pack verify tiny\n",
                   cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::pack
