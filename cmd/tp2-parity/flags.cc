#include "cmd/tp2-parity/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::parity {
namespace {

void AddSelf(CLI::App& app, Flags& flags) {
  CLI::App* self = app.add_subcommand("self", "one digest per mode over a deterministic run");
  self->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  self->add_option("--rounds", flags.rounds, "STEPs to run")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N [41]")
      ->group("Input");
  self->add_option("--seed", flags.seed, "of slots, rows, anchors")
      ->option_text("N [1]")
      ->group("Input");
  self->add_option("--digest", flags.expected_digest, "fail unless every digest is this one")
      ->option_text("HEX")
      ->group("Input");
  self->add_option("--modes", flags.modes, "one-card, emulated, host-pair, ...; with commas")
      ->delimiter(',')
      ->option_text("LIST [one-card]")
      ->group("Hardware");
  self->add_option("--backend", flags.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->option_text("NAME [auto]")
      ->group("Hardware");
  self->add_option("--threads", flags.threads, "0: one per hardware thread; bits do not change")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  self->footer(absl::StrCat(
      "Prints MODE DIGEST ROUNDS per mode, then 'equal' or 'differ' (exit 1).\n"
      "Examples:\n"
      "  tp2-parity self --model tiny\n"
      "  tp2-parity self --model tiny --modes one-card,emulated,host-pair --rounds 64\n"
      "  tp2-parity self --model tiny --digest 0123456789abcdef\n",
      cmd::kExitCodesHelp));
  self->callback([&flags] { flags.command = Command::kSelf; });
}

void AddShards(CLI::App& app, Flags& flags) {
  CLI::App* shards =
      app.add_subcommand("shards", "every weight of every rank against the whole checkpoint");
  shards->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  shards->add_option("--tp", flags.tp, "ranks")
      ->check(CLI::Range(1, 2))
      ->option_text("N [2]")
      ->group("Input");
  shards->add_option("--threads", flags.threads, "0: one per hardware thread")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  shards->footer(
      absl::StrCat("Prints one line per kind of check, then 'equal' or 'differ' (exit 1).\n"
                   "Examples:\n"
                   "  tp2-parity shards --model MODEL\n",
                   cmd::kExitCodesHelp));
  shards->callback([&flags] { flags.command = Command::kShards; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-parity", "compare what drafters put out, bit by bit");
  app.require_subcommand(1);
  AddSelf(app, flags);
  AddShards(app, flags);
  app.footer(absl::StrCat("Examples:\n  tp2-parity self --model tiny\n  tp2-parity self --help\n",
                          cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::parity
