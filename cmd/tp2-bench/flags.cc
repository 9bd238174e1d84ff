#include "cmd/tp2-bench/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::bench {
namespace {

void AddMode(CLI::App& app, Flags& flags, const std::string& mode, const std::string& purpose) {
  CLI::App* sub = app.add_subcommand(mode, purpose);
  sub->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  sub->add_option("--backend", flags.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->option_text("NAME [auto]")
      ->group("Hardware");
  sub->add_option("--gpu", flags.device_uuid, "the first usable card without it")
      ->option_text("UUID")
      ->group("Hardware");
  sub->add_option("--requests", flags.requests, "1 to 4; several with commas")
      ->check(CLI::Range(1, 4))
      ->delimiter(',')
      ->option_text("LIST [1,2,3,4]")
      ->group("Measurement");
  sub->add_option("--n-out", flags.n_out, "1 to 5; several with commas")
      ->check(CLI::Range(1, 5))
      ->delimiter(',')
      ->option_text("LIST [4,5]")
      ->group("Measurement");
  sub->add_option("--insert-rows", flags.insert_rows, "new rows per request before each draft")
      ->check(CLI::Range(0, 128))
      ->option_text("N [0]")
      ->group("Measurement");
  sub->add_option("--replays", flags.replays, "timed STEPs per cell")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N [300]")
      ->group("Measurement");
  sub->add_option("--warmup", flags.warmup, "STEPs before them")
      ->check(CLI::Range(0, 1000000))
      ->option_text("N [20]")
      ->group("Measurement");
  sub->add_flag("--eager", flags.is_eager, "launch kernel by kernel instead of graphs")
      ->group("Measurement");
  sub->footer(absl::StrCat("Times are host wall, from the call to drafts on the host.\nExamples:\n",
                           "  tp2-bench ", mode, " --model full\n  tp2-bench ", mode,
                           " --model tiny --backend cpu --replays 20\n", cmd::kExitCodesHelp));
  sub->callback([&flags, mode] { flags.mode = mode; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-bench", "time the draft step of the DSpark drafter");
  app.require_subcommand(1);
  AddMode(app, flags, "one-card", "the grid of requests x n_out on one card");
  AddMode(app, flags, "emulated", "the same with both ranks on one card");
  app.footer(absl::StrCat("Examples:\n  tp2-bench one-card --model full\n", cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::bench
