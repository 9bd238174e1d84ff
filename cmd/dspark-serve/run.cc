#include "cmd/dspark-serve/run.h"

#include <fcntl.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cmd/dspark-serve/card_telemetry.h"
#include "cmd/dspark-serve/rdma.h"
#include "cmd/dspark-serve/signals.h"
#include "libcore/base/build_info.h"
#include "libcore/base/clock.h"
#include "libcore/base/digest.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/secret.h"
#include "libcore/base/status_macros.h"
#include "libcore/config/env.h"
#include "libcore/config/worker_config.h"
#include "libcore/config/yaml_config.h"
#include "libcore/drafter/make_engine.h"
#include "libcore/parity/recording_engine.h"
#include "libcore/report/exit_code.h"
#include "libcore/report/output.h"
#include "libcore/server/admin_pages.h"
#include "libcore/server/service_manager.h"
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

// Who may connect, checked before anything is loaded.
struct Access {
  transport::TcpAddress listen;
  transport::NetworkList allowed_clients;
  std::optional<Secret> secret;
  std::optional<transport::TcpAddress> admin;
};

absl::StatusOr<Access> ReadAccess(const config::WorkerConfig& config) {
  Access access;
  TP2_ASSIGN_OR_RETURN(access.listen, transport::ParseTcpAddress(config.listen));
  TP2_RETURN_IF_ERROR(CheckRdma(config, access.listen));
  TP2_ASSIGN_OR_RETURN(access.allowed_clients,
                       transport::NetworkList::Parse(config.allowed_clients));
  if (!config.secret_file.empty()) {
    TP2_ASSIGN_OR_RETURN(access.secret, Secret::ReadFile(config.secret_file));
  }
  if (!config.admin.empty()) {
    TP2_ASSIGN_OR_RETURN(access.admin, transport::ParseTcpAddress(config.admin));
  }
  const bool is_guarded = access.secret.has_value() && !access.allowed_clients.is_empty();
  if (transport::IsLoopback(access.listen) || is_guarded) return access;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = "listen",
                    .expected = "a loopback address, or --allow-clients and --secret-file as well",
                    .got = config.listen,
                    .next = "listen on 127.0.0.1, or name the client networks and a secret"});
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

// A number below three that is free would be the next socket's, and what is printed its client's.
void FillStandardStreams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

void SetUpLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_mt(kTool);
  spdlog::set_default_logger(logger);
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

// A capture that failed does not change how the worker ends: it served.
void EndRecording(RecordingEngine& recorder, const std::string& dir) {
  const absl::Status recorded = recorder.Finish();
  if (recorded.ok()) {
    spdlog::info("recorded {} rounds in {}", recorder.round_count(), dir);
  } else {
    spdlog::error("no capture in {}: {}", dir, std::string(recorded.message()));
  }
}

server::ServerOptions OptionsFor(const config::WorkerConfig& config, const Access& access) {
  server::ServerOptions options;
  options.service.max_strikes = config.max_consecutive_failures;
  options.service.idle_close_ms = static_cast<uint32_t>(config.idle_ms);
  options.service.secret = access.secret.has_value() ? &*access.secret : nullptr;
  options.max_connections = static_cast<int>(config.max_connections);
  options.drain_ms = config.drain_ms;
  options.frame_timeout_ms = config.frame_ms;
  options.hello_ms = config.hello_ms;
  options.spin_ms = config.spin_ms;
  if (config.spin_threads > 0) options.spin_threads = config.spin_threads;
  options.allowed_clients = access.allowed_clients;
  // A capture holds what clients asked, and nothing of our own.
  options.canary_ms = config.record_dir.empty() ? config.canary_ms : 0;
  return options;
}

// One line a second for the service manager's status.
class StatusLine {
 public:
  StatusLine(server::ServiceManager* manager, const Clock* clock)
      : manager_(manager), clock_(clock) {}

  void Update(const server::StepServer& server) {
    manager_->LoopIsAlive();
    const int64_t now_ns = clock_->NowNs();
    if (!manager_->is_managed() || now_ns - last_ns_ < 1'000'000'000) return;
    last_ns_ = now_ns;
    const contract::HealthReply health = server.health();
    manager_->Status(absl::StrFormat(
        "%s, %d sessions, %d slots, %d STEPs, p50 %.3f ms, p99 %.3f ms, %d failures in a row",
        contract::WorkerStateName(health.state), health.sessions, health.open_slots, health.steps,
        health.step_us_p50 / 1e3, health.step_us_p99 / 1e3, health.failures_in_a_row));
  }

 private:
  server::ServiceManager* manager_;
  const Clock* clock_;
  int64_t last_ns_ = 0;
};

// Two ranks on the CPU are two threads: for tests of everything but speed.
std::string ModeOf(const config::WorkerConfig& config) {
  if (config.tp == 1) return "one-card";
  return config.backend == "cpu" ? "host-pair" : "pair";
}

absl::StatusOr<std::unique_ptr<StepEngine>> LoadEngine(const config::WorkerConfig& config,
                                                       Phases* phases) {
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<StepEngine> engine,
                       MakeEngine({.model_dir = config.model_dir,
                                   .backend = config.backend,
                                   .mode = ModeOf(config),
                                   .max_positions = config.max_model_len,
                                   .thread_count = config.threads,
                                   .device_uuids = config.gpus,
                                   .timeout_ms = config.timeout_ms,
                                   .kernels_path = config.kernels_path,
                                   .joins_products = config.fuse_pairs}));
  const EngineInfo& info = engine->info();
  // One phase: the engine opens, checks and hashes the checkpoint on its way up, in one pass.
  TP2_RETURN_IF_ERROR(phases->Done(
      "engine",
      absl::StrFormat("weights %s, %s, %s, arch %s, numerics %s%s", config.model_dir, info.backend,
                      info.mode, ArchName(info.config.arch), Hex64(info.numerics_version),
                      info.portable_bits ? "" : ", bits not portable")));
  TP2_RETURN_IF_ERROR(PrintResult("identity   " + Hex(info.identity_digest) + "\n"));
  const tuning::TableUse kernels = engine->kernel_table_use();
  if (!config.kernels_path.empty()) {
    const std::string use =
        info.backend == "cuda" ? tuning::Describe(kernels) : "a sound table, of no use to the CPU";
    TP2_RETURN_IF_ERROR(PrintResult("kernels    " + use + "\n"));
  }
  if (kernels.missing > 0) {
    spdlog::warn("{} lacks {} launch shapes, which get safe defaults: tp2-tune check names them",
                 config.kernels_path, kernels.missing);
  }
  return engine;
}

// Serves until the end; what it needs is loaded and checked.
absl::StatusOr<server::ServeEnd> ServeEngine(const config::WorkerConfig& config,
                                             const Access& access, StepEngine* engine,
                                             const telemetry::CardWatch* cards,
                                             SignalWatcher* signals,
                                             server::ServiceManager* manager, Phases* phases) {
  const SteadyClock clock;
  server::ServerOptions options = OptionsFor(config, access);
  StatusLine status_line(manager, &clock);
  const server::StepServer* server_view = nullptr;
  options.tick = [&] { status_line.Update(*server_view); };
  server::StepServer server(engine, options, &clock);
  server_view = &server;
  if (options.canary_ms > 0) {
    TP2_RETURN_IF_ERROR(server.CheckEngine());
    TP2_RETURN_IF_ERROR(phases->Done("canary", "the engine drafts"));
  }
  TP2_ASSIGN_OR_RETURN(
      std::unique_ptr<transport::Listener> listener,
      transport::TcpListen(access.listen, server::StepServer::RequestRule(options)));
  const std::string bound = listener->address();
  TP2_ASSIGN_OR_RETURN(const transport::TcpAddress bound_address,
                       transport::ParseTcpAddress(bound));
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<transport::Listener> rdma,
                       ListenRdma(config, bound_address, server, options, engine->info()));
  const server::AdminPages pages(&server,
                                 {.model_dir = config.model_dir,
                                  .backend = engine->info().backend,
                                  .mode = engine->info().mode,
                                  .listen = bound,
                                  .has_rdma = rdma != nullptr,
                                  .has_secret = access.secret.has_value()},
                                 cards);
  std::unique_ptr<server::AdminHttp> admin;
  if (access.admin.has_value()) {
    TP2_ASSIGN_OR_RETURN(
        admin, server::AdminHttp::Start(
                   *access.admin, [&](const std::string& path) { return pages.Answer(path); }));
    TP2_RETURN_IF_ERROR(phases->Done("admin", "http://" + admin->address()));
  }
  if (rdma != nullptr) {
    TP2_RETURN_IF_ERROR(phases->Done("rdma", rdma->address()));
    server.Listen(std::move(rdma));
  }
  server.Listen(std::move(listener));
  TP2_RETURN_IF_ERROR(phases->Done("ready", "listening on " + bound));
  signals->SetServer(&server);
  manager->Ready();
  const server::ServeEnd end = server.Run();
  manager->Stopping();
  signals->SetServer(nullptr);
  if (!config.trace_path.empty()) {
    TP2_RETURN_IF_ERROR(
        WriteFileAtomically(config.trace_path, server.trace().ToChromeJson(), IfExists::kRefuse));
  }
  if (end == server::ServeEnd::kEngineLost) {
    // Freeing what a lost device holds aborts or hangs: leave without destructors.
    spdlog::error("the engine is lost");
    spdlog::shutdown();
    std::_Exit(kExitDevice);
  }
  return end;
}

absl::StatusOr<server::ServeEnd> Serve(const config::WorkerConfig& config) {
  Phases phases;
  SetUpLog(config.log_level);
  CardTelemetry telemetry(config);  // forks: before the first thread
  SignalWatcher signals;
  const SteadyClock clock;
  server::ServiceManager manager(config::ReadServiceEnvironment(), &clock);
  std::optional<server::ServiceManager::StartUp> start_up(std::in_place, &manager);
  TP2_ASSIGN_OR_RETURN(const Access access, ReadAccess(config));
  const BuildInfo build = GetBuildInfo();
  TP2_RETURN_IF_ERROR(
      phases.Done("config", absl::StrFormat("dspark-serve %s (%s)", build.version, build.git_id)));
  TP2_ASSIGN_OR_RETURN(std::unique_ptr<StepEngine> engine, LoadEngine(config, &phases));
  absl::StatusOr<std::unique_ptr<telemetry::CardWatch>> cards = telemetry.Watch(engine->info());
  if (!cards.ok()) {
    spdlog::warn("no telemetry: {}", std::string(cards.status().message()));
    cards = nullptr;
  } else if (*cards != nullptr) {
    TP2_RETURN_IF_ERROR(phases.Done("cards", Describe((*cards)->Now())));
  }
  RecordingEngine* recorder = nullptr;
  if (!config.record_dir.empty()) {
    TP2_ASSIGN_OR_RETURN(std::unique_ptr<RecordingEngine> recording,
                         RecordingEngine::Create(std::move(engine), config.record_dir));
    recorder = recording.get();
    engine = std::move(recording);
  }
  start_up.reset();
  TP2_ASSIGN_OR_RETURN(
      const server::ServeEnd end,
      ServeEngine(config, access, engine.get(), cards->get(), &signals, &manager, &phases));
  if (recorder != nullptr) EndRecording(*recorder, config.record_dir);
  return end;
}

}  // namespace

int Run(const Flags& flags) {
  FillStandardStreams();
  const absl::StatusOr<config::Settings> settings = ReadSettings(flags);
  if (!settings.ok()) return ReportStatus(kTool, settings.status());
  if (flags.only_prints_config) return ReportStatus(kTool, PrintResult(settings->Describe()));
  const absl::StatusOr<config::WorkerConfig> config = config::ToWorkerConfig(*settings);
  if (!config.ok()) return ReportStatus(kTool, config.status());
  if (flags.only_checks_config) {
    const absl::StatusOr<Access> access = ReadAccess(*config);
    if (!access.ok()) return ReportStatus(kTool, access.status());
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
      return kExitDevice;
  }
  return kExitInternal;
}

}  // namespace tp2::serve
