// The probes P1 to P9 of one pair: what the link and the cards can do, before anything is tuned.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/p2p-lifecycle/case_setup.h"
#include "libcore/base/status_macros.h"
#include "libcore/collectives/cuda/captured.h"
#include "libcore/collectives/cuda/harness.h"
#include "libcore/collectives/cuda/probes.h"
#include "libcore/device/cuda_status.h"
#include "libcore/device/device_guard.h"
#include "libcore/device/peer.h"

namespace tp2::lifecycle {
namespace {

using coll::Line;
using coll::cuda::ProbeAccess;
using coll::cuda::TornWidth;

constexpr int64_t kLines = 65536;
constexpr uint64_t kTimeoutNs = 2'000'000'000;

struct Side {
  device::Stream stream;
  device::Buffer<Line> lines;
  device::Buffer<uint64_t> times;
  device::Buffer<coll::cuda::PingPongResult> round_trip;
  device::Buffer<coll::cuda::TornResult> torn;
};

class Prober {
 public:
  absl::Status Create(const CaseOptions& options) {
    TP2_ASSIGN_OR_RETURN(cards_, CardsFor(options));
    for (int i = 0; i < 2; ++i) {
      TP2_RETURN_IF_ERROR(device::EnablePeerAccess(cards_[i].ordinal, cards_[1 - i].ordinal));
      const device::DeviceGuard guard(cards_[i].ordinal);
      TP2_RETURN_IF_ERROR(TP2_CUDA(coll::cuda::PreloadKernels()));
      Side& side = sides_[i];
      TP2_ASSIGN_OR_RETURN(side.stream, device::Stream::Create());
      TP2_ASSIGN_OR_RETURN(side.lines, device::Buffer<Line>::Create(kLines));
      TP2_ASSIGN_OR_RETURN(side.times, device::Buffer<uint64_t>::Create(2));
      TP2_ASSIGN_OR_RETURN(side.round_trip, device::Buffer<coll::cuda::PingPongResult>::Create(1));
      TP2_ASSIGN_OR_RETURN(side.torn, device::Buffer<coll::cuda::TornResult>::Create(1));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Json> Run() {
    Json results = Json::object();
    TP2_RETURN_IF_ERROR(PingPongs(results));
    TP2_RETURN_IF_ERROR(Fences(results));
    TP2_RETURN_IF_ERROR(PushRates(results));
    TP2_RETURN_IF_ERROR(NodeGap(results));
    TP2_RETURN_IF_ERROR(Skew(results));
    TP2_RETURN_IF_ERROR(TornLines(results));
    TP2_RETURN_IF_ERROR(Polls(results));
    return results;
  }

 private:
  template <class Body>
  absl::Status On(int index, Body body) {
    const device::DeviceGuard guard(cards_[index].ordinal);
    body(sides_[index].stream.get());
    return TP2_CUDA(cudaPeekAtLastError());
  }
  absl::Status Wait() {
    for (const Side& side : sides_) TP2_RETURN_IF_ERROR(side.stream.Synchronize());
    return absl::OkStatus();
  }
  template <class T>
  absl::StatusOr<T> Fetch(const T* from) {
    T value;
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaMemcpy(&value, from, sizeof(T), cudaMemcpyDeviceToHost)));
    return value;
  }
  absl::Status Clear() {
    for (int i = 0; i < 2; ++i) {
      TP2_RETURN_IF_ERROR(On(i, [&](cudaStream_t stream) {
        cudaMemsetAsync(sides_[i].lines.data(), 0, kLines * sizeof(Line), stream);
        cudaMemsetAsync(sides_[i].torn.data(), 0, sizeof(coll::cuda::TornResult), stream);
        cudaMemsetAsync(sides_[i].round_trip.data(), 0, sizeof(coll::cuda::PingPongResult), stream);
      }));
    }
    return Wait();
  }

  absl::StatusOr<coll::cuda::PingPongResult> PingPong(ProbeAccess access, int rounds) {
    TP2_RETURN_IF_ERROR(Clear());
    for (int i = 1; i >= 0; --i) {
      const coll::cuda::PingPongArgs args = {sides_[i].lines.data(), sides_[1 - i].lines.data(),
                                             rounds, i == 0, kTimeoutNs};
      TP2_RETURN_IF_ERROR(On(i, [&](cudaStream_t stream) {
        coll::cuda::LaunchPingPong(access, args, sides_[i].round_trip.data(), stream);
      }));
    }
    TP2_RETURN_IF_ERROR(Wait());
    return Fetch(sides_[0].round_trip.data());
  }

  absl::Status PingPongs(Json& results) {
    constexpr int kRounds = 10000;
    const std::array<std::pair<const char*, ProbeAccess>, 3> kinds = {
        {{"p1_word_one_way_us", ProbeAccess::kWord},
         {"p2_line_one_way_us", ProbeAccess::kLine},
         {"p3_acquire_release_one_way_us", ProbeAccess::kAcquireRelease}}};
    for (const auto& [name, access] : kinds) {
      TP2_ASSIGN_OR_RETURN(const auto result, PingPong(access, kRounds));
      if (result.total_ns == 0) return absl::DeadlineExceededError(name);
      results[name] = static_cast<double>(result.total_ns) / (2.0 * (kRounds - 1)) * 1e-3;
    }
    return absl::OkStatus();
  }

  absl::Status Fences(Json& results) {
    constexpr int kRounds = 200;
    Json fences = Json::object();
    for (const int64_t bytes : {0, 4096, 65536, 409600}) {
      TP2_RETURN_IF_ERROR(On(0, [&](cudaStream_t stream) {
        coll::cuda::LaunchFenceCost(sides_[1].lines.data(), bytes, kRounds, sides_[0].times.data(),
                                    stream);
      }));
      TP2_RETURN_IF_ERROR(Wait());
      TP2_ASSIGN_OR_RETURN(const uint64_t with, Fetch(sides_[0].times.data()));
      TP2_ASSIGN_OR_RETURN(const uint64_t without, Fetch(sides_[0].times.data() + 1));
      fences[absl::StrCat(bytes)] = {{"with_us", static_cast<double>(with) / kRounds * 1e-3},
                                     {"without_us", static_cast<double>(without) / kRounds * 1e-3}};
    }
    results["p4_fence_after_bytes"] = fences;
    return absl::OkStatus();
  }

  absl::Status PushRates(Json& results) {
    constexpr int kRounds = 50;
    Json rates = Json::object();
    cudaEvent_t start, end;
    const device::DeviceGuard guard(cards_[0].ordinal);
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&start)));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&end)));
    for (const int blocks : {1, 4, 16, 64, 132}) {
      for (const int threads : {128, 256, 512}) {
        const cudaStream_t stream = sides_[0].stream.get();
        cudaEventRecord(start, stream);
        coll::cuda::LaunchPushRate(sides_[1].lines.data(), kLines, kRounds, {blocks, threads},
                                   stream);
        cudaEventRecord(end, stream);
        TP2_RETURN_IF_ERROR(sides_[0].stream.Synchronize());
        float ms = 0;
        TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventElapsedTime(&ms, start, end)));
        const double bytes = static_cast<double>(kLines) * kRounds * sizeof(Line);
        rates[absl::StrCat(blocks, "x", threads)] = bytes / ms * 1e-6;
      }
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    results["p5_push_gb_per_s"] = rates;
    return absl::OkStatus();
  }

  absl::Status NodeGap(Json& results) {
    constexpr int kShort = 20, kLong = 100, kReplays = 50;
    const device::DeviceGuard guard(cards_[0].ordinal);
    const cudaStream_t stream = sides_[0].stream.get();
    cudaEvent_t start, end;
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&start)));
    TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventCreate(&end)));
    std::array<double, 2> medians = {};
    for (int i = 0; i < 2; ++i) {
      TP2_ASSIGN_OR_RETURN(const coll::CapturedGraph graph,
                           coll::CapturedGraph::Capture(cards_[0].ordinal, stream, [&] {
                             for (int node = 0; node < (i == 0 ? kShort : kLong); ++node) {
                               coll::cuda::LaunchEmpty(stream);
                             }
                             return absl::OkStatus();
                           }));
      std::vector<float> times;
      for (int replay = 0; replay < kReplays; ++replay) {
        cudaEventRecord(start, stream);
        TP2_RETURN_IF_ERROR(graph.Launch(stream));
        cudaEventRecord(end, stream);
        TP2_RETURN_IF_ERROR(sides_[0].stream.Synchronize());
        float ms = 0;
        TP2_RETURN_IF_ERROR(TP2_CUDA(cudaEventElapsedTime(&ms, start, end)));
        times.push_back(ms);
      }
      std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
      medians[i] = times[kReplays / 2] * 1e3;
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    results["p6_node_gap_us"] = (medians[1] - medians[0]) / (kLong - kShort);
    return absl::OkStatus();
  }

  // Start of the two ranks' graphs against each other, clocks compared by the fastest round trip.
  absl::Status Skew(Json& results) {
    constexpr int kReplays = 100;
    TP2_ASSIGN_OR_RETURN(const auto clock, PingPong(ProbeAccess::kLine, 2000));
    std::vector<coll::CapturedGraph> graphs(2);
    for (int i = 0; i < 2; ++i) {
      const cudaStream_t stream = sides_[i].stream.get();
      TP2_ASSIGN_OR_RETURN(graphs[i], coll::CapturedGraph::Capture(cards_[i].ordinal, stream, [&] {
                             coll::cuda::LaunchStamp(sides_[i].times.data(), stream);
                             return absl::OkStatus();
                           }));
    }
    std::vector<double> skews;
    for (int replay = 0; replay < kReplays; ++replay) {
      for (int i = 1; i >= 0; --i) {
        const device::DeviceGuard guard(cards_[i].ordinal);
        TP2_RETURN_IF_ERROR(graphs[i].Launch(sides_[i].stream.get()));
      }
      TP2_RETURN_IF_ERROR(Wait());
      TP2_ASSIGN_OR_RETURN(const uint64_t zero, Fetch(sides_[0].times.data()));
      TP2_ASSIGN_OR_RETURN(const uint64_t one, Fetch(sides_[1].times.data()));
      skews.push_back(
          static_cast<double>(static_cast<int64_t>(zero - one) + clock.peer_clock_ahead_ns) * 1e-3);
    }
    std::sort(skews.begin(), skews.end());
    results["p7_rank_0_after_rank_1_us"] = {
        {"p50", skews[kReplays / 2]}, {"min", skews.front()}, {"max", skews.back()}};
    return absl::OkStatus();
  }

  absl::Status TornLines(Json& results) {
    constexpr int64_t kCount = 8192;
    constexpr int kRounds = 20000;
    Json torn = Json::object();
    const std::array<std::pair<const char*, TornWidth>, 3> widths = {
        {{"b128", TornWidth::kScalar128},
         {"v4", TornWidth::kVector4},
         {"warp_128_bytes", TornWidth::kWarp128}}};
    for (const auto& [name, width] : widths) {
      TP2_RETURN_IF_ERROR(Clear());
      TP2_RETURN_IF_ERROR(On(1, [&](cudaStream_t stream) {
        coll::cuda::LaunchTornReader(width, sides_[1].lines.data(), kCount, kRounds, kTimeoutNs,
                                     sides_[1].torn.data(), stream);
      }));
      TP2_RETURN_IF_ERROR(On(0, [&](cudaStream_t stream) {
        coll::cuda::LaunchTornWriter(width, sides_[1].lines.data(), kCount, kRounds, stream);
      }));
      TP2_RETURN_IF_ERROR(Wait());
      TP2_ASSIGN_OR_RETURN(const auto result, Fetch(sides_[1].torn.data()));
      torn[name] = {{"torn", result.torn}, {"reads", result.units}, {"changes", result.changes}};
    }
    results["p8_torn"] = torn;
    return absl::OkStatus();
  }

  absl::Status Polls(Json& results) {
    constexpr int kRounds = 2000;
    for (const bool is_remote : {false, true}) {
      TP2_RETURN_IF_ERROR(Clear());
      TP2_RETURN_IF_ERROR(On(0, [&](cudaStream_t stream) {
        coll::cuda::LaunchPollLatency(sides_[is_remote ? 1 : 0].lines.data(), kRounds,
                                      sides_[0].times.data(), stream);
      }));
      TP2_RETURN_IF_ERROR(Wait());
      TP2_ASSIGN_OR_RETURN(const uint64_t total_ns, Fetch(sides_[0].times.data()));
      results[is_remote ? "p9_remote_poll_us" : "p9_local_poll_us"] =
          static_cast<double>(total_ns) / kRounds * 1e-3;
    }
    return absl::OkStatus();
  }

  std::vector<device::DeviceInfo> cards_;
  std::array<Side, 2> sides_;
};

}  // namespace

CaseResult RunProbes(const CaseOptions& options) {
  Prober prober;
  if (const absl::Status status = prober.Create(options); !status.ok()) {
    return Fail(std::string(status.message()));
  }
  absl::StatusOr<Json> results = prober.Run();
  if (!results.ok()) return Fail(std::string(results.status().message()));
  return Pass("", *std::move(results));
}

}  // namespace tp2::lifecycle
