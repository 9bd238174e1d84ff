#include "cmd/dspark-selftest/flags.h"

#include "absl/strings/str_cat.h"
#include "cmd/common/flags.h"

namespace tp2::selftest {
namespace {

void AddCommon(CLI::App& app, Flags& flags, const char* rounds_text) {
  app.add_option("--server", flags.server, "the worker")
      ->option_text("HOST:PORT [127.0.0.1:18627]")
      ->group("Input");
  app.add_option("--transport", flags.transport, "to the worker: tcp or rdma")
      ->check(CLI::IsMember({"tcp", "rdma"}))
      ->option_text("NAME [tcp]")
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
  app.add_option("--spin-ms", flags.spin_ms, "poll for a reply for so long before sleeping")
      ->check(CLI::Range(0, 3'600'000))
      ->option_text("N [0]")
      ->group("Hardware");
}

struct MeasureCommands {
  CLI::App* faults = nullptr;
  CLI::App* latency = nullptr;
  CLI::App* fuzz = nullptr;
  CLI::App* load = nullptr;
  CLI::App* soak = nullptr;
};

MeasureCommands AddMeasureCommands(CLI::App& app, Flags& flags) {
  MeasureCommands commands;
  const auto add_json = [&flags](CLI::App* command) {
    command->add_option("--json", flags.json_path, "also write results; - for stdout only")
        ->option_text("FILE")
        ->group("Output");
  };
  const auto add_pid = [&flags](CLI::App* command) {
    command
        ->add_option("--worker-pid", flags.worker_pid, "on this machine: watch memory, descriptors")
        ->option_text("PID")
        ->group("Input");
  };
  commands.faults = app.add_subcommand("faults", "broken clients, each with its figure");
  AddCommon(*commands.faults, flags, "N [41]");
  add_json(commands.faults);
  commands.latency = app.add_subcommand("latency", "STEP through the worker against in process");
  AddCommon(*commands.latency, flags, "N [200]");
  add_json(commands.latency);
  commands.fuzz = app.add_subcommand("fuzz", "senseless frames beside a paying client");
  AddCommon(*commands.fuzz, flags, "N [41]");
  commands.fuzz->add_option("--frames", flags.frames, "how many")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->option_text("N [1000000]")
      ->group("Input");
  add_json(commands.fuzz);
  add_pid(commands.fuzz);
  commands.load = app.add_subcommand("load", "a crowd beside a paying client");
  AddCommon(*commands.load, flags, "N [400]");
  commands.load->add_option("--connections", flags.connections, "of the crowd")
      ->check(CLI::Range(1, 20'000))
      ->option_text("N [1000]")
      ->group("Input");
  add_json(commands.load);
  commands.soak = app.add_subcommand("soak", "full rate for a long time, every round compared");
  AddCommon(*commands.soak, flags, "N [41]");
  CLI::Option* seconds = commands.soak->add_option("--seconds", flags.seconds, "how long")
                             ->check(CLI::Range(1, 7 * 86'400))
                             ->option_text("N [600]")
                             ->group("Input");
  commands.soak
      ->add_option_function<int>(
          "--minutes", [&flags](int minutes) { flags.seconds = 60 * minutes; }, "how long")
      ->check(CLI::Range(1, 7 * 1440))
      ->excludes(seconds)
      ->option_text("N")
      ->group("Input");
  add_json(commands.soak);
  add_pid(commands.soak);
  return commands;
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
  const MeasureCommands measure = AddMeasureCommands(app, flags);
  app.footer(absl::StrCat(
      "Examples:\n"
      "  dspark-selftest contract --server 127.0.0.1:18627 --model tiny\n"
      "  dspark-selftest rounds --model tiny --rounds 4\n"
      "  dspark-selftest contract --server 10.1.0.2:18627 --transport rdma --model tiny\n"
      "  dspark-selftest faults --model tiny --json faults.json\n"
      "  dspark-selftest soak --model tiny --minutes 60 --worker-pid PID\n",
      cmd::kExitCodesHelp));
  const std::optional<int> code = cmd::ParseFlags(app, argc, argv);
  const struct {
    CLI::App* app;
    Command command;
    int rounds;
  } commands[] = {{contract, Command::kContract, 41},     {rounds, Command::kRounds, 8},
                  {measure.faults, Command::kFaults, 41}, {measure.latency, Command::kLatency, 200},
                  {measure.fuzz, Command::kFuzz, 41},     {measure.load, Command::kLoad, 400},
                  {measure.soak, Command::kSoak, 41}};
  for (const auto& entry : commands) {
    if (!entry.app->parsed()) continue;
    flags.command = entry.command;
    if (flags.rounds == 0) flags.rounds = entry.rounds;
  }
  return code;
}

}  // namespace tp2::selftest
