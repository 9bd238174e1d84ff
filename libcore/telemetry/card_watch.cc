#include "libcore/telemetry/card_watch.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::telemetry {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<CardWatch>> CardWatch::Start(HelperProcess helper,
                                                            std::vector<CardInfo> cards,
                                                            int period_ms, int stale_ms) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (!wake.is_open()) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = "card watch", .expected = "an event descriptor", .got = ErrnoText()});
  }
  TP2_RETURN_IF_ERROR(helper.Begin(cards, period_ms));
  std::unique_ptr<CardWatch> watch(
      new CardWatch(std::move(helper), std::move(cards), stale_ms, std::move(wake)));
  watch->thread_ = std::thread([raw = watch.get()] { raw->Run(); });
  return watch;
}

CardWatch::CardWatch(HelperProcess helper, std::vector<CardInfo> cards, int stale_ms, UniqueFd wake)
    : helper_(std::move(helper)),
      cards_(std::move(cards)),
      driver_(helper_.driver_version()),
      stale_ms_(stale_ms),
      begin_ns_(BootNowNs()),
      wake_(std::move(wake)) {}

CardWatch::~CardWatch() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void CardWatch::Run() {
  while (true) {
    struct pollfd waits[2] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                              {.fd = helper_.fd(), .events = POLLIN, .revents = 0}};
    if (::poll(waits, 2, -1) < 0) continue;
    if (waits[0].revents != 0) return;
    const absl::StatusOr<std::vector<Sample>> samples = helper_.Drain();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!samples.ok()) {
      lost_ = std::string(samples.status().message());
      return;
    }
    for (const Sample& sample : *samples) {
      totals_.Add(sample);
      latest_ = sample;
    }
  }
}

WatchedCards CardWatch::Now() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  WatchedCards now{.driver = driver_, .cards = cards_, .latest = latest_, .lost = lost_};
  now.age_ms = (BootNowNs() - (latest_.has_value() ? latest_->boot_ns : begin_ns_)) / kNsPerMs;
  now.is_stale = lost_.has_value() || now.age_ms > stale_ms_;
  for (const CardTotals& card : totals_.cards()) now.link_errors.push_back(card.LinkErrors());
  return now;
}

}  // namespace tp2::telemetry
