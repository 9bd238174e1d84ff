// The instrumented drafter over the CUDA op set: events between the groups, recorded as nodes of
// the captured graph, so that every replay leaves its own times.
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/timed_engine.h"
#include "libcore/bench/timed_ops.h"
#include "libcore/device/cuda_status.h"
#include "libcore/drafter/cuda_parts.h"
#include "libcore/drafter/drafter-inl.h"

namespace tp2::bench {
namespace {

// Two ranks of v4-pro come to fewer borders than half of it.
constexpr size_t kMarksPerBody = 512;

class EventGroupClock : public GroupClock {
 public:
  // `stream` gives the stream that operations go to when it is asked; null: what runs now does not
  // count.
  explicit EventGroupClock(std::function<cudaStream_t()> stream) : stream_(std::move(stream)) {}
  ~EventGroupClock() override {
    for (const auto& [key, marks] : bodies_) {
      for (const Border& mark : marks) cudaEventDestroy(mark.event);
    }
    for (cudaEvent_t event : spare_) cudaEventDestroy(event);
  }

  void Prepare() override {
    while (status_.ok() && spare_.size() < kMarksPerBody) {
      cudaEvent_t event = nullptr;
      Note(cudaEventCreate(&event), "cudaEventCreate");
      spare_.push_back(event);
    }
  }
  void Begin(const GraphKey& key) override {
    current_ = stream_() == nullptr ? nullptr : &bodies_[key];
    next_ = 0;
  }
  void Mark(KernelGroup group) override {
    if (current_ != nullptr) Record(group);
  }
  void End() override {
    Mark(KernelGroup::kOther);
    current_ = nullptr;
  }

  absl::StatusOr<GroupTimes> Read(const GraphKey& key) const override {
    TP2_RETURN_IF_ERROR(status_);
    const auto found = bodies_.find(key);
    if (found == bodies_.end()) {
      return absl::InternalError(absl::StrCat("group clock: no body with key ", key.Name()));
    }
    const std::vector<Border>& borders = found->second;
    GroupTimes times;
    times.mark_count = static_cast<int>(borders.size());
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      float ms = 0;
      TP2_RETURN_IF_ERROR(
          TP2_CUDA(cudaEventElapsedTime(&ms, borders[i].event, borders[i + 1].event)));
      At(times.ns, borders[i].group) += static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    }
    return times;
  }

 private:
  struct Border {
    KernelGroup group;  // of what follows
    cudaEvent_t event;
  };

  void Note(cudaError_t error, const char* call) {
    if (status_.ok()) status_ = device::ToStatus(error, call);
  }

  // A body that runs again, eagerly, uses the events of its last run.
  void Record(KernelGroup group) {
    if (next_ == current_->size()) {
      if (spare_.empty()) return Note(cudaErrorInvalidValue, "a body with too many groups");
      current_->push_back({group, spare_.back()});
      spare_.pop_back();
    }
    const Border& border = (*current_)[next_++];
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    Note(cudaStreamIsCapturing(stream_(), &capture), "cudaStreamIsCapturing");
    // Outside of a capture the flag is an error; inside, an event without it would only order the
    // capture and never be recorded.
    const unsigned flags =
        capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
    Note(cudaEventRecordWithFlags(border.event, stream_(), flags), "cudaEventRecordWithFlags");
  }

  std::function<cudaStream_t()> stream_;
  std::map<GraphKey, std::vector<Border>> bodies_;
  std::vector<cudaEvent_t> spare_;
  std::vector<Border>* current_ = nullptr;
  size_t next_ = 0;
  absl::Status status_;
};

// `stream` as EventGroupClock's.
template <class Parts>
absl::StatusOr<TimedEngine> MakeTimed(Parts cuda, EngineParts parts, std::optional<int> only_rank,
                                      std::function<cudaStream_t()> stream) {
  using Ops = typename decltype(cuda.ops)::element_type;
  const Ops& setup = *cuda.ops;
  TimedEngine timed;
  timed.clock = std::make_unique<EventGroupClock>(std::move(stream));
  auto ops = std::make_unique<TimedOps<Ops>>(std::move(cuda.ops), timed.clock.get(), only_rank);
  TP2_ASSIGN_OR_RETURN(timed.engine,
                       MakeRecordedDrafter(std::move(cuda.info), std::move(parts.checkpoint),
                                           std::move(ops), parts.plans, setup));
  return timed;
}

}  // namespace

absl::StatusOr<TimedEngine> MakeTimedCudaEngine(EngineParts parts, const EngineOptions& options) {
  TP2_ASSIGN_OR_RETURN(const std::shared_ptr<tuning::KernelChoices> kernels,
                       LoadKernels(options.kernels_path));
  const CudaDrafterOptions cuda_options = {.mode = options.mode,
                                           .max_positions = options.max_positions,
                                           .device_uuids = options.device_uuids,
                                           .uses_graphs = options.uses_graphs,
                                           .collective = parts.mode.collective,
                                           .timeout_ms = options.timeout_ms,
                                           .kernels = kernels,
                                           .joins_products = options.joins_products};
  if (parts.mode.collective != Collective::kPair) {
    TP2_ASSIGN_OR_RETURN(CudaParts cuda,
                         MakeCudaParts(*parts.checkpoint, parts.plans, cuda_options));
    CudaOps& ops = *cuda.ops;
    return MakeTimed(std::move(cuda), std::move(parts), std::nullopt,
                     [&ops] { return ops.stream(); });
  }
  TP2_ASSIGN_OR_RETURN(CudaPairParts cuda,
                       MakeCudaPairParts(*parts.checkpoint, parts.plans, cuda_options));
  CudaPairOps& ops = *cuda.ops;
  // Rank 0's: events belong to a card.
  return MakeTimed(std::move(cuda), std::move(parts), 0, [&ops]() -> cudaStream_t {
    return ops.active_rank() == 1 ? nullptr : ops.rank_ops(0).stream();
  });
}

}  // namespace tp2::bench
