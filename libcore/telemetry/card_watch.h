// The state of cards for a program that runs for weeks: a thread takes the helper's samples,
// anybody may ask for the latest one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"
#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/helper_process.h"
#include "libcore/telemetry/sample.h"
#include "libcore/telemetry/totals.h"

namespace tp2::telemetry {

struct WatchedCards {
  std::string driver = {};
  std::vector<CardInfo> cards = {};      // rank by rank
  std::optional<Sample> latest = {};     // absent before the first one
  int64_t age_ms = 0;                    // of the latest sample; without one, since the start
  bool is_stale = false;                 // older than the limit: what it says may be over
  std::optional<std::string> lost = {};  // why no sample will come any more
  // Per card, since the first sample (CardTotals::LinkErrors); empty before it.
  std::vector<std::optional<uint64_t>> link_errors = {};
};

// Thread-safe.
class CardWatch {
 public:
  // Takes over a helper that has listed its cards, and samples `cards` every `period_ms`. Errors:
  // kUnavailable.
  static absl::StatusOr<std::unique_ptr<CardWatch>> Start(HelperProcess helper,
                                                          std::vector<CardInfo> cards,
                                                          int period_ms, int stale_ms);
  // Ends the helper as HelperProcess does.
  ~CardWatch();
  CardWatch(const CardWatch&) = delete;
  CardWatch& operator=(const CardWatch&) = delete;

  // Never waits for a card.
  WatchedCards Now() const;

 private:
  CardWatch(HelperProcess helper, std::vector<CardInfo> cards, int stale_ms, UniqueFd wake);
  void Run();

  HelperProcess helper_;  // of the thread, once it runs
  const std::vector<CardInfo> cards_;
  const std::string driver_;
  const int64_t stale_ms_;
  const int64_t begin_ns_;
  UniqueFd wake_;  // readable: end
  mutable std::mutex mutex_;
  std::optional<Sample> latest_;     // guarded by mutex_
  std::optional<std::string> lost_;  // guarded by mutex_
  RunTotals totals_;                 // guarded by mutex_
  std::thread thread_;
};

}  // namespace tp2::telemetry
