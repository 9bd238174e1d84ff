// One run that measures: where its result goes, under which conditions it runs, how it ended.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cmd/tp2-bench/flags.h"
#include "libcore/base/file.h"
#include "libcore/base/json.h"
#include "libcore/bench/cells.h"
#include "libcore/bench/conditions.h"
#include "libcore/bench/device_probe.h"
#include "libcore/bench/result.h"
#include "libcore/drafter/make_engine.h"

namespace tp2::bench {

// Thread-compatible.
class Session {
 public:
  // Refuses an existing result file and a missing card before anything is measured. Measures the
  // copy bandwidth.
  static absl::StatusOr<std::unique_ptr<Session>> Start(const Flags& flags);

  EngineOptions OptionsOf(const std::string& mode) const;
  // With the cache flush that the flags ask for.
  RunOptions run_options();
  double copy_gb_per_s() const { return copy_gb_per_s_; }

  // The header: tool, card, conditions. Nothing when JSON goes to stdout.
  absl::Status PrintHeader(const StepEngine& engine);
  // The engine of a mode; the nodes of its graph keys and the memory that every card has in use
  // before and with it go into the result.
  absl::StatusOr<std::unique_ptr<StepEngine>> MakeEngine(const std::string& mode);
  absl::Status Print(const std::string& text) const;

  // Judges the cell by its primary series and adds what was read from the card right after it.
  // Returns its state's name, "ok" if all is well.
  std::string AddCell(Json cell, const std::vector<int64_t>& primary_ns);
  Json& result() { return result_; }
  std::optional<telemetry::CardSample> last_reading() const { return last_reading_; }

  // Writes the result and gives the exit code: 5 when a cell was noisy or throttled, 128 + signal
  // when the run was cut short.
  absl::StatusOr<int> Finish();

 private:
  void AddGraphs(const StepEngine& engine);
  explicit Session(const Flags& flags) : flags_(flags) {}

  const Flags& flags_;
  std::string backend_;
  std::unique_ptr<DeviceProbe> probe_;
  std::unique_ptr<Conditions> conditions_;
  std::optional<AtomicFileWriter> file_;
  Json result_;
  double copy_gb_per_s_ = 0;
  std::optional<telemetry::CardSample> last_reading_;
  bool is_refused_ = false;
};

}  // namespace tp2::bench
