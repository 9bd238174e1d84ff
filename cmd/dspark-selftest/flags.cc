#include "cmd/dspark-selftest/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::selftest {
namespace {

void AddCommon(CLI::App& app, Flags& flags, const char* rounds_text) {
  app.add_option("--server", flags.server, "the worker")
      ->option_text("HOST:PORT [127.0.0.1:18627]")
      ->group("Input");
  app.add_option("--secret-file", flags.secret_file, "secret of the worker")
      ->option_text("FILE")
      ->group("Input");
  app.add_option("--model", flags.model_dir, "the checkpoint the worker should have")
      ->required()
      ->option_text("DIR")
      ->group("Input");
  app.add_option("--rounds", flags.rounds, "STEPs")
      ->check(CLI::Range(1, 100000))
      ->option_text(rounds_text)
      ->group("Input");
  app.add_option("--seed", flags.seed, "of rows and anchors")->option_text("N [1]")->group("Input");
  app.add_option("--record", flags.record_dir, "folder for a capture of the local engine's STEPs")
      ->option_text("DIR")
      ->group("Output");
  app.add_option("--backend", flags.backend, "of the local engine: auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->option_text("NAME [auto]")
      ->group("Hardware");
  app.add_option("--threads", flags.threads, "of the local CPU engine; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]")
      ->group("Hardware");
  app.add_option("--timeout-ms", flags.timeout_ms, "longest wait for a reply")
      ->check(CLI::Range(1, 3'600'000))
      ->option_text("N [30000]")
      ->group("Hardware");
}

}  // namespace

std::optional<int> ReadFlags(int argc, const char* const* argv, Flags& flags) {
  CLI::App app;
  cmd::SetUpApp(app, "dspark-selftest", "check and time a worker from the client's side");
  app.require_subcommand(1);
  CLI::App* contract = app.add_subcommand("contract", "every rule by name, bits, latency");
  AddCommon(*contract, flags, "N [41]");
  contract->add_option("--latency-rounds", flags.latency_rounds, "per line of the table; 0: none")
      ->check(CLI::Range(0, 100000))
      ->option_text("N [60]")
      ->group("Measurement");
  contract->add_option("--json", flags.json_path, "also write results; - for stdout only")
      ->option_text("FILE")
      ->group("Output");
  CLI::App* rounds = app.add_subcommand("rounds", "a few rounds in a readable table");
  AddCommon(*rounds, flags, "N [8]");
  app.footer(
      absl::StrCat("Examples:\n"
                   "  dspark-selftest contract --server 127.0.0.1:18627 --model tiny\n"
                   "  dspark-selftest rounds --model tiny --rounds 4\n",
                   cmd::kExitCodesHelp));
  const std::optional<int> code = cmd::ParseFlags(app, argc, argv);
  flags.command = rounds->parsed() ? Command::kRounds : Command::kContract;
  if (flags.rounds == 0) flags.rounds = flags.command == Command::kRounds ? 8 : 41;
  return code;
}

}  // namespace tp2::selftest
