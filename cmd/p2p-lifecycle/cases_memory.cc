// Cases about peer memory: what is accepted as state, what arrives, what a missing grant does.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/data_check.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/driver_function.h"
#include "libcore/device/peer.h"

namespace tp2::lifecycle {
namespace {

constexpr size_t kStateBytes = 2 << 20;

absl::Status Driver(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(call, ": driver error ", static_cast<int>(code)));
}

// A segment as allocators with expandable segments make them: a reserved range with mapped memory,
// granted to its own card only. Lives until the process ends.
absl::StatusOr<void*> MapSegment(int ordinal, size_t byte_count) {
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long) = nullptr;
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) = nullptr;
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) =
      nullptr;
  CUresult (*grant)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) = nullptr;
  TP2_RETURN_IF_ERROR(device::FindDriverFunction("cuMemCreate", create));
  TP2_RETURN_IF_ERROR(device::FindDriverFunction("cuMemAddressReserve", reserve));
  TP2_RETURN_IF_ERROR(device::FindDriverFunction("cuMemMap", map));
  TP2_RETURN_IF_ERROR(device::FindDriverFunction("cuMemSetAccess", grant));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaSetDevice(ordinal)));
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaFree(nullptr)));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
  CUmemGenericAllocationHandle handle;
  TP2_RETURN_IF_ERROR(Driver(create(&handle, byte_count, &prop, 0), "cuMemCreate"));
  CUdeviceptr address = 0;
  TP2_RETURN_IF_ERROR(Driver(reserve(&address, byte_count, 0, 0, 0), "cuMemAddressReserve"));
  TP2_RETURN_IF_ERROR(Driver(map(address, byte_count, 0, handle, 0), "cuMemMap"));
  const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  TP2_RETURN_IF_ERROR(Driver(grant(address, byte_count, &access, 1), "cuMemSetAccess"));
  return reinterpret_cast<void*>(address);
}

}  // namespace

absl::StatusOr<CaseResult> RunData(const CaseOptions& options) {
  constexpr int64_t kLines = 1'000'000;
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  const SteadyClock clock;
  const int64_t start_ns = clock.NowNs();
  for (int from = 0; from < 2; ++from) {
    const device::DeviceInfo &sender = cards[from], &receiver = cards[1 - from];
    TP2_RETURN_IF_ERROR(device::EnablePeerAccess(sender.ordinal, receiver.ordinal));
    TP2_RETURN_IF_ERROR(device::EnablePeerAccess(receiver.ordinal, sender.ordinal));
    TP2_RETURN_IF_ERROR(coll::CheckPeerData(sender, receiver, kLines));
  }
  return Pass(absl::StrCat(kLines, " lines each way, stores and copies, ",
                           (clock.NowNs() - start_ns) / 1'000'000, " ms"));
}

absl::StatusOr<CaseResult> RunVmmState(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  TP2_ASSIGN_OR_RETURN(void* const segment, MapSegment(cards[0].ordinal, kStateBytes));
  return PassIfRefused(device::CheckPeerMemory(segment, kStateBytes, cards[0].ordinal), "VMM");
}

// Refused whatever a grant makes of it; what a granted pool does here is in the details.
absl::StatusOr<CaseResult> RunPoolState(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  const device::DeviceGuard guard(cards[0].ordinal);
  TP2_ASSIGN_OR_RETURN(const device::Stream stream, device::Stream::Create());
  void* pooled = nullptr;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMallocAsync(&pooled, kStateBytes, stream.get())));
  TP2_RETURN_IF_ERROR(stream.Synchronize());
  CaseResult result =
      PassIfRefused(device::CheckPeerMemory(pooled, kStateBytes, cards[0].ordinal), "pool");
  if (cards[0].ordinal == cards[1].ordinal) return result;
  cudaMemPool_t pool;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaDeviceGetDefaultMemPool(&pool, cards[0].ordinal)));
  cudaMemAccessDesc access = {};
  access.location = {cudaMemLocationTypeDevice, cards[1].ordinal};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemPoolSetAccess(pool, &access, 1)));
  const device::DeviceGuard peer_guard(cards[1].ordinal);
  constexpr int64_t kLines = kStateBytes / sizeof(coll::Line);
  TP2_ASSIGN_OR_RETURN(const device::Stream peer, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(auto wrong, device::Buffer<unsigned long long>::Create(1));
  coll::cuda::LaunchPatternStore(static_cast<coll::Line*>(pooled), kLines, 7, peer.get());
  coll::cuda::LaunchPatternCheck(static_cast<coll::Line*>(pooled), kLines, 7, wrong.data(),
                                 peer.get());
  TP2_RETURN_IF_ERROR(peer.Synchronize());
  unsigned long long wrong_lines = 0;
  TP2_RETURN_IF_ERROR(
      TP2_CUDA(cudaMemcpy(&wrong_lines, wrong.data(), sizeof wrong_lines, cudaMemcpyDeviceToHost)));
  result.details = {{"granted_pool_wrong_lines", wrong_lines}, {"lines", kLines}};
  return result;
}

absl::StatusOr<CaseResult> RunVmmNoAccess(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  TP2_ASSIGN_OR_RETURN(void* const segment, MapSegment(cards[0].ordinal, kStateBytes));
  TP2_RETURN_IF_ERROR(device::EnablePeerAccess(cards[1].ordinal, cards[0].ordinal));
  const device::DeviceGuard guard(cards[1].ordinal);
  TP2_ASSIGN_OR_RETURN(const device::Stream stream, device::Stream::Create());
  TP2_ASSIGN_OR_RETURN(const coll::CapturedGraph graph,
                       coll::CapturedGraph::Capture(cards[1].ordinal, stream.get(), [&] {
                         coll::cuda::LaunchPatternStore(static_cast<coll::Line*>(segment), 1024, 7,
                                                        stream.get());
                         return absl::OkStatus();
                       }));
  TP2_RETURN_IF_ERROR(graph.Launch(stream.get()));
  const absl::Status faulted = stream.Synchronize();
  if (faulted.ok()) return Fail("a store without a grant went unnoticed");
  return Pass("replayed store: " + std::string(faulted.message()));
}

absl::StatusOr<CaseResult> RunEnableTwice(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  for (int i = 0; i < 3; ++i) {
    TP2_RETURN_IF_ERROR(device::EnablePeerAccess(cards[0].ordinal, cards[1].ordinal));
  }
  TP2_RETURN_IF_ERROR(device::ToStatus(cudaPeekAtLastError(), "after the third call"));
  // Enabling again inside its creation, then captures and launch checks.
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  return ExactSoak(*pair, SoakFor(options, 1000));
}

absl::StatusOr<CaseResult> RunPendingError(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  if (cudaSetDevice(-1) == cudaSuccess) return Fail("no error could be left pending");
  const absl::Status refused = device::EnablePeerAccess(cards[0].ordinal, cards[1].ordinal);
  const bool is_kept = cudaPeekAtLastError() != cudaSuccess;
  if (!is_kept) return Fail("the pending error was swallowed");
  return PassIfRefused(refused, "before peer access");
}

absl::StatusOr<CaseResult> RunAllocatorImport(const CaseOptions& options) {
  TP2_ASSIGN_OR_RETURN(const auto cards, CardsFor(options));
  Json segments = Json::array();
  std::string kinds;
  for (const device::DeviceInfo& card : cards) {
    TP2_ASSIGN_OR_RETURN(void* const segment, MapSegment(card.ordinal, size_t{64} << 20));
    const absl::Status kind = device::CheckPeerMemory(segment, kStateBytes, card.ordinal);
    segments.push_back({{"card", card.uuid}, {"kind", kind.ok() ? "plain" : "expandable"}});
    absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", kind.ok() ? "plain" : "expandable");
  }
  TP2_ASSIGN_OR_RETURN(const auto pair, MakePair(options));
  TP2_ASSIGN_OR_RETURN(CaseResult result, ExactSoak(*pair, SoakFor(options, 5000)));
  result.reason = absl::StrCat("allocator segments ", kinds, "; state plain; ", result.reason);
  result.details["segments"] = segments;
  return result;
}

}  // namespace tp2::lifecycle
