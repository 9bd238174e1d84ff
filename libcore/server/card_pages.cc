#include "libcore/server/card_pages.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/server/admin_pages.h"
#include "libcore/server/metric_families.h"

namespace tp2::server {
namespace {

using telemetry::CardSample;
using telemetry::LinkSample;
using telemetry::WatchedCards;

struct CardGauge {
  const char* name;
  const char* help;
  std::optional<uint64_t> CardSample::*member;
  double unit;  // of one count in the sample
};
constexpr CardGauge kGauges[] = {
    {"dspark_card_power_watts", "drawn now", &CardSample::power_mw, 1e-3},
    {"dspark_card_power_limit_watts", "enforced limit", &CardSample::power_limit_mw, 1e-3},
    {"dspark_card_temperature_celsius", "of the core", &CardSample::temperature_c, 1},
    {"dspark_card_memory_temperature_celsius", "of the memory", &CardSample::memory_temperature_c,
     1},
    {"dspark_card_sm_clock_hertz", "of the multiprocessors", &CardSample::sm_clock_mhz, 1e6},
    {"dspark_card_memory_clock_hertz", "of the memory", &CardSample::memory_clock_mhz, 1e6},
    {"dspark_card_pstate", "0 is the fastest", &CardSample::pstate, 1},
    {"dspark_card_utilization_ratio", "share of time with a kernel",
     &CardSample::gpu_utilization_pct, 1e-2},
    {"dspark_card_memory_used_bytes", "by everybody", &CardSample::memory_used_bytes, 1},
    {"dspark_card_memory_total_bytes", "of the card", &CardSample::memory_total_bytes, 1},
};

struct LinkCounter {
  const char* kind;
  std::optional<uint64_t> LinkSample::*member;
};
constexpr LinkCounter kLinkCounters[] = {
    {"replay", &LinkSample::replay},
    {"recovery", &LinkSample::recovery},
    {"crc_flit", &LinkSample::crc_flit},
    {"crc_data", &LinkSample::crc_data},
};

// The card's part of the latest sample; null when there is none or the card did not answer.
const CardSample* Answer(const WatchedCards& now, size_t rank) {
  if (!now.latest.has_value() || rank >= now.latest->cards.size()) return nullptr;
  const CardSample& card = now.latest->cards[rank];
  return card.error.has_value() ? nullptr : &card;
}

MetricLabels LabelsOf(const WatchedCards& now, size_t rank) {
  return {{"rank", std::to_string(rank)}, {"card", now.cards[rank].uuid}};
}

MetricLabels With(MetricLabels labels, const std::string& key, const std::string& value) {
  labels.emplace_back(key, value);
  return labels;
}

void AddReasons(const WatchedCards& now, MetricFamilies* list) {
  for (size_t rank = 0; rank < now.cards.size(); ++rank) {
    const CardSample* card = Answer(now, rank);
    if (card == nullptr || !card->clock_reasons.has_value()) continue;
    for (const telemetry::ClockReason& reason : telemetry::kClockReasons) {
      list->Gauge("dspark_card_clock_reason", "1 while it holds the clocks down",
                  With(LabelsOf(now, rank), "reason", reason.name),
                  (*card->clock_reasons & reason.bit) != 0 ? 1 : 0);
    }
  }
}

void AddLinks(const WatchedCards& now, MetricFamilies* list) {
  for (size_t rank = 0; rank < now.cards.size(); ++rank) {
    const CardSample* card = Answer(now, rank);
    if (card == nullptr) continue;
    for (const LinkSample& link : card->links) {
      const MetricLabels labels = With(LabelsOf(now, rank), "link", std::to_string(link.link));
      for (const LinkCounter& counter : kLinkCounters) {
        const std::optional<uint64_t>& value = link.*counter.member;
        if (!value.has_value()) continue;
        list->Counter("dspark_card_link_errors_total", "of an NVLink, since the driver was loaded",
                      With(labels, "kind", counter.kind), *value);
      }
    }
  }
}

std::string Scaled(const std::optional<uint64_t>& value, double unit, const char* format_unit) {
  if (!value.has_value()) return "-";
  return absl::StrFormat("%.0f %s", static_cast<double>(*value) * unit, format_unit);
}

}  // namespace

std::string CardMetricsText(const WatchedCards& now) {
  MetricFamilies list;
  for (size_t rank = 0; rank < now.cards.size(); ++rank) {
    const bool is_up = !now.is_stale && Answer(now, rank) != nullptr;
    list.Gauge("dspark_card_up", "1 while the card answers the driver", LabelsOf(now, rank),
               is_up ? 1 : 0);
  }
  list.Gauge("dspark_card_sample_age_seconds", "since the cards were last read", {},
             static_cast<double>(now.age_ms) / 1e3);
  if (now.is_stale) return list.Text();
  for (const CardGauge& gauge : kGauges) {
    for (size_t rank = 0; rank < now.cards.size(); ++rank) {
      const CardSample* card = Answer(now, rank);
      if (card == nullptr || !(card->*gauge.member).has_value()) continue;
      list.Gauge(gauge.name, gauge.help, LabelsOf(now, rank),
                 static_cast<double>(*(card->*gauge.member)) * gauge.unit);
    }
  }
  AddReasons(now, &list);
  AddLinks(now, &list);
  return list.Text();
}

Json CardStatusJson(const WatchedCards& now) {
  Json json = {{"driver", now.driver},
               {"age_ms", now.age_ms},
               {"is_stale", now.is_stale},
               {"lost", now.lost.has_value() ? Json(*now.lost) : Json(nullptr)},
               {"cards", Json::array()}};
  const Json sample =
      now.latest.has_value() ? telemetry::ToJson(*now.latest)["cards"] : Json::array();
  for (size_t rank = 0; rank < now.cards.size(); ++rank) {
    Json card = telemetry::ToJson(now.cards[rank]);
    card["rank"] = rank;
    card["sample"] = rank < sample.size() ? sample[rank] : Json(nullptr);
    card["link_errors"] = nullptr;
    if (rank < now.link_errors.size() && now.link_errors[rank].has_value()) {
      card["link_errors"] = *now.link_errors[rank];
    }
    json["cards"].push_back(std::move(card));
  }
  return json;
}

std::string CardTable(const WatchedCards& now) {
  std::string html = absl::StrCat(
      "<h2>Cards</h2>\n<table id=\"cards\">\n<tr><th>rank</th><th>card</th><th>power</th>"
      "<th>core</th><th>clock</th><th>memory</th><th>link errors</th></tr>\n");
  for (size_t rank = 0; rank < now.cards.size(); ++rank) {
    const telemetry::CardInfo& info = now.cards[rank];
    absl::StrAppend(&html, "<tr><td class=\"n\">", rank, "</td><td>",
                    EscapeHtml(absl::StrCat(info.name, " ", info.uuid)), "</td>");
    const CardSample* card = Answer(now, rank);
    if (now.is_stale || card == nullptr) {
      absl::StrAppend(&html, "<td class=\"bad\" colspan=\"5\">does not answer</td></tr>\n");
      continue;
    }
    const bool has_errors = rank < now.link_errors.size() && now.link_errors[rank].has_value();
    for (const std::string& cell :
         {Scaled(card->power_mw, 1e-3, "W"), Scaled(card->temperature_c, 1, "&deg;C"),
          Scaled(card->sm_clock_mhz, 1, "MHz"), Scaled(card->memory_used_bytes, 1e-6, "MB"),
          has_errors ? absl::StrCat(*now.link_errors[rank]) : std::string("-")}) {
      absl::StrAppend(&html, "<td class=\"n\">", cell, "</td>");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return html + "</table>\n";
}

}  // namespace tp2::server
