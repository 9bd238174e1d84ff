// The collectives, each once for host and device and for both protocols: all-reduce, exchange of
// candidates, the closing exchange of a STEP. Every thread of a rank's launch calls the function;
// items are dealt out to threads in strides, the same way on every rank. Values come and go through
// the caller's functions, so that a kernel can fuse what produces or consumes them. A thread's
// first value is loaded before the operation begins: its way and the status's are one.
#pragma once

#include <bit>
#include <cstdint>

#include "libcore/collectives/protocol.h"
#include "libcore/math/argmax.h"

namespace tp2::coll {

template <class Protocol, class Int>
TP2_HD constexpr Int ItemsOf(Int word_count) {
  return (word_count + Protocol::kItemWords - 1) / Protocol::kItemWords;
}

// The calling thread's first item, and how far the next one is from it.
template <ProtocolSys Sys>
TP2_HD int32_t FirstItem(Sys& sys) {
  return sys.block() * sys.thread_count() + sys.thread();
}
template <ProtocolSys Sys>
TP2_HD int32_t ItemStride(Sys& sys) {
  return sys.block_count() * sys.thread_count();
}

// What the caller knows of its launch. kOne, a thread for every item at least, leaves no loop: half
// of the instructions took 0.4 us off an operation of 3.1 us on two H200s.
enum class ItemsPerThread { kAny, kOne };

// body(item) for the calling thread's items below `count` until it returns false; whether none did.
template <ItemsPerThread kItems, ProtocolSys Sys, class Body>
TP2_HD bool ForItems(Sys& sys, int32_t count, Body body) {
  const int32_t first = FirstItem(sys);
  if constexpr (kItems == ItemsPerThread::kOne) {
    return first >= count || body(first);
  } else {
    for (int32_t item = first; item < count; item += ItemStride(sys)) {
      if (!body(item)) return false;
    }
    return true;
  }
}

// The words of an item of fp32 values; 0 behind the last value.
template <class Protocol, class Load>
TP2_HD void LoadItem(int32_t item, int32_t count, Load& load,
                     uint32_t (&words)[Protocol::kItemWords]) {
  TP2_UNROLL
  for (int i = 0; i < Protocol::kItemWords; ++i) {
    const int32_t index = item * Protocol::kItemWords + i;
    words[i] = index < count ? std::bit_cast<uint32_t>(static_cast<float>(load(index))) : 0;
  }
}

// Sums one item over the ranks and stores what lies before `count`. False as Receive.
// BITS: one fp32 addition after the other in rank order, the own value in its place: replicated
// results are equal also for three and more ranks, and for two a NaN's payload is.
template <class Protocol, ProtocolSys Sys, class Store>
TP2_HD bool SumItem(Sys& sys, const RankView& view, const Operation& operation, int32_t item,
                    int32_t count, const uint32_t (&mine)[Protocol::kItemWords], Store& store) {
  float sum[Protocol::kItemWords] = {};
  TP2_UNROLL
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source >= view.rank_count) break;
    uint32_t words[Protocol::kItemWords];
    if (source == view.rank) {
      TP2_UNROLL
      for (int i = 0; i < Protocol::kItemWords; ++i) words[i] = mine[i];
    } else if (!Protocol::Receive(sys, view, operation, source, item, words)) {
      return false;
    }
    TP2_UNROLL
    for (int i = 0; i < Protocol::kItemWords; ++i) {
      const float value = std::bit_cast<float>(words[i]);
      sum[i] = source == 0 ? value : sum[i] + value;
    }
  }
  TP2_UNROLL
  for (int i = 0; i < Protocol::kItemWords; ++i) {
    const int32_t index = item * Protocol::kItemWords + i;
    if (index < count) store(index, sum[i]);
  }
  return true;
}

// store(i, sum over ranks of load(i)) for i in [0, count). A thread loads index i before it stores
// i and no other thread touches it: source and result may be one array. False: refused or failed,
// what was stored is not to be used; threads of one rank may disagree, the error word decides.
template <class Protocol, ItemsPerThread kItems = ItemsPerThread::kAny, ProtocolSys Sys, class Load,
          class Store>
TP2_HD bool AllReduce(Sys& sys, const RankView& view, int32_t count, Load load, Store store) {
  // Unsigned: a third of it is one multiplication.
  const auto items = static_cast<int32_t>(ItemsOf<Protocol>(static_cast<uint32_t>(count)));
  uint32_t mine[Protocol::kItemWords] = {};
  int32_t held = FirstItem(sys);  // the item that `mine` has
  if (held < items) LoadItem<Protocol>(held, count, load, mine);
  const auto hold = [&](int32_t item) {
    if (kItems == ItemsPerThread::kOne || item == held) return;
    LoadItem<Protocol>(item, count, load, mine);
    held = item;
  };
  Operation operation;
  if (!BeginOperation(sys, view, operation)) return false;
  ForItems<kItems>(sys, items, [&](int32_t item) {
    hold(item);
    Protocol::Send(sys, view, operation, item, mine);
    return true;
  });
  Protocol::Publish(sys, view, operation);
  const bool has_all =
      Protocol::AwaitBlock(sys, view, operation) && ForItems<kItems>(sys, items, [&](int32_t item) {
        hold(item);
        return SumItem<Protocol>(sys, view, operation, item, count, mine, store);
      });
  return Protocol::Finish(sys, view, operation, has_all);
}

// A token of a rank that owns `range` as 16 bits: its offset there, or a value that no range
// reaches (kMaxRankTokens). A foreign token stays foreign: its offset lies behind the range.
inline constexpr uint32_t kForeignOffset = kMaxRankTokens;
inline constexpr uint32_t kNoOffset = 0xFFFF;  // of kNoScore
TP2_HD inline uint32_t OffsetOf(TokenRange range, int32_t token) {
  const uint32_t offset = static_cast<uint32_t>(token) - static_cast<uint32_t>(range.begin);
  if (token == kNoScore.token) return kNoOffset;
  return offset < kForeignOffset ? offset : kForeignOffset;
}
// False: not an offset of one of the rank's tokens or of none.
TP2_HD inline bool TokenAt(TokenRange range, uint32_t offset, int32_t& token) {
  const bool is_none = offset == kNoOffset;
  token = is_none ? kNoScore.token : range.begin + static_cast<int32_t>(offset);
  return is_none || offset < static_cast<uint32_t>(range.end - range.begin);
}

// How candidates travel from the rank that owns `range`, an item each: the best one (argmax
// exchange), or the best two (margin exchange). Scores keep their bits. FromWords is false for what
// that rank cannot have sent: candidates are its tokens or none, and scores are numbers.
struct BestRecord {
  using Value = Scored;
  static constexpr int kWords = 2;
  TP2_HD static void ToWords(TokenRange range, const Scored& value, uint32_t (&words)[kWords]) {
    words[0] = std::bit_cast<uint32_t>(value.score);
    words[1] = std::bit_cast<uint32_t>(value.token);
  }
  TP2_HD static bool FromWords(TokenRange range, const uint32_t (&words)[kWords], Scored& value) {
    value = {std::bit_cast<float>(words[0]), std::bit_cast<int32_t>(words[1])};
    const auto own_count = static_cast<uint32_t>(range.end - range.begin);
    const bool is_own = words[1] - static_cast<uint32_t>(range.begin) < own_count;
    return (is_own || value.token == kNoScore.token) && value.score == value.score;
  }
  // `a` comes from the lower rank.
  TP2_HD static Scored Join(const Scored& a, const Scored& b) { return Beats(b, a) ? b : a; }
};

// Both tokens in one word: a line holds the record.
struct BestTwoRecord {
  using Value = TopTwo;
  static constexpr int kWords = 3;
  TP2_HD static void ToWords(TokenRange range, const TopTwo& value, uint32_t (&words)[kWords]) {
    words[0] = std::bit_cast<uint32_t>(value.first.score);
    words[1] = std::bit_cast<uint32_t>(value.second.score);
    words[2] = OffsetOf(range, value.first.token) | OffsetOf(range, value.second.token) << 16;
  }
  TP2_HD static bool FromWords(TokenRange range, const uint32_t (&words)[kWords], TopTwo& value) {
    value.first.score = std::bit_cast<float>(words[0]);
    value.second.score = std::bit_cast<float>(words[1]);
    const bool has_first = TokenAt(range, words[2] & 0xFFFF, value.first.token);
    const bool has_second = TokenAt(range, words[2] >> 16, value.second.token);
    const bool are_numbers =
        value.first.score == value.first.score && value.second.score == value.second.score;
    return has_first && has_second && are_numbers;
  }
  TP2_HD static TopTwo Join(const TopTwo& a, const TopTwo& b) { return Merge(a, b); }
};

template <class Protocol, class Record, ProtocolSys Sys>
TP2_HD void SendRecord(Sys& sys, const RankView& view, const Operation& operation, int32_t index,
                       const typename Record::Value& value) {
  static_assert(Record::kWords <= Protocol::kItemWords);
  uint32_t words[Record::kWords];
  Record::ToWords(view.tokens[view.rank], value, words);
  uint32_t item[Protocol::kItemWords] = {};
  TP2_UNROLL
  for (int i = 0; i < Record::kWords; ++i) item[i] = words[i];
  Protocol::Send(sys, view, operation, index, item);
}

// False: as ReceiveIf.
template <class Protocol, class Record, ProtocolSys Sys>
TP2_HD bool ReceiveRecord(Sys& sys, const RankView& view, const Operation& operation, int source,
                          int32_t index, typename Record::Value& value) {
  return Protocol::ReceiveIf(sys, view, operation, source, index, [&](const auto& item) {
    uint32_t words[Record::kWords];
    TP2_UNROLL
    for (int i = 0; i < Record::kWords; ++i) words[i] = item[i];
    return Record::FromWords(view.tokens[source], words, value);
  });
}

// store(i, best over ranks of load(i)) for i in [0, count), candidates of the ranks' token ranges.
// Ties go to the lower token. As AllReduce otherwise.
template <class Protocol, class Record, ItemsPerThread kItems = ItemsPerThread::kAny,
          ProtocolSys Sys, class Load, class Store>
TP2_HD bool Exchange(Sys& sys, const RankView& view, int32_t count, Load load, Store store) {
  using Value = typename Record::Value;
  Value mine = {};
  int32_t held = FirstItem(sys);  // the index whose value `mine` is
  if (held < count) mine = load(held);
  const auto hold = [&](int32_t index) {
    if (kItems == ItemsPerThread::kOne || index == held) return;
    mine = load(index);
    held = index;
  };
  Operation operation;
  if (!BeginOperation(sys, view, operation)) return false;
  ForItems<kItems>(sys, count, [&](int32_t index) {
    hold(index);
    SendRecord<Protocol, Record>(sys, view, operation, index, mine);
    return true;
  });
  Protocol::Publish(sys, view, operation);
  const auto join = [&](int32_t index) {
    hold(index);
    // In any order: ranges are disjoint, so no two candidates are equal.
    Value best = mine;
    const bool have_come = ForPeers(view, [&](int distance) {
      Value value = {};
      if (!ReceiveRecord<Protocol, Record>(sys, view, operation, PeerAt(view, distance), index,
                                           value)) {
        return false;
      }
      best = Record::Join(best, value);
      return true;
    });
    if (!have_come) return false;
    store(index, best);
    return true;
  };
  const bool has_all =
      Protocol::AwaitBlock(sys, view, operation) && ForItems<kItems>(sys, count, join);
  return Protocol::Finish(sys, view, operation, has_all);
}

// The last operation of a STEP, run even after an error, in one block: a rank sends only while its
// error word is zero, so that having received from all proves that no rank refused anything in the
// STEP. True: the STEP succeeded on this rank; every rank then had refused nothing when it sent.
template <class Protocol, ProtocolSys Sys>
TP2_HD bool CloseStep(Sys& sys, const RankView& view) {
  Operation operation;
  if (!BeginOperation(sys, view, operation)) return false;
  const bool is_first = FirstItem(sys) == 0;
  uint32_t words[Protocol::kItemWords] = {};
  // Lines are relaxed accesses, and that they may be reused rests on kernel boundaries acting as
  // fences between cards: this one makes it so once per STEP whatever a boundary does.
  sys.Fence();
  if (is_first) Protocol::Send(sys, view, operation, 0, words);
  Protocol::Publish(sys, view, operation);
  bool has_all = Protocol::AwaitBlock(sys, view, operation);
  has_all = has_all && (!is_first || ForPeers(view, [&](int distance) {
              return Protocol::Receive(sys, view, operation, PeerAt(view, distance), 0, words);
            }));
  return Protocol::Finish(sys, view, operation, has_all) &&
         sys.LoadStatus(OwnHeader(view)).error == 0;
}

}  // namespace tp2::coll
