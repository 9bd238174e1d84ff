// The worker's numbers in Prometheus' text form. Histograms are kept as STEPs end; everything else
// is read from Health and Statistics when somebody asks. One thread at a time observes, any thread
// asks for the text.
#pragma once

#include <memory>
#include <string>

#include "libcore/contract/validate.h"
#include "libcore/server/health.h"
#include "libcore/server/statistics.h"

namespace tp2::server {

struct StepTimes {
  int entries = 0;  // 1 to kMaxRequests
  int n_out = 0;    // 1 to kBlockRows
  int64_t queue_us = 0;
  int64_t insert_us = 0;
  int64_t draft_us = 0;
  int64_t total_us = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  void ObserveStep(const StepTimes& times);
  void ObserveInsert(int64_t insert_us);

  std::string Text(const contract::HealthReply& health, const Counts& counts,
                   const contract::WorkerLimits& limits) const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tp2::server
