// The collectives' policy under Relacy: every access of the product's headers becomes an access to
// a modelled atomic or a race-checked variable, found by its address in a rank's state. Each broken
// variant is a value of Mutant that this policy acts out; the product's code is the same in all.
//
// Relacy redefines new, delete and assert: this header comes last, and only files without
// GoogleTest include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/collectives/ack_protocol.h"
#include "libcore/collectives/line_protocol.h"
#include "libcore/collectives/operations.h"
// Last.
#include <relacy/relacy.hpp>

namespace tp2::coll::model {

enum class Mutant {
  kNone,
  kSingleBuffer,      // both parities in one buffer
  kRelaxedFlagStore,  // a flag that publishes nothing
  kRelaxedFlagLoad,   // a flag whose reader acquires nothing
  kAckIgnored,        // a sender that does not wait for acknowledgements
  kAckIgnoredSingleBuffer,
  kRelaxedAckSingleBuffer,
  kTornLine,    // payload and tag in two accesses
  kNoBoundary,  // the next operation of a rank overlaps the one before
  kBlockEpoch,  // each block counts its own operations
  kBlockEpochNoBoundary,
  kEarlyEpoch,      // the first block advances the epoch, not the last
  kUnevenBlocks,    // rank 1 runs one block where rank 0 runs two
  kNoBlockBarrier,  // threads of a block do not meet
  kKeepsStoring,    // a rank that failed begins further operations
  kClosesAnyway,    // a rank that failed sends the closing exchange
  kNoClose,         // a STEP without closing exchange
  kLateMirror,      // the peer learns of an error after the acknowledgement
  kFrozenEpoch,     // each launch gets the epoch that the first one got
  kBlindWait,       // a waiting thread does not look at the header
  kTagsWrap,        // tags of two bits, 0 among them
  kNoGeneration,    // a reset that starts the same generation again
};

// What one case runs. A structural type: it is a template argument.
struct Setup {
  int ranks = 2;
  int blocks = 1;   // at most, per rank
  int threads = 1;  // per block
  Mutant mutant = Mutant::kNone;
  bool has_timeouts = false;  // any wait may run out
};

constexpr int kCapacity = 2;  // items of one source and parity
constexpr int kStateBytes = static_cast<int>(kControlBytes) + 2 * (kMaxRanks - 1) * kCapacity * 16;
constexpr uint64_t kTimeoutNs = 10;

// Addresses that stand for the states; nothing is ever stored there.
inline uint8_t* StateOf(int rank) {
  alignas(128) static uint8_t states[kMaxRanks][(kStateBytes + 127) / 128 * 128];
  return states[rank];
}

// Threads that meet: a counter that only grows, and for each of two alternating phases how many
// passed false.
template <int kCount>
class Meeting {
 public:
  // A thread's own memory of the meeting.
  struct Place {
    unsigned phase = 0;
    unsigned falses_before[2] = {};
  };

  Meeting() {
    arrived_.store(0, rl::mo_relaxed, RL_INFO);
    for (auto& falses : falses_) falses.store(0, rl::mo_relaxed, RL_INFO);
  }

  // Whether all passed true. Nobody enters the phase after next before all have left this one, so
  // all read the same number of falses.
  bool Meet(Place& place, bool is_true) {
    if (kCount == 1) return is_true;
    const unsigned phase = place.phase++ % 2;
    if (!is_true) falses_[phase].fetch_add(1, rl::mo_relaxed, RL_INFO);
    const unsigned target = (arrived_.fetch_add(1, rl::mo_acq_rel, RL_INFO) / kCount + 1) * kCount;
    while (arrived_.load(rl::mo_acquire, RL_INFO) < target) rl::yield(1, RL_INFO);
    const unsigned falses = falses_[phase].load(rl::mo_relaxed, RL_INFO);
    const bool all = falses == place.falses_before[phase];
    place.falses_before[phase] = falses;
    return all;
  }

 private:
  rl::atomic<unsigned> arrived_;
  rl::atomic<unsigned> falses_[2];
};

// Four words as one number, so that an item is one modelled location. 0 is cleared memory.
class WordTable {
 public:
  uint32_t IdOf(const uint32_t (&words)[4]) {
    TP2_CHECK(count_ < kMax);
    std::memcpy(rows_[count_], words, sizeof(words));
    return count_++;
  }
  void Words(uint32_t id, uint32_t (&words)[4]) const {
    std::memcpy(words, rows_[id], sizeof(words));
  }

 private:
  static constexpr uint32_t kMax = 256;
  uint32_t rows_[kMax][4] = {};
  uint32_t count_ = 1;
};

// All memory that ranks or blocks share, in one execution.
template <Setup kSetup>
struct World {
  static constexpr int kSources = kSetup.ranks - 1;
  static constexpr int kSlots = 2 * kSources * kCapacity;

  struct State {
    rl::atomic<uint32_t> error, cancel, epoch, generation, arrivals;
    rl::atomic<uint32_t> flags[kSources][kSetup.blocks];
    rl::atomic<uint32_t> acks[kSources][kSetup.blocks];
    rl::atomic<uint64_t> lines[kSlots];  // tag above the number of the payload
    rl::atomic<uint32_t> torn[kSlots];   // the payload when it is a second access
    rl::var<uint32_t> words[kSlots];
    Meeting<kSetup.threads> blocks[kSetup.blocks];
    Meeting<kSetup.threads * kSetup.blocks> boundary;
  };

  World() {
    for (State& state : states) {
      for (auto* word :
           {&state.error, &state.cancel, &state.epoch, &state.generation, &state.arrivals}) {
        word->store(0, rl::mo_relaxed, RL_INFO);
      }
      for (int source = 0; source < kSources; ++source) {
        for (int block = 0; block < kSetup.blocks; ++block) {
          state.flags[source][block].store(0, rl::mo_relaxed, RL_INFO);
          state.acks[source][block].store(0, rl::mo_relaxed, RL_INFO);
        }
      }
      for (int slot = 0; slot < kSlots; ++slot) {
        state.lines[slot].store(0, rl::mo_relaxed, RL_INFO);
        state.torn[slot].store(0, rl::mo_relaxed, RL_INFO);
        state.words[slot](RL_INFO).store(0);
      }
    }
  }

  State states[kSetup.ranks];
  WordTable table;
};

// One thread of one block of one rank.
template <Setup kSetup>
class ModelSys {
 public:
  static constexpr uint32_t kPollsPerCheck = 1;
  static constexpr Mutant kMutant = kSetup.mutant;

  ModelSys(World<kSetup>& world, int rank, int block, int thread)
      : world_(world), rank_(rank), block_(block), thread_(thread) {}

  // Of the coming operation.
  void set_block_count(int count) { block_count_ = count; }

  int block() const { return block_; }
  int block_count() const { return block_count_; }
  int thread() const { return thread_; }
  int thread_count() const { return kSetup.threads; }
  bool BlockAll(bool is_true) {
    if (kMutant == Mutant::kNoBlockBarrier) return is_true;
    return world_.states[rank_].blocks[block_].Meet(block_place_, is_true);
  }
  // The end of a kernel: all threads of the rank.
  void Boundary() {
    FlushMirrors();
    if (kMutant == Mutant::kNoBoundary || kMutant == Mutant::kBlockEpochNoBoundary) return;
    world_.states[rank_].boundary.Meet(boundary_place_, true);
  }

  void StoreLine(Line* to, const Line& line) {
    const Place place = Find(to);
    const uint32_t words[4] = {line.payload[0], line.payload[1], line.payload[2], 0};
    const uint32_t id = world_.table.IdOf(words);
    auto& state = world_.states[place.rank];
    const uint32_t tag = kMutant == Mutant::kTagsWrap ? line.tag % 4 : line.tag;
    if (kMutant == Mutant::kTornLine) {
      state.lines[place.index].store(uint64_t{tag} << 32, rl::mo_relaxed, RL_INFO);
      state.torn[place.index].store(id, rl::mo_relaxed, RL_INFO);
      return;
    }
    state.lines[place.index].store(uint64_t{tag} << 32 | id, rl::mo_relaxed, RL_INFO);
  }
  Line LoadLine(const Line* from) {
    const Place place = Find(from);
    auto& state = world_.states[place.rank];
    const uint64_t value = state.lines[place.index].load(rl::mo_relaxed, RL_INFO);
    uint32_t id = static_cast<uint32_t>(value);
    if (kMutant == Mutant::kTornLine) id = state.torn[place.index].load(rl::mo_relaxed, RL_INFO);
    uint32_t words[4];
    world_.table.Words(id, words);
    uint32_t tag = static_cast<uint32_t>(value >> 32);
    if (kMutant == Mutant::kTagsWrap && tag == (epoch_ + 1) % 4) tag = epoch_ + 1;
    return {{words[0], words[1], words[2]}, tag};
  }
  void StoreWords(uint32_t* to, const uint32_t (&words)[4]) {
    const Place place = Find(to);
    world_.states[place.rank].words[place.index](RL_INFO).store(world_.table.IdOf(words));
  }
  void LoadWords(const uint32_t* from, uint32_t (&words)[4]) {
    const Place place = Find(from);
    world_.table.Words(world_.states[place.rank].words[place.index](RL_INFO).load(), words);
  }

  Status LoadStatus(const Header* header) {
    const Place place = Find(header);
    auto& state = world_.states[place.rank];
    Status status;
    status.error = state.error.load(rl::mo_acquire, RL_INFO);
    status.cancel = state.cancel.load(rl::mo_relaxed, RL_INFO);
    status.epoch = state.epoch.load(rl::mo_acquire, RL_INFO);
    status.generation = state.generation.load(rl::mo_relaxed, RL_INFO);
    const bool is_beginning = std::exchange(is_beginning_, false);
    if (kMutant == Mutant::kBlindWait && !is_beginning) status.error = status.cancel = 0;
    if (kMutant == Mutant::kKeepsStoring && !is_closing_ && is_beginning) status.error = 0;
    if (kMutant == Mutant::kClosesAnyway && is_closing_ && is_beginning) status.error = 0;
    if (kMutant == Mutant::kBlockEpoch || kMutant == Mutant::kBlockEpochNoBoundary) {
      status.epoch = own_operations_ - 1;
    }
    if (kMutant == Mutant::kFrozenEpoch) status.epoch = 0;
    if (is_beginning) epoch_ = status.epoch;
    return status;
  }
  uint32_t LoadAcquire(const uint32_t* word) {
    const Place place = Find(word);
    const bool is_ack = place.kind == Kind::kAck;
    if (is_ack && (kMutant == Mutant::kAckIgnored || kMutant == Mutant::kAckIgnoredSingleBuffer)) {
      return MakeTag(0, epoch_ + 1);
    }
    const bool is_relaxed = (place.kind == Kind::kFlag && kMutant == Mutant::kRelaxedFlagLoad) ||
                            (is_ack && kMutant == Mutant::kRelaxedAckSingleBuffer);
    return Word(place).load(is_relaxed ? rl::mo_relaxed : rl::mo_acquire, RL_INFO);
  }
  void StoreRelease(uint32_t* word, uint32_t value) {
    const Place place = Find(word);
    const bool is_relaxed =
        (place.kind == Kind::kFlag && kMutant == Mutant::kRelaxedFlagStore) ||
        (place.kind == Kind::kAck && kMutant == Mutant::kRelaxedAckSingleBuffer);
    Word(place).store(value, is_relaxed ? rl::mo_relaxed : rl::mo_release, RL_INFO);
  }
  void OrRelease(uint32_t* word, uint32_t bits) {
    const Place place = Find(word);
    if (place.rank == rank_) has_failed_ = true;
    if (kMutant == Mutant::kLateMirror && place.rank != rank_) {
      late_bits_[place.rank] |= bits;
      return;
    }
    Word(place).fetch_or(bits, rl::mo_release, RL_INFO);
  }
  uint32_t Arrive(uint32_t* word) {
    if (kMutant == Mutant::kEarlyEpoch) return static_cast<uint32_t>(block_count_) - 1;
    return Word(Find(word)).fetch_add(1, rl::mo_acq_rel, RL_INFO);
  }
  // Waiting begins when the operation asks for the time; afterwards any moment may be too late.
  uint64_t NowNs() {
    if (!is_waiting_) {
      is_waiting_ = true;
      return 0;
    }
    return may_run_out_ && rl::rand(4) == 0 ? kTimeoutNs + 1 : 0;
  }
  void Relax() { rl::yield(1, RL_INFO); }
  void Fence() {}

  // Before each operation.
  void Begin(bool is_closing = false) {
    ++own_operations_;
    is_beginning_ = true;
    is_waiting_ = false;
    is_closing_ = is_closing;
  }
  void set_may_run_out(bool may_run_out) { may_run_out_ = may_run_out; }
  bool has_failed() const { return has_failed_; }

 private:
  enum class Kind { kError, kCancel, kEpoch, kGeneration, kArrivals, kFlag, kAck, kItem };
  struct Place {
    Kind kind;
    int rank;
    int index;  // of an item, or source * kMaxBlocks + block
  };

  Place Find(const void* address) const {
    for (int rank = 0; rank < kSetup.ranks; ++rank) {
      const ptrdiff_t offset = static_cast<const uint8_t*>(address) - StateOf(rank);
      if (offset < 0 || offset >= kStateBytes) continue;
      return FindWithin(rank, static_cast<int>(offset));
    }
    TP2_CHECK(!"an address outside every state");
    return {};
  }
  static Place FindWithin(int rank, int offset) {
    constexpr int kFlags = offsetof(AckProtocol::Control, flags);
    constexpr int kAcks = offsetof(AckProtocol::Control, acks);
    if (offset >= kControlBytes) {
      int item = (offset - static_cast<int>(kControlBytes)) / 16;
      if (kMutant == Mutant::kSingleBuffer || kMutant == Mutant::kAckIgnoredSingleBuffer ||
          kMutant == Mutant::kRelaxedAckSingleBuffer) {
        item %= World<kSetup>::kSources * kCapacity;
      }
      return {Kind::kItem, rank, item};
    }
    if (offset >= kAcks) return {Kind::kAck, rank, (offset - kAcks) / 4};
    if (offset >= kFlags) return {Kind::kFlag, rank, (offset - kFlags) / 4};
    switch (offset) {
      case offsetof(Status, error):
        return {Kind::kError, rank, 0};
      case offsetof(Status, cancel):
        return {Kind::kCancel, rank, 0};
      case offsetof(Status, epoch):
        return {Kind::kEpoch, rank, 0};
      case offsetof(Status, generation):
        return {Kind::kGeneration, rank, 0};
      default:
        TP2_CHECK(offset == offsetof(Header, arrivals));
        return {Kind::kArrivals, rank, 0};
    }
  }
  rl::atomic<uint32_t>& Word(const Place& place) {
    auto& state = world_.states[place.rank];
    switch (place.kind) {
      case Kind::kError:
        return state.error;
      case Kind::kCancel:
        return state.cancel;
      case Kind::kEpoch:
        return state.epoch;
      case Kind::kGeneration:
        return state.generation;
      case Kind::kArrivals:
        return state.arrivals;
      case Kind::kFlag:
        return state.flags[place.index / kMaxBlocks][place.index % kMaxBlocks];
      default:
        return state.acks[place.index / kMaxBlocks][place.index % kMaxBlocks];
    }
  }
  void FlushMirrors() {
    for (int rank = 0; rank < kSetup.ranks; ++rank) {
      if (late_bits_[rank] == 0) continue;
      world_.states[rank].error.fetch_or(late_bits_[rank], rl::mo_release, RL_INFO);
      late_bits_[rank] = 0;
    }
  }

  World<kSetup>& world_;
  const int rank_;
  const int block_;
  const int thread_;
  int block_count_ = 1;
  uint32_t epoch_ = 0;           // read at the start of the current operation
  uint32_t own_operations_ = 0;  // that this block took part in
  bool is_beginning_ = true;     // the status has not been read in the current operation
  bool is_waiting_ = false;
  bool is_closing_ = false;
  bool may_run_out_ = false;
  bool has_failed_ = false;
  uint32_t late_bits_[kMaxRanks] = {};
  typename Meeting<kSetup.threads>::Place block_place_;
  typename Meeting<kSetup.threads * kSetup.blocks>::Place boundary_place_;
};

template <Setup kSetup>
RankView ViewOf(int rank) {
  RankView view;
  view.rank = rank;
  view.rank_count = kSetup.ranks;
  view.item_capacity = kCapacity;
  view.timeout_ns = kTimeoutNs;
  for (int r = 0; r < kSetup.ranks; ++r) {
    view.states[r] = StateOf(r);
    view.tokens[r] = {r * 10, r * 10 + 10};
  }
  return view;
}

}  // namespace tp2::coll::model
