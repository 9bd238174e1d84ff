#include "cmd/tp2-parity/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::parity {
namespace {

void AddModel(CLI::App& sub, Flags& flags) {
  sub.add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  sub.add_option("--rounds", flags.rounds, "STEPs to run")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N [41]")
      ->group("Input");
  sub.add_option("--seed", flags.seed, "of slots, rows, anchors")
      ->option_text("N [1]")
      ->group("Input");
}

void AddBackend(CLI::App& sub, Flags& flags) {
  sub.add_option("--backend", flags.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->option_text("NAME [auto]")
      ->group("Hardware");
  sub.add_option("--threads", flags.threads, "0: one per hardware thread; bits do not change")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  cmd::AddKernels(sub, flags.kernels_path);
}

void AddHardware(CLI::App& sub, Flags& flags) {
  AddBackend(sub, flags);
  sub.add_option("--gpu", flags.device_uuids, "in rank order; the first usable cards without it")
      ->delimiter(',')
      ->option_text("UUID[,UUID]")
      ->group("Hardware");
  sub.add_flag("--eager", flags.is_eager, "CUDA: run op by op instead of replaying graphs")
      ->group("Hardware");
}

void AddSelf(CLI::App& app, Flags& flags) {
  CLI::App* self = app.add_subcommand("self", "one digest per mode over a deterministic run");
  AddModel(*self, flags);
  self->add_flag("--grid", flags.runs_grid,
                 "not random: every insert size class, requests, n_out, with margins and without")
      ->group("Input");
  self->add_option("--digest", flags.expected_digest, "fail unless every digest is this one")
      ->option_text("HEX")
      ->group("Input");
  self->add_option("--modes", flags.modes, "one-card, emulated, host-pair, pair, ...; with commas")
      ->delimiter(',')
      ->option_text("LIST [one-card]")
      ->group("Hardware");
  AddHardware(*self, flags);
  self->footer(absl::StrCat(
      "Prints MODE DIGEST ROUNDS per mode, then 'equal' or 'differ' (exit 1).\n"
      "Examples:\n"
      "  tp2-parity self --model tiny\n"
      "  tp2-parity self --model tiny --modes one-card,emulated,host-pair --rounds 64\n"
      "  tp2-parity self --model tiny --digest 0123456789abcdef\n"
      "  tp2-parity self --model tiny --backend cuda --grid --eager\n",
      cmd::kExitCodesHelp));
  self->callback([&flags] { flags.command = Command::kSelf; });
}

void AddAudit(CLI::App& app, Flags& flags) {
  CLI::App* audit =
      app.add_subcommand("audit", "do the ranks of a running drafter hold the same state?");
  AddModel(*audit, flags);
  audit->add_option("--every", flags.audit_every, "STEPs between two audits")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N [1]")
      ->group("Input");
  audit
      ->add_option("--plant", flags.planted,
                   "change one bit of this tensor half way (negative control)")
      ->option_text("TENSOR")
      ->group("Input");
  audit->add_option("--mode", flags.mode, "emulated, host-pair or pair")
      ->check(CLI::IsMember({"emulated", "host-pair", "pair"}))
      ->option_text("NAME [emulated]")
      ->group("Hardware");
  AddHardware(*audit, flags);
  audit->footer(
      absl::StrCat("Tensors: tokens, ring 0, ring 1, ..., streams, y, block_kv.\n"
                   "Ends with 'equal', or the first difference and 'differ' (exit 1).\n"
                   "Examples:\n"
                   "  tp2-parity audit --model tiny --mode host-pair --every 8\n"
                   "  tp2-parity audit --model tiny --mode pair --plant 'ring 1'\n",
                   cmd::kExitCodesHelp));
  audit->callback([&flags] {
    flags.command = Command::kAudit;
    if (flags.mode == "one-card") flags.mode = "emulated";
  });
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

void AddCapture(CLI::App& sub, Flags& flags) {
  sub.add_option("--capture", flags.capture_dir, "capture folder (README.md describes the format)")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  sub.add_option("--model", flags.model_dir, "checkpoint that the capture was made with")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  sub.add_option("--window", flags.window, "A: rows are main_x, B: rows are taps")
      ->check(CLI::IsMember({"A", "B"}))
      ->option_text("A|B [all]")
      ->group("Input");
  sub.add_option("--mutate", flags.mutation, "draft with one deliberate fault (negative control)")
      ->option_text("NAME")
      ->group("Input");
  AddBackend(sub, flags);
  sub.add_option("--mode", flags.mode, "as self --modes")
      ->option_text("NAME [one-card]")
      ->group("Hardware");
}

void AddRun(CLI::App& app, Flags& flags) {
  CLI::App* run = app.add_subcommand("run", "our drafts against a capture's engine drafts");
  AddCapture(*run, flags);
  run->add_option("--rounds", flags.max_rounds, "stop after so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->option_text("N [all]")
      ->group("Input");
  run->add_option("--json", flags.json_path, "write JSON, - for stdout")
      ->option_text("FILE|-")
      ->group("Output");
  run->add_option("--junit", flags.junit_path, "write JUnit XML for CI systems")
      ->option_text("FILE")
      ->group("Output");
  run->add_flag("--force", flags.may_replace, "replace existing files")->group("Output");
  run->footer(
      absl::StrCat("Ends with 'explained', or 'unexplained' (exit 1).\n"
                   "Examples:\n"
                   "  tp2-parity run --capture CAPTURE --model MODEL\n"
                   "  tp2-parity run --capture CAPTURE --model MODEL --mode emulated\n"
                   "  tp2-parity run --capture CAPTURE --model MODEL --mutate scaled-sink\n",
                   cmd::kExitCodesHelp));
  run->callback([&flags] { flags.command = Command::kRun; });
}

void AddInspect(CLI::App& app, Flags& flags) {
  CLI::App* inspect = app.add_subcommand("inspect", "check a capture and say what it holds");
  inspect->add_option("DIR", flags.capture_dir, "capture folder")
      ->required()
      ->option_text(" ")
      ->group("Input");
  inspect->footer(absl::StrCat("Examples:\n  tp2-parity inspect CAPTURE\n", cmd::kExitCodesHelp));
  inspect->callback([&flags] { flags.command = Command::kInspect; });
}

void AddExplain(CLI::App& app, Flags& flags) {
  CLI::App* explain = app.add_subcommand("explain", "one block, token by token");
  AddCapture(*explain, flags);
  explain->add_option("--round", flags.round, "round, from 0")
      ->required()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->option_text("N")
      ->group("Input");
  explain->add_option("--block", flags.block, "request of that round, from 0")
      ->check(CLI::Range(0, 3))
      ->option_text("K [0]")
      ->group("Input");
  explain->footer(
      absl::StrCat("Examples:\n"
                   "  tp2-parity explain --capture CAPTURE --model MODEL --round 17 --block 1\n",
                   cmd::kExitCodesHelp));
  explain->callback([&flags] { flags.command = Command::kExplain; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-parity", "compare what drafters put out, bit by bit");
  app.require_subcommand(1);
  AddSelf(app, flags);
  AddAudit(app, flags);
  AddShards(app, flags);
  AddRun(app, flags);
  AddInspect(app, flags);
  AddExplain(app, flags);
  app.footer(absl::StrCat("Examples:\n  tp2-parity self --model tiny\n  tp2-parity self --help\n",
                          cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::parity
