#include "cmd/tp2-bench/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::bench {
namespace {

constexpr int64_t kMaxPositions = 1048576;
constexpr int kMaxCachedRows = 1 << 20;

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

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "tp2-bench", "what the drafter costs");
  app.require_subcommand(1);
  AddMemory(app, flags);
  app.footer(absl::StrCat("Examples:\n  tp2-bench memory --model MODEL\n", cmd::kExitCodesHelp));
  return cmd::ParseFlags(app, argc, argv);
}

}  // namespace tp2::bench
