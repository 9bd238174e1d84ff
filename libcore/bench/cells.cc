#include "libcore/bench/cells.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "libcore/base/clock.h"
#include "libcore/base/rng.h"
#include "libcore/base/status_macros.h"
#include "libcore/bench/anchors.h"
#include "libcore/drafter/observer.h"

namespace tp2::bench {
namespace {

std::vector<Bf16> Rows(Rng& rng, int64_t count) {
  std::vector<Bf16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(ToBf16(rng.Signed()));
  return values;
}

std::vector<Bf16> NewRows(const StepEngine& engine, int count) {
  Rng rng(2);
  return Rows(rng, int64_t{count} * engine.info().config.tap_values());
}

// Calls `call` until all replays are done; `call` returns after its work has ended.
template <class Call>
absl::Status Repeat(const RunOptions& options, Call&& call) {
  for (int replay = -options.warmup; replay < options.replays; ++replay) {
    if (options.before_each) TP2_RETURN_IF_ERROR(options.before_each());
    TP2_RETURN_IF_ERROR(call(replay >= 0));
    if (replay >= 0 && options.after_each) options.after_each(replay + 1);
  }
  return absl::OkStatus();
}

// STEP number `index` of a cell; `values` holds the new rows of all requests.
std::vector<StepEntry> Entries(const StepEngine& engine, const Cell& cell, int64_t index,
                               std::span<const Bf16> values) {
  const DrafterConfig& config = engine.info().config;
  const int64_t row_values = int64_t{cell.insert_rows} * config.tap_values();
  std::vector<StepEntry> entries;
  for (int request = 0; request < cell.requests; ++request) {
    const int slot = cell.first_slot + request;
    entries.push_back({.rows = {.slot = slot,
                                .position = engine.window(slot).length(),
                                .kind = RowKind::kTaps,
                                .row_count = cell.insert_rows,
                                .values = values.subspan(request * row_values, row_values)},
                       .anchor = AnchorAt(index * cell.requests + request, config.vocab)});
  }
  return entries;
}

// Counts the distinct ids of every "sS.route_ids".
class RouteCounter : public StepObserver {
 public:
  explicit RouteCounter(int stages) : sums_(static_cast<size_t>(stages)) {}
  void OnTensor(const std::string& name, std::vector<int64_t> shape,
                std::span<const float> values) override {
    for (size_t stage = 0; stage < sums_.size(); ++stage) {
      if (name != absl::StrCat("s", stage, ".route_ids")) continue;
      sums_[stage] += static_cast<double>(std::set<float>(values.begin(), values.end()).size());
    }
  }
  std::vector<double> Means(int steps) const {
    std::vector<double> means = sums_;
    for (double& mean : means) mean /= steps;
    return means;
  }

 private:
  std::vector<double> sums_;
};

}  // namespace

absl::Status FillWindows(StepEngine& engine, const ContextOptions& context) {
  const DrafterConfig& config = engine.info().config;
  const int64_t end = std::max<int64_t>(context.length, config.window);
  Rng rng(1);
  for (int slot = 0; slot < kSlotCount; ++slot) {
    TP2_RETURN_IF_ERROR(engine.ResetSlot(slot, end - config.window));
    if (slot >= context.slot_count) continue;
    for (int64_t position = end - config.window; position < end;) {
      const int rows = static_cast<int>(std::min<int64_t>(kMaxRowsPerMessage, end - position));
      const std::vector<Bf16> values = Rows(rng, rows * int64_t{config.tap_values()});
      TP2_RETURN_IF_ERROR(engine.Insert({slot, position, RowKind::kTaps, rows, values}));
      position += rows;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CellTimes> RunCell(StepEngine& engine, const Cell& cell, const RunOptions& options) {
  const SteadyClock clock;
  const std::vector<Bf16> values = NewRows(engine, cell.requests * cell.insert_rows);
  CellTimes times;
  int64_t index = 0;
  const auto step = [&](bool is_timed) -> absl::Status {
    const std::vector<StepEntry> entries = Entries(engine, cell, index++, values);
    const int64_t start_ns = clock.NowNs();
    TP2_ASSIGN_OR_RETURN(
        const StepOutputs outputs,
        engine.Step(
            {.entries = entries, .n_out = cell.n_out, .wants_margins = cell.wants_margins}));
    const int64_t end_ns = clock.NowNs();
    if (!is_timed) return absl::OkStatus();
    times.host_ns.push_back(end_ns - start_ns);
    if (outputs.draft_device_ns == 0) return absl::OkStatus();
    times.draft_device_ns.push_back(outputs.draft_device_ns);
    times.last_draft_device_ns.push_back(outputs.last_draft_device_ns);
    if (cell.insert_rows > 0) times.insert_device_ns.push_back(outputs.insert_device_ns);
    return absl::OkStatus();
  };
  TP2_RETURN_IF_ERROR(Repeat(options, step));
  return times;
}

absl::StatusOr<CellTimes> RunInsert(StepEngine& engine, int rows, const RunOptions& options) {
  const SteadyClock clock;
  const std::vector<Bf16> values = NewRows(engine, rows);
  CellTimes times;
  const auto insert = [&](bool is_timed) -> absl::Status {
    const int64_t position = engine.window(0).length();
    const int64_t start_ns = clock.NowNs();
    TP2_RETURN_IF_ERROR(engine.Insert({0, position, RowKind::kTaps, rows, values}));
    const int64_t end_ns = clock.NowNs();
    if (is_timed) times.host_ns.push_back(end_ns - start_ns);
    return absl::OkStatus();
  };
  TP2_RETURN_IF_ERROR(Repeat(options, insert));
  return times;
}

absl::StatusOr<std::vector<double>> CountExperts(StepEngine& engine, const Cell& cell, int steps) {
  RouteCounter counter(engine.info().config.stages);
  if (!engine.SetObserver(&counter)) return std::vector<double>();
  absl::Status status = absl::OkStatus();
  for (int step = 0; step < steps && status.ok(); ++step) {
    const Cell draft = {
        .requests = cell.requests, .n_out = cell.n_out, .first_slot = cell.first_slot};
    const std::vector<StepEntry> entries = Entries(engine, draft, step, {});
    status = engine.Step({.entries = entries, .n_out = cell.n_out}).status();
  }
  engine.SetObserver(nullptr);
  if (!status.ok()) return status;
  return counter.Means(steps);
}

}  // namespace tp2::bench
