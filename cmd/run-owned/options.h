// The settings of run-owned: one table for flags, --print-config and --help, and their typed form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/config/settings.h"

namespace tp2::owned {

enum class Mode { kSolo, kPair };

struct Options {
  Mode mode = Mode::kSolo;
  std::vector<std::string> gpus;  // in rank order
  std::vector<std::string> expected_pci;
  std::string permit_path;  // empty: none is needed
  std::string permit_name;
  std::string lock_dir;
  std::string log_path;
  std::string telemetry_path;
  std::string summary_path;
  bool appends = false;
  int64_t cap_ms = 0;
  int64_t grace_ms = 0;
  int64_t kill_margin_ms = 0;
  int64_t give_up_ms = 0;
  std::string nvml_library;
  int nvml_timeout_ms = 0;
  int sample_period_ms = 0;
  int stale_ms = 0;
  bool wants_telemetry = true;
  bool requires_telemetry = false;
  bool is_exclusive = false;
  int64_t max_nvlink_errors = -1;  // -1: report only
  bool wants_cgroup = true;
  std::string progress;  // auto|always|never
  std::vector<std::string> command;
};

// The modes differ in the default of `permit`: a pair has one.
std::span<const config::SettingSpec> OptionSpecs(Mode mode);

// Cross-field rules included. Errors: kInvalidArgument.
absl::StatusOr<Options> ToOptions(const config::Settings& settings, Mode mode,
                                  std::vector<std::string> command);

const char* ModeName(Mode mode);

}  // namespace tp2::owned
