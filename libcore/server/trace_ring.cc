#include "libcore/server/trace_ring.h"

#include <algorithm>

#include "libcore/base/json.h"

namespace tp2::server {
namespace {

enum Row : int { kQueue = 1, kEngine = 2, kInsert = 3, kDraft = 4 };
constexpr const char* kRowNames[] = {"", "queue", "engine", "insert", "draft"};

Json Event(const StepTrace& step, Row row, int64_t begin_ns, int64_t duration_ns) {
  return {{"name", kRowNames[row]},
          {"ph", "X"},
          {"pid", 1},
          {"tid", static_cast<int>(row)},
          {"ts", static_cast<double>(begin_ns) / 1e3},
          {"dur", static_cast<double>(std::max<int64_t>(duration_ns, 0)) / 1e3},
          {"args",
           {{"round", step.round},
            {"session", step.session},
            {"trace_id", step.trace_id},
            {"entries", step.entries},
            {"rows", step.rows},
            {"n_out", step.n_out},
            {"good", step.is_good}}}};
}

}  // namespace

void TraceRing::Add(const StepTrace& step) {
  const std::lock_guard lock(mutex_);
  if (steps_.size() < kSteps) {
    steps_.push_back(step);
  } else {
    steps_[added_ % kSteps] = step;
  }
  ++added_;
}

std::string TraceRing::ToChromeJson() const {
  std::vector<StepTrace> steps;
  {
    const std::lock_guard lock(mutex_);
    steps = steps_;
    // Oldest first once the ring has come round.
    const size_t oldest = steps.size() < kSteps ? 0 : added_ % kSteps;
    std::rotate(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(oldest), steps.end());
  }
  Json events = Json::array();
  for (const Row row : {kQueue, kEngine, kInsert, kDraft}) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", static_cast<int>(row)},
                      {"args", {{"name", kRowNames[row]}}}});
  }
  // Requests of several clients may wait at once: a wait is drawn from the end of the one before.
  int64_t queue_end_ns = 0;
  for (const StepTrace& step : steps) {
    const int64_t wait_begin_ns = std::max(step.arrival_ns, queue_end_ns);
    queue_end_ns = std::max(step.begin_ns, queue_end_ns);
    events.push_back(Event(step, kQueue, wait_begin_ns, step.begin_ns - wait_begin_ns));
    events.push_back(Event(step, kEngine, step.begin_ns, step.end_ns - step.begin_ns));
    if (!step.is_good) continue;
    events.push_back(Event(step, kInsert, step.begin_ns, step.insert_ns));
    events.push_back(Event(step, kDraft, step.begin_ns + step.insert_ns, step.draft_ns));
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

}  // namespace tp2::server
