#include "cmd/tp2-bench/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::bench {
namespace {

constexpr int kMaxCachedRows = 1 << 20;
// New rows per request of a whole STEP: the anchor and five accepted drafts.
constexpr int kStepRows = 6;

void AddJson(CLI::App* sub, Flags& flags) {
  sub->add_option("--json", flags.json_path, "write JSON, - for stdout; never over a file")
      ->option_text("FILE|-")
      ->group("Output");
}

void AddInput(CLI::App* sub, Flags& flags) {
  sub->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
}

void AddHardware(CLI::App* sub, Flags& flags) {
  sub->add_option("--backend", flags.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->option_text("NAME [auto]")
      ->group("Hardware");
  sub->add_option("--gpu", flags.device_uuids, "in rank order; the first usable cards without it")
      ->delimiter(',')
      ->option_text("UUID[,UUID]")
      ->group("Hardware");
  sub->add_option("--threads", flags.threads, "of the CPU; 0: one per hardware thread")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  sub->add_option("--nvml", flags.nvml_library, "the driver's library for clocks and power")
      ->option_text("FILE")
      ->group("Hardware");
  cmd::AddKernels(*sub, flags.kernels_path);
}

void AddMeasurement(CLI::App* sub, Flags& flags) {
  sub->add_option("--replays", flags.replays, "timed calls per cell")
      ->check(CLI::Range(1, 1000000))
      ->option_text("N [300]")
      ->group("Measurement");
  sub->add_option("--warmup", flags.warmup, "calls before them")
      ->check(CLI::Range(0, 1000000))
      ->option_text("N [20]")
      ->group("Measurement");
  sub->add_flag("--cold-l2", flags.is_cold_l2, "write twice the last-level cache before each call")
      ->group("Measurement");
  sub->add_flag("--eager", flags.is_eager, "launch kernel by kernel instead of graphs")
      ->group("Measurement");
  sub->add_option("--max-mad-pct", flags.max_mad_pct, "a cell with more spread is noisy (exit 5)")
      ->check(CLI::Range(0.0, 1000.0))
      ->option_text("PERCENT [2]")
      ->group("Measurement");
}

std::string Footer(const std::string& examples) {
  return absl::StrCat("Examples:\n", examples, cmd::kExitCodesHelp, ",\n  5 noisy or throttled");
}

void AddGrid(CLI::App& app, Flags& flags, const std::string& name, const std::string& purpose,
             const std::vector<std::string>& modes) {
  CLI::App* sub = app.add_subcommand(name, purpose);
  AddInput(sub, flags);
  AddHardware(sub, flags);
  sub->add_option("--requests", flags.requests, "1 to 4; several with commas")
      ->check(CLI::Range(1, kMaxRequests))
      ->delimiter(',')
      ->option_text("LIST [1,2,3,4]")
      ->group("Measurement");
  sub->add_option("--n-out", flags.n_out, "1 to 5; several with commas")
      ->check(CLI::Range(1, kBlockRows))
      ->delimiter(',')
      ->option_text("LIST [4,5]")
      ->group("Measurement");
  sub->add_option("--insert-rows", flags.insert_rows, "new rows per request before each draft")
      ->check(CLI::Range(0, kMaxRowsPerMessage))
      ->option_text("N [0]")
      ->group("Measurement");
  sub->add_option("--context", flags.context.length, "position of each slot's next row")
      ->check(CLI::Range(int64_t{1}, kMaxModelLength - 1))
      ->option_text("N [a full window]")
      ->group("Measurement");
  sub->add_option("--slots", flags.context.slot_count, "that have a context; the last ones draft")
      ->check(CLI::Range(1, kSlotCount))
      ->option_text("N [4]")
      ->group("Measurement");
  sub->add_flag("--margins", flags.wants_margins, "also runner-ups and margins")
      ->group("Measurement");
  sub->add_flag("--groups", flags.has_groups, "also kernel time per group, by a second drafter")
      ->group("Measurement");
  AddMeasurement(sub, flags);
  AddJson(sub, flags);
  sub->footer(Footer(absl::StrCat("  tp2-bench ", name, " --model full --groups --json ", name,
                                  ".json\n  tp2-bench ", name,
                                  " --model tiny --backend cpu --replays 20\n")));
  if (name == "step") {
    sub->add_flag("--pair", flags.has_pair, "also on two cards")->group("Hardware");
  }
  sub->callback([&flags, sub, name, modes] {
    flags.command = Command::kGrid;
    flags.command_name = name;
    flags.modes = modes;
    if (flags.has_pair) flags.modes.push_back("pair");
    if (name == "step" && sub->count("--insert-rows") == 0) flags.insert_rows = kStepRows;
  });
}

void AddInsert(CLI::App& app, Flags& flags) {
  CLI::App* sub = app.add_subcommand("insert", "the context insert by number of rows");
  AddInput(sub, flags);
  AddHardware(sub, flags);
  sub->add_flag("--pair", flags.has_pair, "also on two cards")->group("Hardware");
  sub->add_option("--rows", flags.rows, "1 to 128; several with commas")
      ->check(CLI::Range(1, kMaxRowsPerMessage))
      ->delimiter(',')
      ->option_text("LIST [1,2,4,6,8,16,20,32,64,128]")
      ->group("Measurement");
  AddMeasurement(sub, flags);
  AddJson(sub, flags);
  sub->footer(
      Footer("  tp2-bench insert --model full --json insert.json\n"
             "  tp2-bench insert --model tiny --backend cpu --rows 6,128\n"));
  sub->callback([&flags] {
    flags.command = Command::kInsert;
    flags.command_name = "insert";
    flags.modes = {"one-card"};
    if (flags.has_pair) flags.modes.push_back("pair");
  });
}

void AddMemory(CLI::App& app, Flags& flags) {
  CLI::App* memory =
      app.add_subcommand("memory", "MiB per item and rank, before anything is allocated");
  AddInput(memory, flags);
  memory
      ->add_flag("--config-only", flags.is_config_only,
                 "count the mission's widths (experts 2 bits, dense 5, head 6), read no tensors")
      ->group("Input");
  memory->add_option("--max-model-len", flags.max_positions, "longest sequence")
      ->check(CLI::Range(int64_t{1}, kMaxModelLength))
      ->option_text("N [327680]")
      ->group("Input");
  memory->add_option("--cached-rows", flags.cached_rows, "Markov bias rows kept per rank")
      ->check(CLI::Range(0, kMaxCachedRows))
      ->option_text("N [8192]")
      ->group("Input");
  AddJson(memory, flags);
  memory->footer(
      absl::StrCat("Examples:\n"
                   "  tp2-bench memory --model MODEL\n"
                   "  tp2-bench memory --model MODEL --max-model-len 1048576\n"
                   "  tp2-bench memory --model CONFIG_FOLDER --config-only --json -\n",
                   cmd::kExitCodesHelp));
  memory->callback([&flags] {
    flags.command = Command::kMemory;
    flags.command_name = "memory";
  });
}

void AddList(CLI::App& app, Flags& flags) {
  CLI::App* list = app.add_subcommand("list", "cells and cards; runs nothing");
  list->footer(absl::StrCat("Examples:\n  tp2-bench list\n", cmd::kExitCodesHelp));
  list->callback([&flags] { flags.command = Command::kList; });
}

void AddCompare(CLI::App& app, Flags& flags) {
  CLI::App* compare = app.add_subcommand("compare", "two results, cell by cell; exit 1 if slower");
  compare->add_option("BEFORE", flags.before_path, "result file")
      ->required()
      ->option_text(" ")
      ->group("Input");
  compare->add_option("AFTER", flags.after_path, "result file")
      ->required()
      ->option_text(" ")
      ->group("Input");
  compare
      ->add_option("--max-regression", flags.max_regression_pct,
                   "slower by more, and by more than 3 MAD, is a regression")
      ->check(CLI::Range(0.0, 1000.0))
      ->option_text("PERCENT [3]")
      ->group("Measurement");
  compare
      ->add_flag("--across", flags.goes_across,
                 "compare although card, model, cells or method differ")
      ->group("Measurement");
  compare->footer(
      absl::StrCat("Examples:\n"
                   "  tp2-bench compare before.json after.json\n"
                   "  tp2-bench compare h200.json rtx3090.json --across\n",
                   cmd::kExitCodesHelp));
  compare->callback([&flags] { flags.command = Command::kCompare; });
}

void AddDecide(CLI::App& app, Flags& flags) {
  CLI::App* decide = app.add_subcommand("decide", "is a second card worth it? from a cost model");
  decide->add_option("RESULT", flags.before_path, "of tp2-bench step --pair, or pair")
      ->required()
      ->option_text(" ")
      ->group("Input");
  decide
      ->add_option("--cost", flags.cost_path,
                   "YAML: round_ms_1 ... round_ms_5, remote_draft_ms, threshold_pct")
      ->required()
      ->option_text("FILE")
      ->group("Input");
  AddJson(decide, flags);
  decide->footer(absl::StrCat("Examples:\n  tp2-bench decide step.json --cost cost.yaml\n",
                              cmd::kExitCodesHelp));
  decide->callback([&flags] {
    flags.command = Command::kDecide;
    flags.command_name = "decide";
  });
}

void AddCollectives(CLI::App& app, Flags& flags) {
  CollectivesFlags& own = flags.collectives;
  CLI::App* sub = app.add_subcommand("collectives", "all-reduce and exchanges on two cards");
  sub->add_option("--gpus", own.gpus, "by rank; the first two cards without it")
      ->delimiter(',')
      ->option_text("UUID,UUID")
      ->group("Hardware");
  sub->add_flag("--single-card", own.is_single_card, "both ranks on one card: no link is timed")
      ->group("Hardware");
  sub->add_option("--nvml", own.nvml_library, "the driver's library for clocks and power")
      ->option_text("FILE")
      ->group("Hardware");
  sub->add_option("--protocol", own.protocol, "line, ack or both")
      ->check(CLI::IsMember({"line", "ack", "both"}))
      ->option_text("NAME [both]")
      ->group("Measurement");
  sub->add_option("--nccl", own.nccl, "library to compare with; empty: none")
      ->option_text("FILE [libnccl.so.2]")
      ->group("Measurement");
  sub->add_option("--nccl-protocol", own.nccl_protocol, "its own choice without it")
      ->check(CLI::IsMember({"LL", "LL128", "Simple"}))
      ->option_text("NAME")
      ->group("Measurement");
  sub->add_option("--replays", own.replays, "of each chain")
      ->check(CLI::Range(2, 1000000))
      ->option_text("N [300]")
      ->group("Measurement");
  sub->add_option("--warmup", own.warmup, "replays before each half of them")
      ->check(CLI::Range(0, 1000000))
      ->option_text("N [20]")
      ->group("Measurement");
  sub->add_flag("--quick", own.is_quick, "a STEP's sizes only")->group("Measurement");
  sub->add_flag("--sweep", own.is_sweep, "several grids for each size")->group("Measurement");
  sub->add_option("--json", own.json_path, "write JSON, - for stdout")
      ->option_text("FILE|-")
      ->group("Output");
  sub->add_flag("--force", own.may_replace, "replace an existing JSON file")->group("Output");
  sub->footer(absl::StrCat(
      "Examples:\n  tp2-bench collectives\n  tp2-bench collectives --quick --json pair.json\n",
      "  tp2-bench collectives --single-card --protocol line\n", cmd::kExitCodesHelp));
  sub->callback([&flags] {
    flags.command = Command::kCollectives;
    flags.command_name = "collectives";
  });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-bench", "what the drafter costs, in time and in bytes");
  app.require_subcommand(1);
  flags.argv.assign(argv + (argc > 0 ? 1 : 0), argv + argc);
  AddGrid(app, flags, "one-card", "the grid of requests x n_out on one card", {"one-card"});
  AddGrid(app, flags, "solo", "the same for each of two ranks alone: its share of the time",
          {"solo-0", "solo-1"});
  AddGrid(app, flags, "emulated", "the same with both ranks on one card", {"emulated"});
  AddGrid(app, flags, "pair", "one card and a pair of cards side by side", {"one-card", "pair"});
  AddGrid(app, flags, "step", "whole STEPs, 6 new rows per request: one card, --pair also a pair",
          {"one-card"});
  AddInsert(app, flags);
  AddMemory(app, flags);
  AddCollectives(app, flags);
  AddList(app, flags);
  AddCompare(app, flags);
  AddDecide(app, flags);
  app.footer(
      absl::StrCat("Examples:\n"
                   "  tp2-bench one-card --model MODEL --json after.json\n"
                   "  tp2-bench compare before.json after.json\n"
                   "  tp2-bench memory --model MODEL\n",
                   cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::bench
