// Linked into faulty_serve in front of MakeEngine: dspark-serve itself, over a pair of CPU ranks
// whose collectives fail when the file `fault` in its working folder says so. The file's first word
// is the fault of the next STEP, its second how many STEPs have it:
//
//   cancel N   the collectives are cancelled
//   late N     rank 1 sleeps longer than rank 0 waits
//   poison N   the pair is lost for good
//
// A few hundred operations use up the epochs, so that every longer test resets the pair too.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libcore/base/status_macros.h"
#include "libcore/drafter/cpu_drafter-inl.h"
#include "libcore/drafter/host_pair_ops.h"
#include "libcore/drafter/make_engine.h"

namespace tp2 {
namespace {

// Copying one takes as long as it says: the only way into a rank's stream from outside.
struct Pause {
  int64_t ms = 0;
  Pause& operator=(const Pause& other) {
    std::this_thread::sleep_for(std::chrono::milliseconds(other.ms));
    return *this;
  }
  Pause() = default;
  explicit Pause(int64_t pause_ms) : ms(pause_ms) {}
  Pause(const Pause&) = default;
};

class FaultyEngine final : public StepEngine {
 public:
  FaultyEngine(EngineInfo info, std::unique_ptr<Checkpoint> checkpoint,
               std::unique_ptr<HostPairOps> ops, std::span<const ShardPlan> plans)
      : ops_(ops.get()), drafter_(std::move(info), std::move(checkpoint), std::move(ops), plans) {}

  const EngineInfo& info() const override { return drafter_.info(); }
  absl::Status ResetSlot(int slot, int64_t base) override { return drafter_.ResetSlot(slot, base); }
  const SlotWindow& window(int slot) const override { return drafter_.window(slot); }
  absl::Status Insert(const InsertRows& rows) override { return drafter_.Insert(rows); }
  absl::Status MaintainWhileIdle() override { return drafter_.MaintainWhileIdle(); }
  bool is_healthy() const override { return drafter_.is_healthy(); }
  absl::StatusOr<StepOutputs> Step(const StepRequest& request) override {
    Inject(NextFault());
    return drafter_.Step(request);
  }

 private:
  // The pair's ranks wait two seconds for each other.
  static constexpr int64_t kTooLateMs = 2'050;

  static std::string NextFault() {
    char name[16] = "";
    int count = 0;
    if (FILE* file = std::fopen("fault", "r")) {
      if (std::fscanf(file, "%15s %d", name, &count) != 2) count = 0;
      std::fclose(file);
    }
    if (count <= 0) return "";
    if (FILE* file = std::fopen("fault.next", "w")) {
      std::fprintf(file, "%s %d\n", name, count - 1);
      std::fclose(file);
      std::filesystem::rename("fault.next", "fault");
    }
    return name;
  }

  void Inject(const std::string& fault) {
    if (fault == "cancel") ops_->pair().Cancel();
    if (fault == "late") ops_->Upload<Pause>(1, {&pause_, 1}, &paused_);
    if (fault == "poison") {
      ops_->latch().NoteDeviceError(absl::InternalError("an injected loss")).IgnoreError();
    }
  }

  HostPairOps* ops_;
  const Pause pause_{kTooLateMs};
  Pause paused_;
  Drafter<HostPairOps> drafter_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepEngine>> MakeFaultyEngine(const EngineOptions& options) asm(
    "__wrap__ZN3tp210MakeEngineERKNS_13EngineOptionsE");

absl::StatusOr<std::unique_ptr<StepEngine>> MakeFaultyEngine(const EngineOptions& options) {
  EngineOptions pair = options;
  pair.mode = "host-pair";
  TP2_ASSIGN_OR_RETURN(EngineParts parts, OpenEngineParts(pair));
  EngineInfo info = CpuEngineInfo(*parts.checkpoint, parts.plans,
                                  {.mode = "one-card", .max_positions = options.max_positions});
  info.tp = 1;  // the client compares with one card, whose bits are the pair's
  auto ops =
      std::make_unique<HostPairOps>(info.config, 2, options.thread_count,
                                    coll::LatchOptions{.max_epoch = 400, .reset_after = 300});
  return std::make_unique<FaultyEngine>(std::move(info), std::move(parts.checkpoint),
                                        std::move(ops), parts.plans);
}

}  // namespace tp2
