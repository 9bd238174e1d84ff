#include "libcore/server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <utility>
#include <vector>

#include "libcore/base/build_info.h"
#include "libcore/server/metric_families.h"

namespace tp2::server {
namespace {

// 1 to 20 ms in steps of 8 %, so that a percentile of a card's STEP can be read to 8 %; coarse
// around that, for the CPU.
prometheus::Histogram::BucketBoundaries StepBuckets() {
  prometheus::Histogram::BucketBoundaries bounds = {0.0001, 0.0002, 0.0005};
  for (double bound = 0.001; bound < 0.0201; bound *= 1.08) bounds.push_back(bound);
  for (const double bound : {0.05, 0.1, 0.2, 0.5, 1.0, 2.0}) bounds.push_back(bound);
  return bounds;
}

void AddHealth(const contract::HealthReply& health, MetricFamilies* list) {
  list->Counter("dspark_steps_total", "STEPs that reached the engine", {{"status", "ok"}},
                health.steps - health.failed_steps);
  list->Counter("dspark_steps_total", "", {{"status", "failed"}}, health.failed_steps);
  list->Counter("dspark_inserts_total", "INSERTs served", {}, health.inserts);
  list->Counter("dspark_resets_total", "slots put back after a failure", {}, health.resets);
  list->Gauge("dspark_failures_consecutive", "failures since the last good STEP", {},
              health.failures_in_a_row);
  list->Gauge("dspark_sessions", "clients with a session", {}, health.sessions);
  list->Gauge("dspark_slots_open", "slots that clients hold", {}, health.open_slots);
  list->Gauge("dspark_uptime_seconds", "since the start", {},
              static_cast<double>(health.uptime_us) / 1e6);
  list->Gauge("dspark_last_good_step_age_seconds", "since a STEP last succeeded", {},
              static_cast<double>(health.last_good_step_age_us) / 1e6);
  list->Gauge("dspark_poisoned", "1 once the engine is lost", {},
              health.state == contract::WorkerState::kPoisoned ? 1 : 0);
  list->Gauge("dspark_state", "as HEALTH numbers it: 1 STARTING .. 5 POISONED", {},
              static_cast<double>(health.state));
}

void AddCounts(const Counts& counts, MetricFamilies* list) {
  for (const auto& [code, count] : counts.replies) {
    list->Counter("dspark_replies_total", "replies by code", {{"code", contract::CodeName(code)}},
                  count);
  }
  for (const auto& [code, count] : counts.refused_connections) {
    list->Counter("dspark_refused_connections_total", "connections refused before HELLO",
                  {{"code", contract::CodeName(code)}}, count);
  }
  for (const auto& [reason, count] : counts.closes) {
    list->Counter("dspark_connection_closes_total", "why connections ended", {{"reason", reason}},
                  count);
  }
  list->Counter("dspark_connections_total", "connections accepted", {},
                counts.accepted_connections);
  list->Counter("dspark_bytes_total", "bytes of frames", {{"dir", "in"}}, counts.bytes_in);
  list->Counter("dspark_bytes_total", "", {{"dir", "out"}}, counts.bytes_out);
  list->Counter("dspark_canaries_total", "STEPs of the worker's own while idle", {},
                counts.canaries);
  for (int i = 0; i < kBlockRows; ++i) {
    list->Counter("dspark_drafts_judged_total", "drafts whose fate the client reported",
                  {{"position", std::to_string(i)}}, counts.judged_drafts[i]);
  }
  for (int i = 0; i < kBlockRows; ++i) {
    list->Counter("dspark_drafts_accepted_total", "of these, accepted by the target",
                  {{"position", std::to_string(i)}}, counts.accepted_drafts[i]);
  }
  list->Counter("dspark_feedback_impossible_total", "reports about blocks nobody drafted", {},
                counts.impossible_feedback);
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry;
  const prometheus::Histogram::BucketBoundaries buckets = StepBuckets();
  prometheus::Family<prometheus::Histogram>& total = prometheus::BuildHistogram()
                                                         .Name("dspark_step_seconds")
                                                         .Help("engine time of a good STEP")
                                                         .Register(registry);
  prometheus::Family<prometheus::Histogram>& stage = prometheus::BuildHistogram()
                                                         .Name("dspark_step_stage_seconds")
                                                         .Help("where a STEP's time went")
                                                         .Register(registry);
  prometheus::Histogram& queue = stage.Add({{"stage", "queue"}}, buckets);
  prometheus::Histogram& insert = stage.Add({{"stage", "insert"}}, buckets);
  prometheus::Histogram& draft = stage.Add({{"stage", "draft"}}, buckets);
  prometheus::Histogram& insert_only = prometheus::BuildHistogram()
                                           .Name("dspark_insert_seconds")
                                           .Help("engine time of an INSERT")
                                           .Register(registry)
                                           .Add({}, buckets);

  // Looked up by name once: that takes longer than the rest of a STEP's numbers.
  prometheus::Histogram& TotalOf(int entries, int n_out) {
    prometheus::Histogram*& known = totals[entries - 1][n_out - 1];
    if (known == nullptr) {
      known = &total.Add({{"n_req", std::to_string(entries)}, {"n_out", std::to_string(n_out)}},
                         buckets);
    }
    return *known;
  }
  std::array<std::array<prometheus::Histogram*, kBlockRows>, kMaxRequests> totals{};
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::ObserveStep(const StepTimes& times) {
  families_->queue.Observe(static_cast<double>(times.queue_us) / 1e6);
  families_->insert.Observe(static_cast<double>(times.insert_us) / 1e6);
  families_->draft.Observe(static_cast<double>(times.draft_us) / 1e6);
  families_->TotalOf(times.entries, times.n_out).Observe(static_cast<double>(times.total_us) / 1e6);
}

void Metrics::ObserveInsert(int64_t insert_us) {
  families_->insert_only.Observe(static_cast<double>(insert_us) / 1e6);
}

std::string Metrics::Text(const contract::HealthReply& health, const Counts& counts,
                          const contract::WorkerLimits& limits) const {
  MetricFamilies list;
  AddHealth(health, &list);
  AddCounts(counts, &list);
  const BuildInfo build = GetBuildInfo();
  list.Gauge("dspark_build_info", "always 1", {{"version", build.version}, {"git", build.git_id}},
             1);
  list.Gauge("dspark_config_info", "always 1",
             {{"identity", Hex(limits.identity)},
              {"config", Hex(limits.config)},
              {"numerics", Hex(limits.numerics)}},
             1);
  for (prometheus::MetricFamily& family : families_->registry.Collect()) {
    list.AddFamily(std::move(family));
  }
  return list.Text();
}

}  // namespace tp2::server
