// What a series of samples amounts to: maxima, differences of counters, and the share of time under
// each clock reason.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/telemetry/sample.h"

namespace tp2::telemetry {

// One card over a run. Thread-compatible.
class CardTotals {
 public:
  // `boot_ns` of the sample that the reading belongs to; readings in order of time.
  void Add(const CardSample& card, int64_t boot_ns);

  // Sum over all links of replay, recovery and CRC counts since the first reading: from the links'
  // own counters, from the card's totals only when no link counts; absent when neither does.
  std::optional<uint64_t> LinkErrors() const;
  std::optional<uint64_t> PowerMaxMw() const;
  Json ToJson() const;

 private:
  std::string uuid_;
  int64_t reading_count_ = 0;
  int64_t failed_count_ = 0;
  std::optional<CardSample> first_;
  std::optional<CardSample> last_;
  std::map<std::string, uint64_t> maxima_;
  std::map<std::string, uint64_t> minima_;
  std::optional<int64_t> previous_ns_;
  uint64_t previous_reasons_ = 0;
  int64_t observed_ns_ = 0;
  std::map<uint64_t, int64_t> reason_ns_;
};

// All cards of a run, rank by rank. Thread-compatible.
class RunTotals {
 public:
  void Add(const Sample& sample);
  const std::vector<CardTotals>& cards() const { return cards_; }
  // Largest sum of the cards' power in one sample.
  std::optional<uint64_t> power_sum_max_mw() const { return power_sum_max_mw_; }
  int64_t sample_count() const { return sample_count_; }

 private:
  std::vector<CardTotals> cards_;
  std::optional<uint64_t> power_sum_max_mw_;
  int64_t sample_count_ = 0;
};

}  // namespace tp2::telemetry
