#include "libcore/telemetry/totals.h"

#include <algorithm>

namespace tp2::telemetry {
namespace {

struct Extreme {
  const char* key;
  std::optional<uint64_t> CardSample::*member;
};
constexpr Extreme kMaxima[] = {
    {"power_mw", &CardSample::power_mw},
    {"power_limit_mw", &CardSample::power_limit_mw},
    {"sm_clock_mhz", &CardSample::sm_clock_mhz},
    {"memory_clock_mhz", &CardSample::memory_clock_mhz},
    {"temperature_c", &CardSample::temperature_c},
    {"memory_temperature_c", &CardSample::memory_temperature_c},
    {"gpu_utilization_pct", &CardSample::gpu_utilization_pct},
    {"memory_used_bytes", &CardSample::memory_used_bytes},
};
constexpr Extreme kMinima[] = {
    {"power_limit_mw", &CardSample::power_limit_mw},
    {"sm_clock_mhz", &CardSample::sm_clock_mhz},
    {"pstate", &CardSample::pstate},
};

struct Counter {
  const char* key;
  std::optional<uint64_t> LinkSample::*member;
};
constexpr Counter kCounters[] = {
    {"replay", &LinkSample::replay},
    {"recovery", &LinkSample::recovery},
    {"crc_flit", &LinkSample::crc_flit},
    {"crc_data", &LinkSample::crc_data},
};

// A counter that went back was reset by somebody: all of it is new.
uint64_t Grown(uint64_t begin, uint64_t end) { return end >= begin ? end - begin : end; }

std::optional<uint64_t> Delta(const LinkSample& begin, const LinkSample& end,
                              std::optional<uint64_t> LinkSample::*member) {
  if (!(begin.*member).has_value() || !(end.*member).has_value()) return std::nullopt;
  return Grown(*(begin.*member), *(end.*member));
}

// The same link in an earlier sample; null when it had none.
const LinkSample* FindLink(const CardSample& card, unsigned number) {
  const auto found = std::find_if(card.links.begin(), card.links.end(),
                                  [number](const LinkSample& link) { return link.link == number; });
  return found == card.links.end() ? nullptr : &*found;
}

Json OrNull(const std::optional<uint64_t>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

}  // namespace

void CardTotals::Add(const CardSample& card, int64_t boot_ns) {
  uuid_ = card.uuid;
  ++reading_count_;
  if (previous_ns_.has_value()) {
    const int64_t passed_ns = std::max<int64_t>(0, boot_ns - *previous_ns_);
    observed_ns_ += passed_ns;
    for (const ClockReason& reason : kClockReasons) {
      if ((previous_reasons_ & reason.bit) != 0) reason_ns_[reason.bit] += passed_ns;
    }
  }
  previous_ns_.reset();
  if (card.error.has_value()) {
    ++failed_count_;
    return;
  }
  if (card.clock_reasons.has_value()) {
    previous_ns_ = boot_ns;
    previous_reasons_ = *card.clock_reasons;
  }
  for (const Extreme& extreme : kMaxima) {
    const std::optional<uint64_t>& value = card.*extreme.member;
    if (!value.has_value()) continue;
    const auto [entry, is_new] = maxima_.emplace(extreme.key, *value);
    if (!is_new) entry->second = std::max(entry->second, *value);
  }
  for (const Extreme& extreme : kMinima) {
    const std::optional<uint64_t>& value = card.*extreme.member;
    if (!value.has_value()) continue;
    const auto [entry, is_new] = minima_.emplace(extreme.key, *value);
    if (!is_new) entry->second = std::min(entry->second, *value);
  }
  if (!first_.has_value()) first_ = card;
  last_ = card;
}

std::optional<uint64_t> CardTotals::LinkErrors() const {
  std::optional<uint64_t> sum;
  if (!first_.has_value()) return sum;
  for (const LinkSample& end : last_->links) {
    const LinkSample* begin = FindLink(*first_, end.link);
    if (begin == nullptr) continue;
    for (const Counter& counter : kCounters) {
      const std::optional<uint64_t> grown = Delta(*begin, end, counter.member);
      if (grown.has_value()) sum = sum.value_or(0) + *grown;
    }
  }
  if (sum.has_value() || !first_->link_totals.has_value() || !last_->link_totals.has_value()) {
    return sum;
  }
  for (const Counter& counter : kCounters) {
    const std::optional<uint64_t> grown =
        Delta(*first_->link_totals, *last_->link_totals, counter.member);
    if (grown.has_value()) sum = sum.value_or(0) + *grown;
  }
  return sum;
}

std::optional<uint64_t> CardTotals::PowerMaxMw() const {
  const auto found = maxima_.find("power_mw");
  return found == maxima_.end() ? std::nullopt : std::optional(found->second);
}

Json CardTotals::ToJson() const {
  Json json = {{"uuid", uuid_},
               {"readings", reading_count_},
               {"failed_readings", failed_count_},
               {"max", Json(maxima_)},
               {"min", Json(minima_)}};
  json["energy_mj"] = nullptr;
  if (first_.has_value() && first_->energy_mj.has_value() && last_->energy_mj.has_value()) {
    json["energy_mj"] = Grown(*first_->energy_mj, *last_->energy_mj);
  }
  json["clock_reason_share"] = nullptr;
  if (observed_ns_ > 0) {
    json["clock_reason_share"] = Json::object();
    for (const ClockReason& reason : kClockReasons) {
      const auto found = reason_ns_.find(reason.bit);
      const int64_t spent_ns = found == reason_ns_.end() ? 0 : found->second;
      json["clock_reason_share"][reason.name] =
          static_cast<double>(spent_ns) / static_cast<double>(observed_ns_);
    }
  }
  json["link_errors"] = OrNull(LinkErrors());
  json["links"] = Json::array();
  if (!first_.has_value()) return json;
  for (const LinkSample& end : last_->links) {
    const LinkSample* begin = FindLink(*first_, end.link);
    Json link = {{"link", end.link}, {"is_active", end.is_active}};
    for (const Counter& counter : kCounters) {
      link[counter.key] = {
          {"begin", begin == nullptr ? Json(nullptr) : OrNull(begin->*counter.member)},
          {"end", OrNull(end.*counter.member)},
          {"delta", begin == nullptr ? Json(nullptr) : OrNull(Delta(*begin, end, counter.member))}};
    }
    json["links"].push_back(link);
  }
  return json;
}

void RunTotals::Add(const Sample& sample) {
  ++sample_count_;
  if (cards_.size() < sample.cards.size()) cards_.resize(sample.cards.size());
  std::optional<uint64_t> sum_mw;
  for (size_t rank = 0; rank < sample.cards.size(); ++rank) {
    cards_[rank].Add(sample.cards[rank], sample.boot_ns);
    const std::optional<uint64_t>& power_mw = sample.cards[rank].power_mw;
    if (power_mw.has_value()) sum_mw = sum_mw.value_or(0) + *power_mw;
  }
  if (sum_mw.has_value()) power_sum_max_mw_ = std::max(power_sum_max_mw_.value_or(0), *sum_mw);
}

}  // namespace tp2::telemetry
