#include "cmd/run-owned/options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/telemetry/nvml.h"

namespace tp2::owned {
namespace {

using config::SettingKind;

constexpr int64_t kLongestCapMs = 14 * 60 * 1000;

constexpr config::SettingSpec kSpecs[] = {
    {.name = "gpus",
     .kind = SettingKind::kList,
     .default_text = "",
     .group = "Hardware",
     .help = "UUIDs in rank order, or 8+ digits"},
    {.name = "expect-pci",
     .kind = SettingKind::kList,
     .default_text = "",
     .group = "Hardware",
     .help = "refuse other PCI addresses"},
    {.name = "exclusive",
     .kind = SettingKind::kBoolean,
     .default_text = "false",
     .group = "Hardware",
     .help = "refuse cards with compute processes"},
    {.name = "max-nvlink-errors",
     .kind = SettingKind::kInteger,
     .default_text = "-1",
     .minimum = -1,
     .maximum = 1'000'000,
     .group = "Hardware",
     .help = "fail above; -1: report only"},
    {.name = "permit",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Permission",
     .help = "file that names us; a pair needs one"},
    {.name = "permit-name",
     .kind = SettingKind::kText,
     .default_text = "RX-TP2SAFE",
     .group = "Permission",
     .help = "who we are in it"},
    {.name = "lock-dir",
     .kind = SettingKind::kText,
     .default_text = "/run/lock",
     .group = "Permission",
     .help = "one lock file per card"},
    {.name = "cap-ms",
     .kind = SettingKind::kInteger,
     .default_text = "840000",
     .minimum = 100,
     .maximum = kLongestCapMs,
     .group = "Time",
     .help = "nothing alive after this"},
    {.name = "grace-ms",
     .kind = SettingKind::kInteger,
     .default_text = "10000",
     .minimum = 0,
     .maximum = 60'000,
     .group = "Time",
     .help = "from TERM to KILL"},
    {.name = "kill-margin-ms",
     .kind = SettingKind::kInteger,
     .default_text = "5000",
     .minimum = 10,
     .maximum = 60'000,
     .group = "Time",
     .help = "KILL this long before the cap"},
    {.name = "give-up-ms",
     .kind = SettingKind::kInteger,
     .default_text = "30000",
     .minimum = 100,
     .maximum = 600'000,
     .group = "Time",
     .help = "patience with what cannot be killed"},
    {.name = "log",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Output",
     .help = "the job's output and our steps"},
    {.name = "telemetry",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Output",
     .help = "[LOG.telemetry.jsonl]"},
    {.name = "summary",
     .kind = SettingKind::kText,
     .default_text = "",
     .group = "Output",
     .help = "[LOG.summary.json]"},
    {.name = "append",
     .kind = SettingKind::kBoolean,
     .default_text = "false",
     .group = "Output",
     .help = "go on in existing files"},
    {.name = "progress",
     .kind = SettingKind::kChoice,
     .default_text = "auto",
     .choices = "auto|always|never",
     .group = "Output",
     .help = "one line a second on a terminal"},
    {.name = "require-telemetry",
     .kind = SettingKind::kBoolean,
     .default_text = "false",
     .group = "Telemetry",
     .help = "end the job when it stops"},
    {.name = "no-telemetry",
     .kind = SettingKind::kBoolean,
     .default_text = "false",
     .group = "Telemetry",
     .help = "do without NVML; UUIDs unverified"},
    {.name = "nvml",
     .kind = SettingKind::kText,
     .default_text = telemetry::kDefaultNvmlLibrary,
     .group = "Telemetry",
     .help = "library to open"},
    {.name = "nvml-timeout-ms",
     .kind = SettingKind::kInteger,
     .default_text = "15000",
     .minimum = 10,
     .maximum = 600'000,
     .group = "Telemetry",
     .help = "wait for its first answers"},
    {.name = "sample-period-ms",
     .kind = SettingKind::kInteger,
     .default_text = "1000",
     .minimum = 20,
     .maximum = 60'000,
     .group = "Telemetry",
     .help = "from sample to sample"},
    {.name = "stale-ms",
     .kind = SettingKind::kInteger,
     .default_text = "5000",
     .minimum = 100,
     .maximum = 600'000,
     .group = "Telemetry",
     .help = "without a sample: stale"},
    {.name = "cgroup",
     .kind = SettingKind::kChoice,
     .default_text = "auto",
     .choices = "auto|off",
     .group = "Time",
     .help = "control group for the job"},
};

absl::Status Usage(const std::string& what, const std::string& expected, const std::string& got,
                   const std::string& next = "see run-owned --help") {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = what, .expected = expected, .got = got, .where = "", .next = next});
}

absl::Status Check(const Options& options) {
  const size_t card_count = options.mode == Mode::kPair ? 2 : 1;
  if (options.gpus.size() != card_count) {
    return Usage("gpus",
                 absl::StrCat(card_count, " of them for ", std::string(ModeName(options.mode))),
                 absl::StrCat(options.gpus.size()));
  }
  if (options.gpus.front() == options.gpus.back() && card_count == 2) {
    return Usage("gpus", "two different cards", "one card twice");
  }
  if (!options.expected_pci.empty() && options.expected_pci.size() != card_count) {
    return Usage("expect-pci", absl::StrCat(card_count, " addresses"),
                 absl::StrCat(options.expected_pci.size()));
  }
  if (options.mode == Mode::kPair && options.permit_path.empty()) {
    return Usage("permit", "a file, for a pair", "none");
  }
  if (options.cap_ms <= options.grace_ms + options.kill_margin_ms) {
    return Usage("cap-ms", "more than grace-ms and kill-margin-ms together",
                 absl::StrCat(options.cap_ms));
  }
  if (options.permit_name.find_first_of(" \t\r\n=:,") != std::string::npos ||
      options.permit_name.empty()) {
    return Usage("permit-name", "one word", "'" + options.permit_name + "'");
  }
  if (!options.wants_telemetry) {
    if (options.requires_telemetry || options.is_exclusive || options.max_nvlink_errors >= 0 ||
        !options.expected_pci.empty()) {
      return Usage("no-telemetry", "no option that needs telemetry", "one that does");
    }
    for (const std::string& gpu : options.gpus) {
      if (!telemetry::IsFullUuid(gpu)) {
        return Usage("gpus", "whole UUIDs with --no-telemetry", "'" + gpu + "'");
      }
    }
  }
  if (options.command.empty()) return Usage("command", "-- COMMAND ARGS...", "none");
  if (options.log_path.empty()) return Usage("log", "--log FILE", "none");
  return absl::OkStatus();
}

}  // namespace

std::span<const config::SettingSpec> OptionSpecs(Mode mode) {
  static const std::vector<config::SettingSpec> pair_specs = [] {
    std::vector<config::SettingSpec> specs(std::begin(kSpecs), std::end(kSpecs));
    for (config::SettingSpec& spec : specs) {
      if (std::string_view(spec.name) == "permit") spec.default_text = "PAIR_OK";
    }
    return specs;
  }();
  if (mode == Mode::kPair) return pair_specs;
  return kSpecs;
}

const char* ModeName(Mode mode) { return mode == Mode::kPair ? "pair" : "solo"; }

absl::StatusOr<Options> ToOptions(const config::Settings& settings, Mode mode,
                                  std::vector<std::string> command) {
  Options options{.mode = mode,
                  .gpus = settings.List("gpus"),
                  .expected_pci = settings.List("expect-pci"),
                  .permit_path = settings.Text("permit"),
                  .permit_name = settings.Text("permit-name"),
                  .lock_dir = settings.Text("lock-dir"),
                  .log_path = settings.Text("log"),
                  .telemetry_path = settings.Text("telemetry"),
                  .summary_path = settings.Text("summary"),
                  .appends = settings.Boolean("append"),
                  .cap_ms = settings.Integer("cap-ms"),
                  .grace_ms = settings.Integer("grace-ms"),
                  .kill_margin_ms = settings.Integer("kill-margin-ms"),
                  .give_up_ms = settings.Integer("give-up-ms"),
                  .nvml_library = settings.Text("nvml"),
                  .nvml_timeout_ms = static_cast<int>(settings.Integer("nvml-timeout-ms")),
                  .sample_period_ms = static_cast<int>(settings.Integer("sample-period-ms")),
                  .stale_ms = static_cast<int>(settings.Integer("stale-ms")),
                  .wants_telemetry = !settings.Boolean("no-telemetry"),
                  .requires_telemetry = settings.Boolean("require-telemetry"),
                  .is_exclusive = settings.Boolean("exclusive"),
                  .max_nvlink_errors = settings.Integer("max-nvlink-errors"),
                  .wants_cgroup = settings.Text("cgroup") == "auto",
                  .progress = settings.Text("progress"),
                  .command = std::move(command)};
  if (options.telemetry_path.empty())
    options.telemetry_path = options.log_path + ".telemetry.jsonl";
  if (options.summary_path.empty()) options.summary_path = options.log_path + ".summary.json";
  const absl::Status status = Check(options);
  if (!status.ok()) return status;
  return options;
}

}  // namespace tp2::owned
