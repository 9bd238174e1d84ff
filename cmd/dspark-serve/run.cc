#include "cmd/dspark-serve/run.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "libcore/base/build_info.h"
#include "libcore/base/clock.h"
#include "libcore/base/digest.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/config/env.h"
#include "libcore/config/worker_config.h"
#include "libcore/config/yaml_config.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/recording_engine.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/server/step_server.h"
#include "libcore/transport/tcp.h"

namespace tp2::serve {
namespace {

constexpr char kTool[] = "dspark-serve";

absl::StatusOr<config::Settings> ReadSettings(const Flags& flags) {
  const std::span<const config::SettingSpec> specs = config::WorkerSettings();
  std::vector<config::GivenValue> given;
  if (!flags.config_path.empty()) {
    TP2_ASSIGN_OR_RETURN(given, config::ReadYamlSettings(flags.config_path, specs));
  }
  const std::vector<config::GivenValue> environment = config::ReadEnvironment(specs);
  given.insert(given.end(), environment.begin(), environment.end());
  given.insert(given.end(), flags.given.begin(), flags.given.end());
  return config::Settings::Merge(specs, given);
}

absl::StatusOr<transport::TcpAddress> ListenAddress(const config::WorkerConfig& config) {
  TP2_ASSIGN_OR_RETURN(transport::TcpAddress address, transport::ParseTcpAddress(config.listen));
  if (transport::IsLoopback(address)) return address;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "listen",
                    .expected = "a loopback address, for clients are not authenticated",
                    .got = config.listen,
                    .next = "listen on 127.0.0.1 and forward the port through a secured channel"});
}

// Start-up as the operator sees it: one line per phase with the time it took.
class Phases {
 public:
  absl::Status Done(const std::string& phase, const std::string& detail) {
    const int64_t now_ns = clock_.NowNs();
    const double spent_ms = static_cast<double>(now_ns - begin_ns_) / 1e6;
    begin_ns_ = now_ns;
    return PrintResult(absl::StrFormat("%-10s %9.2f ms  %s\n", phase, spent_ms, detail));
  }

 private:
  SteadyClock clock_;
  int64_t begin_ns_ = clock_.NowNs();
};

void SetUpLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_mt(kTool);
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

// SIGTERM and SIGINT drain. Construct before any other thread exists, so that all inherit the mask.
class SignalWatcher {
 public:
  SignalWatcher() {
    ::sigemptyset(&signals_);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) ::sigaddset(&signals_, number);
    ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  ~SignalWatcher() {
    if (!thread_.joinable()) return;
    // Only to the watcher itself: ends its wait.
    ::pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  void Watch(server::StepServer* server) {
    thread_ = std::thread([this, server] {
      int number = 0;
      while (::sigwait(&signals_, &number) == 0 && number != SIGUSR1) {
        spdlog::info("signal {}: drain", number);
        server->BeginDrain();
      }
    });
  }

 private:
  sigset_t signals_;
  std::thread thread_;
};

// A capture that failed does not change how the worker ends: it served.
void EndRecording(RecordingEngine& recorder, const std::string& dir) {
  const absl::Status recorded = recorder.Finish();
  if (recorded.ok()) {
    spdlog::info("recorded {} rounds in {}", recorder.round_count(), dir);
  } else {
    spdlog::error("no capture in {}: {}", dir, std::string(recorded.message()));
  }
}

absl::StatusOr<server::ServeEnd> Serve(const config::WorkerConfig& config) {
  Phases phases;
  SignalWatcher signals;
  SetUpLog(config.log_level);
  TP2_ASSIGN_OR_RETURN(const transport::TcpAddress address, ListenAddress(config));
  const BuildInfo build = GetBuildInfo();
  TP2_RETURN_IF_ERROR(
      phases.Done("config", absl::StrFormat("dspark-serve %s (%s)", build.version, build.git_id)));

  TP2_ASSIGN_OR_RETURN(std::unique_ptr<StepEngine> engine,
                       MakeEngine({.model_dir = config.model_dir,
                                   .backend = config.backend,
                                   .max_positions = config.max_model_len,
                                   .thread_count = config.threads}));
  const EngineInfo& info = engine->info();
  // One phase: the engine opens, checks and hashes the checkpoint on its way up, in one pass.
  TP2_RETURN_IF_ERROR(phases.Done(
      "engine",
      absl::StrFormat("weights %s, %s, %s, arch %s, numerics %s%s", config.model_dir, info.backend,
                      info.mode, ArchName(info.config.arch), Hex64(info.numerics_version),
                      info.portable_bits ? "" : ", bits not portable")));
  TP2_RETURN_IF_ERROR(PrintResult("identity   " + Hex(info.identity_digest) + "\n"));

  RecordingEngine* recorder = nullptr;
  if (!config.record_dir.empty()) {
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<RecordingEngine> recording,
                         RecordingEngine::Create(std::move(engine), config.record_dir));
    recorder = recording.get();
    engine = std::move(recording);
  }
  server::ServerOptions options;
  options.service.max_strikes = config.max_consecutive_failures;
  options.drain_ms = config.drain_ms;
  const SteadyClock clock;
  server::StepServer server(engine.get(), options, &clock);
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<transport::Listener> listener,
                       transport::TcpListen(address, server::StepServer::RequestRule(options)));
  const std::string bound = listener->address();
  signals.Watch(&server);
  server.Listen(std::move(listener));
  TP2_RETURN_IF_ERROR(phases.Done("ready", "listening on " + bound));
  const server::ServeEnd end = server.Run();
  if (recorder != nullptr) EndRecording(*recorder, config.record_dir);
  return end;
}

}  // namespace

int Run(const Flags& flags) {
  const absl::StatusOr<config::Settings> settings = ReadSettings(flags);
  if (!settings.ok()) return ReportStatus(kTool, settings.status());
  if (flags.only_prints_config) return ReportStatus(kTool, PrintResult(settings->Describe()));
  const absl::StatusOr<config::WorkerConfig> config = config::ToWorkerConfig(*settings);
  if (!config.ok()) return ReportStatus(kTool, config.status());
  if (flags.only_checks_config) {
    const absl::StatusOr<transport::TcpAddress> address = ListenAddress(*config);
    if (!address.ok()) return ReportStatus(kTool, address.status());
    const absl::StatusOr<DrafterConfig> model = LoadDrafterConfig(config->model_dir);
    if (!model.ok()) return ReportStatus(kTool, model.status());
    return ReportStatus(kTool, PrintResult("config ok\n"));
  }
  const absl::StatusOr<server::ServeEnd> end = Serve(*config);
  if (!end.ok()) return ReportStatus(kTool, end.status());
  switch (*end) {
    case server::ServeEnd::kDrained:
      spdlog::info("drained");
      return kExitOk;
    case server::ServeEnd::kTooManyFailures:
      spdlog::error("{} failed steps in a row", config->max_consecutive_failures);
      return kExitDevice;
    case server::ServeEnd::kEngineLost:
      spdlog::error("the engine is lost");
      return kExitDevice;
  }
  return kExitInternal;
}

}  // namespace tp2::serve
