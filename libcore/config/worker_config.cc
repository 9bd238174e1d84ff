#include "libcore/config/worker_config.h"

#include "libcore/base/error.h"
#include "libcore/model/drafter_config.h"

namespace tp2::config {
namespace {

constexpr SettingSpec kSettings[] = {
    {.name = "model",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Input",
     .help = "checkpoint folder"},
    {.name = "max-model-len",
     .kind = SettingKind::kInteger,
     .default_text = "327680",
     .minimum = 256,
     .maximum = kMaxModelLength,
     .group = "Input",
     .help = "longest sequence"},
    {.name = "backend",
     .kind = SettingKind::kChoice,
     .default_text = "auto",
     .choices = "auto|cpu|cuda",
     .group = "Hardware",
     .help = "who computes"},
    {.name = "tp",
     .kind = SettingKind::kInteger,
     .default_text = "1",
     .minimum = 1,
     .maximum = 2,
     .environment = "DSPARK_WORKER_TP",
     .group = "Hardware",
     .help = "cards: 1, or 2 as a pair"},
    {.name = "gpus",
     .kind = SettingKind::kGpuList,
     .default_text = "",
     .environment = "CUDA_VISIBLE_DEVICES",
     .group = "Hardware",
     .help = "in rank order"},
    {.name = "threads",
     .kind = SettingKind::kInteger,
     .default_text = "0",
     .minimum = 0,
     .maximum = 1024,
     .group = "Hardware",
     .help = "of the CPU backend; 0: one per core"},
    {.name = "timeout-ms",
     .kind = SettingKind::kInteger,
     .default_text = "2000",
     .minimum = 1,
     .maximum = 600'000,
     .environment = "DSPARK_TP_TIMEOUT_MS",
     .group = "Hardware",
     .help = "longest wait between the two cards"},
    {.name = "fuse-pairs",
     .kind = SettingKind::kBoolean,
     .default_text = "false",
     .environment = "DSPARK_TP_FUSE_PAIRS",
     .group = "Hardware",
     .help = "fuse pairs of GEMMs on two cards"},
    {.name = "listen",
     .kind = SettingKind::kText,
     .default_text = "127.0.0.1:18627",
     .group = "Service",
     .help = "address; port 0 picks one"},
    {.name = "max-consecutive-failures",
     .kind = SettingKind::kInteger,
     .default_text = "3",
     .minimum = 1,
     .maximum = 1000,
     .group = "Service",
     .help = "then exit 4"},
    {.name = "drain-ms",
     .kind = SettingKind::kInteger,
     .default_text = "2000",
     .minimum = 0,
     .maximum = 600'000,
     .group = "Service",
     .help = "wait for open slots on SIGTERM"},
    {.name = "log-level",
     .kind = SettingKind::kChoice,
     .default_text = "info",
     .choices = "debug|info|warn|error|off",
     .group = "Service",
     .help = "log on stderr"},
    {.name = "record",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Service",
     .help = "folder for a capture of all STEPs"},
};

}  // namespace

std::span<const SettingSpec> WorkerSettings() { return kSettings; }

absl::StatusOr<WorkerConfig> ToWorkerConfig(const Settings& settings) {
  WorkerConfig config{
      .model_dir = settings.Text("model"),
      .tp = static_cast<int>(settings.Integer("tp")),
      .gpus = settings.List("gpus"),
      .backend = settings.Text("backend"),
      .listen = settings.Text("listen"),
      .max_model_len = settings.Integer("max-model-len"),
      .timeout_ms = settings.Integer("timeout-ms"),
      .fuse_pairs = settings.Boolean("fuse-pairs"),
      .max_consecutive_failures = static_cast<int>(settings.Integer("max-consecutive-failures")),
      .threads = static_cast<int>(settings.Integer("threads")),
      .drain_ms = settings.Integer("drain-ms"),
      .log_level = settings.Text("log-level"),
      .record_dir = settings.Text("record")};
  if (config.model_dir.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     {.what = "model",
                      .expected = "a checkpoint folder",
                      .got = "none",
                      .next = "give --model DIR, or model: DIR in the file of --config"});
  }
  if (config.tp == 2) {
    return MakeError(absl::StatusCode::kUnimplemented, {.what = "tp",
                                                        .expected = "1",
                                                        .got = "2, which is not built yet",
                                                        .next = "start with --tp 1"});
  }
  return config;
}

}  // namespace tp2::config
