#include "tests/collectives/simulation.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace tp2::coll {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr uint64_t kMaxTurnNs = 120;   // of one turn of a fiber
constexpr uint64_t kMinDelayNs = 300;  // of a store to a peer
constexpr uint64_t kMaxDelayNs = 2000;
constexpr uint64_t kNever = ~uint64_t{0};

}  // namespace

void Simulation::Enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Simulation*>(static_cast<uintptr_t>(high) << 32 | low);
  Fiber* fiber = self->current_;
  fiber->body();
  fiber->has_ended = true;
  // Never comes back.
  ::swapcontext(&fiber->context, &self->scheduler_);
}

void Simulation::Spawn(uint64_t delay_ns, std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->stack.resize(kStackBytes);
  fiber->body = std::move(body);
  fiber->wake_ns = now_ns_ + delay_ns;
  TP2_CHECK(::getcontext(&fiber->context) == 0);
  fiber->context.uc_stack.ss_sp = fiber->stack.data();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  fibers_.push_back(std::move(fiber));
}

void Simulation::RunEvents() {
  while (!events_.empty() && events_.begin()->first <= now_ns_) {
    const std::function<void()> event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    event();
  }
}

bool Simulation::RunUntil(uint64_t deadline_ns) {
  while (now_ns_ < deadline_ns) {
    RunEvents();
    std::erase_if(fibers_, [](const auto& fiber) { return fiber->has_ended; });
    if (fibers_.empty() && events_.empty()) return true;
    std::vector<Fiber*> ready;
    uint64_t next_ns = events_.empty() ? kNever : events_.begin()->first;
    for (const auto& fiber : fibers_) {
      if (fiber->wake_ns <= now_ns_) ready.push_back(fiber.get());
      next_ns = std::min(next_ns, fiber->wake_ns);
    }
    if (ready.empty()) {
      now_ns_ = std::min(next_ns, deadline_ns);
      continue;
    }
    current_ = ready[rng_.Below(ready.size())];
    TP2_CHECK(::swapcontext(&scheduler_, &current_->context) == 0);
    current_ = nullptr;
  }
  return false;
}

void Simulation::Abandon() {
  fibers_.clear();
  events_.clear();
}

void Simulation::Yield() {
  // Fibers stand for blocks that run at the same time: together they spend one turn's time.
  now_ns_ += 1 + rng_.Below(kMaxTurnNs) / fibers_.size();
  TP2_CHECK(::swapcontext(&current_->context, &scheduler_) == 0);
}

void Simulation::Sleep(uint64_t ns) {
  current_->wake_ns = now_ns_ + ns;
  Yield();
}

void Simulation::Hang() {
  current_->wake_ns = kNever;
  Yield();
}

void SimulatedSys::StoreWords(uint32_t* to, const uint32_t (&words)[4]) {
  const Line copy = {{words[0], words[1], words[2]}, words[3]};
  Store(to, /*is_release=*/false, [to, copy] {
    std::copy_n(copy.payload, 3, to);
    to[3] = copy.tag;
  });
}

void SimulatedSys::LoadWords(const uint32_t* from, uint32_t (&words)[4]) {
  simulation_.Yield();
  std::copy_n(from, 4, words);
}

bool SimulatedSys::IsOwn(const void* address) const {
  const uint8_t* begin = rank_.view->states[rank_.view->rank];
  const int64_t bytes =
      kControlBytes + 2 * (rank_.view->rank_count - 1) * rank_.view->item_capacity * 16;
  const auto* at = static_cast<const uint8_t*>(address);
  return at >= begin && at < begin + bytes;
}

void SimulatedSys::Store(void* address, bool is_release, std::function<void()> effect) {
  simulation_.Yield();
  if (IsOwn(address)) {
    effect();
    return;
  }
  uint64_t& latest_here = rank_.latest_arrival[address];
  uint64_t arrival_ns = simulation_.now_ns() + kMinDelayNs + simulation_.rng().Below(kMaxDelayNs);
  arrival_ns = std::max({arrival_ns, latest_here + 1, earliest_arrival_ns_ + 1});
  if (is_release) arrival_ns = std::max(arrival_ns, latest_arrival_ns_ + 1);
  latest_here = arrival_ns;
  latest_arrival_ns_ = std::max(latest_arrival_ns_, arrival_ns);
  simulation_.At(arrival_ns, std::move(effect));
}

}  // namespace tp2::coll
