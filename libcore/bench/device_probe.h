// What a bench needs of the machine beside the drafter: facts about the card, the copy bandwidth
// that kernels are held against, and a way to start from cold caches. The CUDA form is built twice:
// device_probe_cuda.cc with the toolkit, device_probe_no_cuda.cc without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tp2::bench {

struct CardFacts {
  std::string name;
  std::string uuid;
  int capability = 0;  // 90 for sm_90
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int runtime_version = 0;  // of the CUDA runtime, 13000 for 13.0
};

// Thread-compatible.
class DeviceProbe {
 public:
  virtual ~DeviceProbe() = default;

  // Nothing for the CPU.
  virtual const std::optional<CardFacts>& card() const = 0;
  // Bytes read plus bytes written per second of a large copy inside the memory, in GB/s (decimal):
  // the median of several. Allocates and frees its buffers. Errors: kResourceExhausted, kAborted.
  virtual absl::StatusOr<double> CopyGbPerS() = 0;
  // Writes twice the size of the last-level cache, so that nothing useful stays in it, and waits.
  virtual absl::Status FlushCache() = 0;
};

// The CPU and its memory.
std::unique_ptr<DeviceProbe> MakeHostProbe();

// The card that SelectDevice finds. Errors: kUnavailable, also in a build without CUDA.
absl::StatusOr<std::unique_ptr<DeviceProbe>> MakeCudaProbe(const std::string& device_uuid);

// The cards that SelectDevices finds, by rank. Errors: as MakeCudaProbe.
absl::StatusOr<std::vector<CardFacts>> SelectCards(const std::vector<std::string>& device_uuids,
                                                   int count);

// All cards that a CUDA build sees. Errors: as MakeCudaProbe.
absl::StatusOr<std::vector<CardFacts>> ListCards();

}  // namespace tp2::bench
