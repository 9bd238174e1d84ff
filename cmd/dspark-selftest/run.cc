#include "cmd/dspark-selftest/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/dspark-selftest/checks.h"
#include "cmd/dspark-selftest/latency.h"
#include "cmd/dspark-selftest/measure.h"
#include "cmd/dspark-selftest/printer.h"
#include "cmd/dspark-selftest/rounds.h"
#include "libcore/base/build_info.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/base/secret.h"
#include "libcore/base/status_macros.h"
#include "libcore/client/verbs_connect.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/recording_engine.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/transport/tcp.h"

namespace tp2::selftest {
namespace {

constexpr char kTool[] = "dspark-selftest";

struct CheckResult {
  std::string name;
  absl::Status status;
};

struct Results {
  std::vector<CheckResult> checks;
  std::vector<LatencyLine> latency;
  bool all_passed() const {
    for (const CheckResult& check : checks) {
      if (!check.status.ok()) return false;
    }
    return true;
  }
};

std::string Header(const Flags& flags, const EngineInfo& info) {
  const BuildInfo build = GetBuildInfo();
  return absl::StrFormat(
      "# %s %s (%s)  schema dspark-selftest/1\n"
      "# server   %s\n"
      "# model    arch %s, %d stages, vocab %d, window %d, identity %s\n"
      "# local    %s, %s, numerics %s%s, seed %d\n",
      kTool, build.version, build.git_id, flags.server, ArchName(info.config.arch),
      info.config.stages, info.config.vocab, info.config.window, Hex(info.identity_digest),
      info.backend, info.mode, Hex64(info.numerics_version),
      info.portable_bits ? "" : " (bits not portable)", flags.seed);
}

absl::Status RunChecks(const std::vector<Check>& checks, const Printer& printer, Results* results) {
  for (const Check& check : checks) {
    const absl::Status status = check.run();
    results->checks.push_back({check.name, status});
    const std::string tail = status.ok() ? "" : "  " + std::string(status.message());
    TP2_RETURN_IF_ERROR(
        printer.Print((status.ok() ? "PASS  " : "FAIL  ") + check.name + tail + "\n"));
  }
  return absl::OkStatus();
}

absl::Status WriteJson(const Flags& flags, const EngineInfo& info, const Results& results) {
  const BuildInfo build = GetBuildInfo();
  Json json = {
      {"schema", "dspark-selftest/1"},
      {"tool", {{"version", build.version}, {"git", build.git_id}}},
      {"server", flags.server},
      {"seed", flags.seed},
      {"model", {{"identity", Hex(info.identity_digest)}, {"arch", ArchName(info.config.arch)}}},
      {"numerics_version", Hex64(info.numerics_version)},
      {"portable_bits", info.portable_bits},
      {"backend", info.backend},
      {"checks", Json::array()},
      {"latency", Json::array()},
      {"verdict", results.all_passed() ? "ok" : "failed"}};
  for (const CheckResult& check : results.checks) {
    json["checks"].push_back({{"name", check.name},
                              {"passed", check.status.ok()},
                              {"detail", std::string(check.status.message())}});
  }
  for (const LatencyLine& line : results.latency) {
    json["latency"].push_back(LatencyJson(line));
  }
  const std::string text = json.dump(1) + "\n";
  if (flags.json_path == "-") return PrintResult(text);
  return WriteFileAtomically(flags.json_path, text, IfExists::kRefuse);
}

// True when every check passed.
absl::StatusOr<bool> RunContract(const Flags& flags, const Connector& connect, StepEngine* engine) {
  const Printer printer(flags.json_path == "-");
  Results results;
  TP2_RETURN_IF_ERROR(printer.Print(Header(flags, engine->info())));
  TP2_RETURN_IF_ERROR(RunChecks(RefusalChecks(connect, engine->info()), printer, &results));
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, connect());
  const Check hello{"hello-digests-equal", [&] { return SayHello(*client, engine->info()); }};
  TP2_RETURN_IF_ERROR(RunChecks({hello}, printer, &results));
  Twin twin(client.get(), engine, flags.seed);
  if (client->session() != 0) {
    // The config digest can be told from the identity only once the identity is right.
    TP2_RETURN_IF_ERROR(RunChecks(ConfigChecks(connect, engine->info()), printer, &results));
    TP2_RETURN_IF_ERROR(
        RunChecks(SessionChecks(&twin, flags.rounds, flags.seed), printer, &results));
  } else {
    TP2_RETURN_IF_ERROR(printer.Print("# stopped: the other checks need the same checkpoint\n"));
  }
  if (results.all_passed() && flags.latency_rounds > 0) {
    TP2_ASSIGN_OR_RETURN(results.latency,
                         MeasureLatency(&twin, flags.transport, flags.latency_rounds));
    TP2_RETURN_IF_ERROR(printer.Print(
        "#\n# latency  one client, synthetic rows, windows full; p50 and p99 nearest rank\n" +
        RenderLatency(results.latency)));
  }
  const size_t failed = static_cast<size_t>(
      std::count_if(results.checks.begin(), results.checks.end(),
                    [](const CheckResult& check) { return !check.status.ok(); }));
  TP2_RETURN_IF_ERROR(printer.Print(absl::StrFormat("#\n# verdict  %s  %d passed, %d failed\n",
                                                    failed == 0 ? "OK" : "FAILED",
                                                    results.checks.size() - failed, failed)));
  if (!flags.json_path.empty()) {
    TP2_RETURN_IF_ERROR(WriteJson(flags, engine->info(), results));
  }
  return failed == 0;
}

absl::StatusOr<bool> RunRounds(const Flags& flags, const Connector& connect, StepEngine* engine) {
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<client::Client> client, connect());
  const absl::Status hello = SayHello(*client, engine->info());
  if (!hello.ok()) {
    TP2_RETURN_IF_ERROR(
        PrintResult(absl::StrCat("FAIL  hello  ", std::string(hello.message()), "\n")));
    return false;
  }
  Twin twin(client.get(), engine, flags.seed);
  TP2_ASSIGN_OR_RETURN(const std::string table, RenderRounds(&twin, flags.rounds, flags.seed));
  TP2_RETURN_IF_ERROR(PrintResult(Header(flags, engine->info()) + "#\n" + table));
  return true;
}

absl::StatusOr<std::unique_ptr<transport::Connection>> Connect(const Flags& flags,
                                                               const transport::TcpAddress& address,
                                                               const EngineInfo& info) {
  transport::FrameRule rule = client::Client::ReplyRule();
  rule.spin_us = flags.spin_ms * 1000;
  if (flags.transport == "tcp") return transport::TcpConnect(address, rule, flags.timeout_ms);
  return client::ConnectVerbs(address, rule, info.identity_digest, flags.timeout_ms);
}

// Half frames and slow readers are made of streams; RDMA has its own faults in tests/rdma.
absl::Status CheckTransport(const Flags& flags) {
  const bool needs_stream = flags.command == Command::kFaults || flags.command == Command::kFuzz ||
                            flags.command == Command::kLoad;
  if (flags.transport == "tcp" || !needs_stream) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "--transport", .expected = "tcp for faults, fuzz and load", .got = flags.transport});
}

absl::StatusOr<bool> RunCommand(const Flags& flags) {
  TP2_RETURN_IF_ERROR(CheckTransport(flags));
  TP2_ASSIGN_OR_RETURN(const transport::TcpAddress address,
                       transport::ParseTcpAddress(flags.server));
  std::optional<Secret> secret;
  if (!flags.secret_file.empty()) {
    TP2_ASSIGN_OR_RETURN(secret, Secret::ReadFile(flags.secret_file));
  }
  const client::ClientOptions client_options{.timeout_ms = flags.timeout_ms,
                                             .secret = secret.has_value() ? &*secret : nullptr};
  TP2_ASSIGN_OR_RETURN(
      std::unique_ptr<StepEngine> engine,
      MakeEngine(
          {.model_dir = flags.model_dir, .backend = flags.backend, .thread_count = flags.threads}));
  const Connector connect =
      [&, &info = engine->info()]() -> absl::StatusOr<std::unique_ptr<client::Client>> {
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<transport::Connection> connection,
                         Connect(flags, address, info));
    return std::make_unique<client::Client>(std::move(connection), client_options);
  };
  const auto run = [&](StepEngine* local) -> absl::StatusOr<bool> {
    switch (flags.command) {
      case Command::kContract:
        return RunContract(flags, connect, local);
      case Command::kRounds:
        return RunRounds(flags, connect, local);
      default:
        return RunMeasurement(flags, connect, local);
    }
  };
  if (flags.record_dir.empty()) return run(engine.get());
  TP2_ASSIGN_OR_RETURN(const std::unique_ptr<RecordingEngine> recorder,
                       RecordingEngine::Create(std::move(engine), flags.record_dir));
  TP2_ASSIGN_OR_RETURN(const bool passed, run(recorder.get()));
  TP2_RETURN_IF_ERROR(recorder->Finish());
  return passed;
}

}  // namespace

int Run(const Flags& flags) {
  const absl::StatusOr<bool> passed = RunCommand(flags);
  if (!passed.ok()) return ReportStatus(kTool, passed.status());
  return *passed ? kExitOk : kExitCheckFailed;
}

}  // namespace tp2::selftest
