// NVML opened at run time: a machine without a driver can still run every tool. Calls can hang in
// the kernel of a sick driver, so programs with something better to do than to wait use
// helper_process.h instead of this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/nvml_abi.h"

namespace tp2::telemetry {

inline constexpr char kDefaultNvmlLibrary[] = "libnvidia-ml.so.1";

// What a return code means, with what to do about it where we know.
std::string NvmlMeaning(NvmlReturn code);

class Nvml {
 public:
  // Errors: kUnavailable when the library is missing, lacks a required function, or refuses to
  // start.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // All cards that answer, in NVML's order. Errors: kUnavailable.
  absl::StatusOr<std::vector<CardInfo>> Cards() const;
  // Errors: kUnavailable.
  absl::StatusOr<NvmlDevice> Device(const CardInfo& card) const;
  // Empty when it does not say.
  std::string DriverVersion() const;

  const NvmlFunctions& functions() const { return functions_; }

 private:
  Nvml() = default;

  void* library_ = nullptr;
  bool is_started_ = false;
  NvmlFunctions functions_;
};

}  // namespace tp2::telemetry
