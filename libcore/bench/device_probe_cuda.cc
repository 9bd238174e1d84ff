// Facts, copy bandwidth and cache flush of a card.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>

#include "libcore/base/percentile.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/device_probe.h"
#include "libcore/device/buffer.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/select.h"
#include "libcore/device/stream.h"

namespace tp2::bench {
namespace {

// Large against every L2, small against every card: 512 MiB each way.
constexpr int64_t kCopyBytes = int64_t{512} << 20;
constexpr int kCopies = 20;

absl::StatusOr<CardFacts> FactsOf(const device::DeviceInfo& info) {
  CardFacts facts = {.name = info.name,
                     .uuid = info.uuid,
                     .capability = info.capability,
                     .multiprocessors = info.multiprocessors,
                     .memory_bytes = info.memory_bytes};
  int l2_bytes = 0;
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, info.ordinal)));
  facts.l2_bytes = l2_bytes;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaRuntimeGetVersion(&facts.runtime_version)));
  return facts;
}

absl::StatusOr<std::vector<CardFacts>> FactsOf(const std::vector<device::DeviceInfo>& devices) {
  std::vector<CardFacts> cards;
  for (const device::DeviceInfo& device : devices) {
    TP2_ASSIGN_OR_RETURN(CardFacts facts, FactsOf(device));
    cards.push_back(std::move(facts));
  }
  return cards;
}

// Two timing events.
class Stopwatch {
 public:
  Stopwatch() = default;
  ~Stopwatch() {
    for (cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  absl::Status Create() {
    for (cudaEvent_t& event : events_) TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&event)));
    return absl::OkStatus();
  }
  cudaEvent_t start() const { return events_[0]; }
  cudaEvent_t stop() const { return events_[1]; }

 private:
  cudaEvent_t events_[2] = {};
};

class CudaProbe : public DeviceProbe {
 public:
  CudaProbe(int ordinal, CardFacts card) : ordinal_(ordinal), card_(std::move(card)) {}

  absl::Status Initialize() {
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaSetDevice(ordinal_)));
    TP2_ASSIGN_OR_RETURN(stream_, device::Stream::Create());
    return absl::OkStatus();
  }

  const std::optional<CardFacts>& card() const override { return card_; }

  absl::StatusOr<double> CopyGbPerS() override {
    TP2_ASSIGN_OR_RETURN(auto from, device::Buffer<std::byte>::Create(kCopyBytes));
    TP2_ASSIGN_OR_RETURN(auto to, device::Buffer<std::byte>::Create(kCopyBytes));
    Stopwatch watch;
    TP2_RETURN_IF_ERROR(watch.Create());
    std::vector<double> times_ms;
    for (int copy = -kCopies; copy < kCopies; ++copy) {
      TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(watch.start(), stream_.get())));
      TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpyAsync(to.data(), from.data(), kCopyBytes,
                                                   cudaMemcpyDeviceToDevice, stream_.get())));
      TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventRecord(watch.stop(), stream_.get())));
      TP2_RETURN_IF_ERROR(stream_.Synchronize());
      float ms = 0;
      TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventElapsedTime(&ms, watch.start(), watch.stop())));
      // The first half warms the clocks up.
      if (copy >= 0) times_ms.push_back(ms);
    }
    return 2.0 * static_cast<double>(kCopyBytes) / NearestRank(times_ms, 50) * 1e-6;
  }

  absl::Status FlushCache() override {
    if (flush_.size() == 0) {
      TP2_ASSIGN_OR_RETURN(flush_, device::Buffer<std::byte>::Create(2 * card_->l2_bytes));
    }
    ++flush_value_;
    TP2_RETURN_IF_ERROR(TP2_CUDA(
        cudaMemsetAsync(flush_.data(), flush_value_ & 0xFF, flush_.size(), stream_.get())));
    return stream_.Synchronize();
  }

 private:
  int ordinal_;
  std::optional<CardFacts> card_;
  device::Stream stream_;
  device::Buffer<std::byte> flush_;
  int flush_value_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceProbe>> MakeCudaProbe(const std::string& device_uuid) {
  TP2_ASSIGN_OR_RETURN(const device::DeviceInfo info, device::SelectDevice(device_uuid));
  TP2_ASSIGN_OR_RETURN(CardFacts facts, FactsOf(info));
  auto probe = std::make_unique<CudaProbe>(info.ordinal, std::move(facts));
  TP2_RETURN_IF_ERROR(probe->Initialize());
  return probe;
}

absl::StatusOr<std::vector<CardFacts>> SelectCards(const std::vector<std::string>& device_uuids,
                                                   int count) {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> devices,
                       device::SelectDevices(device_uuids, count));
  return FactsOf(devices);
}

absl::StatusOr<std::vector<CardFacts>> ListCards() {
  TP2_ASSIGN_OR_RETURN(const std::vector<device::DeviceInfo> devices, device::ListDevices());
  return FactsOf(devices);
}

}  // namespace tp2::bench
