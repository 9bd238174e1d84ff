// A machine of several cards, simulated: every block of every rank is a fiber, one runs at a time,
// which one and how long everything takes is drawn from a seed. Stores to a peer travel: each has a
// delay of its own, so that they overtake one another unless a release or the same address orders
// them. Clocks of ranks differ in offset and rate. The same seed gives the same run.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "libcore/base/rng.h"
#include "libcore/collectives/host_state.h"
#include "libcore/collectives/line_protocol.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll {

// Thread-compatible.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : rng_(seed) {}

  uint64_t now_ns() const { return now_ns_; }
  Rng& rng() { return rng_; }

  // A fiber that begins `delay_ns` from now.
  void Spawn(uint64_t delay_ns, std::function<void()> body);
  // Runs until every fiber has ended and every store has arrived (true) or until `deadline_ns`.
  bool RunUntil(uint64_t deadline_ns);
  // Fibers that have not ended stay where they are for good.
  void Abandon();

  // For fibers: lets others run; at least a moment passes.
  void Yield();
  void Sleep(uint64_t ns);
  // Sleeps for ever: a block that hangs.
  void Hang();

  // Something that happens at a moment of its own.
  void At(uint64_t time_ns, std::function<void()> event) { events_.emplace(time_ns, event); }

 private:
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    std::function<void()> body;
    uint64_t wake_ns = 0;
    bool has_ended = false;
  };

  static void Enter(unsigned high, unsigned low);
  void RunEvents();

  Rng rng_;
  uint64_t now_ns_ = 1'000'000;
  std::multimap<uint64_t, std::function<void()>> events_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  ucontext_t scheduler_;
};

// What every block of one rank shares.
struct SimulatedRank {
  const RankView* view = nullptr;
  uint64_t clock_offset_ns = 0;
  double clock_rate = 1;
  // Lines, flags and acknowledgements stored so far, and which of them never arrives. A lost plain
  // word could not be noticed by any protocol.
  int64_t announcements = 0;
  int64_t lost_store = -1;
  std::map<const void*, uint64_t> latest_arrival;  // by address
};

// The protocols' policy for one block.
class SimulatedSys {
 public:
  static constexpr uint32_t kPollsPerCheck = 2;

  SimulatedSys(Simulation& simulation, SimulatedRank& rank, int block, int block_count)
      : simulation_(simulation), rank_(rank), block_(block), block_count_(block_count) {}

  int block() const { return block_; }
  int block_count() const { return block_count_; }
  int thread() const { return 0; }
  int thread_count() const { return 1; }
  bool BlockAll(bool is_true) {
    simulation_.Yield();
    return is_true;
  }

  void StoreLine(Line* to, const Line& line) {
    if (!IsLost()) Store(to, /*is_release=*/false, [to, line] { *to = line; });
  }
  Line LoadLine(const Line* from) {
    simulation_.Yield();
    return *from;
  }
  void StoreWords(uint32_t* to, const uint32_t (&words)[4]);
  void LoadWords(const uint32_t* from, uint32_t (&words)[4]);
  Status LoadStatus(const Header* header) {
    simulation_.Yield();
    return header->status;
  }
  uint32_t LoadAcquire(const uint32_t* word) {
    simulation_.Yield();
    return *word;
  }
  void StoreRelease(uint32_t* word, uint32_t value) {
    if (!IsOwn(word) && IsLost()) return;
    Store(word, /*is_release=*/true, [word, value] { *word = value; });
  }
  void OrRelease(uint32_t* word, uint32_t bits) {
    Store(word, /*is_release=*/true, [word, bits] { *word |= bits; });
  }
  uint32_t Arrive(uint32_t* word) {
    simulation_.Yield();
    return (*word)++;
  }
  uint64_t NowNs() {
    return rank_.clock_offset_ns +
           static_cast<uint64_t>(static_cast<double>(simulation_.now_ns()) * rank_.clock_rate);
  }
  void Relax() { simulation_.Yield(); }
  void Fence() { earliest_arrival_ns_ = latest_arrival_ns_; }

 private:
  bool IsOwn(const void* address) const;
  bool IsLost() { return rank_.announcements++ == rank_.lost_store; }
  void Store(void* address, bool is_release, std::function<void()> effect);

  Simulation& simulation_;
  SimulatedRank& rank_;
  const int block_;
  const int block_count_;
  uint64_t latest_arrival_ns_ = 0;    // of this block's stores
  uint64_t earliest_arrival_ns_ = 0;  // of its coming ones
};

static_assert(ProtocolSys<SimulatedSys>);

}  // namespace tp2::coll
