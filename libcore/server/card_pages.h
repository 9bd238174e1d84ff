// The cards that a worker uses, as /metrics, /status and the page say it. Values of a stale sample
// are left out of the metrics and marked elsewhere: a card that has stopped answering must not look
// like one that is well.
#pragma once

#include <string>

#include "libcore/base/json.h"
#include "libcore/telemetry/card_watch.h"

namespace tp2::server {

// Families dspark_card_*, labels `rank` and `card` (UUID). Absent values have no line.
std::string CardMetricsText(const telemetry::WatchedCards& now);

// {"driver", "age_ms", "is_stale", "lost", "cards": [identity, "link_errors", "sample"]}.
Json CardStatusJson(const telemetry::WatchedCards& now);

// A heading and a whole table.
std::string CardTable(const telemetry::WatchedCards& now);

}  // namespace tp2::server
