#include "cmd/tp2-bench/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::bench {
namespace {

constexpr int64_t kMaxPositions = 1048576;
constexpr int kMaxCachedRows = 1 << 20;

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
  sub->callback([&flags, mode] {
    flags.command = Command::kGrid;
    flags.mode = mode;
  });
}

void AddMemory(CLI::App& app, Flags& flags) {
  CLI::App* memory =
      app.add_subcommand("memory", "MiB per item and rank, before anything is allocated");
  memory->add_option("--model", flags.model_dir, "checkpoint folder")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  memory
      ->add_flag("--config-only", flags.is_config_only,
                 "count the mission's widths (experts 2 bits, dense 5, head 6), read no tensors")
      ->group("Input");
  memory->add_option("--max-model-len", flags.max_positions, "longest sequence")
      ->check(CLI::Range(int64_t{1}, kMaxPositions))
      ->option_text("N [327680]")
      ->group("Input");
  memory->add_option("--cached-rows", flags.cached_rows, "Markov bias rows kept per rank")
      ->check(CLI::Range(0, kMaxCachedRows))
      ->option_text("N [8192]")
      ->group("Input");
  memory->add_option("--json", flags.json_path, "write JSON, - for stdout")
      ->option_text("FILE|-")
      ->group("Output");
  memory->add_flag("--force", flags.may_replace, "replace an existing JSON file")->group("Output");
  memory->footer(
      absl::StrCat("Examples:\n"
                   "  tp2-bench memory --model MODEL\n"
                   "  tp2-bench memory --model MODEL --max-model-len 1048576\n"
                   "  tp2-bench memory --model CONFIG_FOLDER --config-only --json -\n",
                   cmd::kExitCodesHelp));
  memory->callback([&flags] { flags.command = Command::kMemory; });
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
  sub->add_option("--protocol", own.protocol, "line, ack or both")
      ->check(CLI::IsMember({"line", "ack", "both"}))
      ->option_text("NAME [both]")
      ->group("Measurement");
  sub->add_option("--nccl", own.nccl, "library to compare with; empty: none")
      ->option_text("FILE [libnccl.so.2]")
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
  sub->callback([&flags] { flags.command = Command::kCollectives; });
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-bench", "what the drafter costs, in time and in bytes");
  app.require_subcommand(1);
  AddMode(app, flags, "one-card", "the grid of requests x n_out on one card");
  AddMode(app, flags, "emulated", "the same with both ranks on one card");
  AddMode(app, flags, "solo-0", "one rank of two alone: its share of the time");
  AddMode(app, flags, "solo-1", "the other rank alone");
  AddMemory(app, flags);
  AddCollectives(app, flags);
  app.footer(
      absl::StrCat("Examples:\n"
                   "  tp2-bench one-card --model MODEL\n"
                   "  tp2-bench memory --model MODEL\n",
                   cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::bench
