#include "libcore/collectives/cuda/data_check.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/device/buffer.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/stream.h"

namespace tp2::coll {
namespace {

// One card's side of the check.
struct Side {
  int ordinal = 0;
  device::Stream stream;
  device::Buffer<Line> lines;
  device::Buffer<unsigned long long> wrong;
};

absl::StatusOr<Side> MakeSide(int ordinal, int64_t line_count) {
  const device::DeviceGuard guard(ordinal);
  Side side;
  side.ordinal = ordinal;
  TP2_ASSIGN_OR_RETURN(side.stream, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(side.lines, device::Buffer<Line>::Create(line_count));
  TP2_ASSIGN_OR_RETURN(side.wrong, device::Buffer<unsigned long long>::Create(1));
  return side;
}

absl::StatusOr<unsigned long long> CountWrong(Side& side, uint64_t seed) {
  const device::DeviceGuard guard(side.ordinal);
  cuda::LaunchPatternCheck(side.lines.data(), static_cast<int64_t>(side.lines.size()), seed,
                           side.wrong.data(), side.stream.get());
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaPeekAtLastError()));
  unsigned long long wrong = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpyAsync(&wrong, side.wrong.data(), sizeof wrong,
                                               cudaMemcpyDeviceToHost, side.stream.get())));
  TP2_RETURN_IF_ERROR(side.stream.Synchronize());
  return wrong;
}

absl::Status Judge(unsigned long long wrong, const char* way, const device::DeviceInfo& from,
                   const device::DeviceInfo& to, int64_t line_count) {
  if (wrong == 0) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kDataLoss,
      {.what = absl::StrCat("peer data by ", way, " from ", from.uuid, " to ", to.uuid),
       .expected = absl::StrCat(line_count, " lines as sent"),
       .got = absl::StrCat(wrong, " wrong ones"),
       .next = "look for an IOMMU or ACS in the path; this pair is not usable"});
}

absl::Status Check(const device::DeviceInfo& from, const device::DeviceInfo& to,
                   int64_t line_count) {
  constexpr uint64_t kStoreSeed = 0x5701, kCopySeed = 0xC0B1;
  TP2_ASSIGN_OR_RETURN(Side sender, MakeSide(from.ordinal, line_count));
  TP2_ASSIGN_OR_RETURN(Side receiver, MakeSide(to.ordinal, line_count));
  {
    const device::DeviceGuard guard(from.ordinal);
    cuda::LaunchPatternStore(receiver.lines.data(), line_count, kStoreSeed, sender.stream.get());
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaPeekAtLastError()));
    TP2_RETURN_IF_ERROR(sender.stream.Synchronize());
  }
  TP2_ASSIGN_OR_RETURN(unsigned long long wrong, CountWrong(receiver, kStoreSeed));
  TP2_RETURN_IF_ERROR(Judge(wrong, "stores", from, to, line_count));
  {
    const device::DeviceGuard guard(from.ordinal);
    cuda::LaunchPatternStore(sender.lines.data(), line_count, kCopySeed, sender.stream.get());
    TP2_RETURN_IF_ERROR(TP2_CUDA(
        cudaMemcpyPeerAsync(receiver.lines.data(), to.ordinal, sender.lines.data(), from.ordinal,
                            static_cast<size_t>(line_count) * sizeof(Line), sender.stream.get())));
    TP2_RETURN_IF_ERROR(sender.stream.Synchronize());
  }
  TP2_ASSIGN_OR_RETURN(wrong, CountWrong(receiver, kCopySeed));
  return Judge(wrong, "copies", from, to, line_count);
}

}  // namespace

absl::Status CheckPeerData(const device::DeviceInfo& from, const device::DeviceInfo& to,
                           int64_t line_count) {
  static std::mutex mutex;
  static std::set<std::string> passed;
  int driver = 0;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaDriverGetVersion(&driver)));
  const std::string key = absl::StrCat(from.uuid, ">", to.uuid, "/", driver, "/", line_count);
  {
    const std::lock_guard lock(mutex);
    if (passed.count(key) != 0) return absl::OkStatus();
  }
  TP2_RETURN_IF_ERROR(Check(from, to, line_count));
  const std::lock_guard lock(mutex);
  passed.insert(key);
  return absl::OkStatus();
}

}  // namespace tp2::coll
