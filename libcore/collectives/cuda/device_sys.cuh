// The protocols' policy on a card: 16-byte relaxed system-scope accesses for lines and status,
// words at system scope, the card's global timer. Payload and tag of a line travel in one access,
// so tagged lines need no fence.
#pragma once

#include <cstdint>

#include "libcore/collectives/line_protocol.h"
#include "libcore/collectives/protocol.h"

namespace tp2::coll::cuda {

// The host compiles these bodies, because the protocols are marked for both sides, and never runs
// them.
#ifdef __CUDA_ARCH__
#define TP2_PTX(...) asm volatile(__VA_ARGS__)
#define TP2_ON_DEVICE(...) __VA_ARGS__
#define TP2_ON_HOST(...)
#define TP2_OR_ZERO(value) (value)
#else
#define TP2_PTX(...) static_cast<void>(0)
#define TP2_ON_DEVICE(...)
#define TP2_ON_HOST(...) __VA_ARGS__
#define TP2_OR_ZERO(value) 0
#endif

class DeviceSys {
 public:
  // About 20 us of polling between two looks at errors, cancellation and the deadline.
  static constexpr uint32_t kPollsPerCheck = 64;

  // Block `block` of the `block_count` of the rank whose header is `own`; `is_warp`: of one warp.
  TP2_HD DeviceSys(const Header* own, int block, int block_count, bool is_warp = false)
      : own_(own), block_(block), block_count_(block_count), is_warp_(is_warp) {}

  TP2_HD int block() const { return block_; }
  TP2_HD int block_count() const { return block_count_; }
  TP2_HD int thread() const { return TP2_OR_ZERO(static_cast<int>(threadIdx.x)); }
  TP2_HD int thread_count() const { return TP2_OR_ZERO(static_cast<int>(blockDim.x)); }
  // The first call ends BeginOperation: the threads agree, they have the same status, and the
  // barrier was that of Enter.
  TP2_HD bool BlockAll(bool is_true) {
    if (has_agreed_) return TP2_OR_ZERO(__syncthreads_and(is_true)) != 0;
    has_agreed_ = true;
    return is_true;
  }

  // SAFETY: one scalar access: a reader sees the tag and the payload of the same store.
  TP2_HD void StoreLine(Line* to, const Line& line) const {
    [[maybe_unused]] const uint64_t low = line.payload[0] | uint64_t{line.payload[1]} << 32;
    [[maybe_unused]] const uint64_t high = line.payload[2] | uint64_t{line.tag} << 32;
    TP2_PTX(
        "{\n .reg .b128 line;\n mov.b128 line, {%1, %2};\n"
        " st.relaxed.sys.global.b128 [%0], line;\n}" ::"l"(to),
        "l"(low), "l"(high)
        : "memory");
  }
  TP2_HD Line LoadLine(const Line* from) const {
    const Quad quad = LoadQuad(from);
    return {{quad.words[0], quad.words[1], quad.words[2]}, quad.words[3]};
  }
  // Plain payload of the ack protocol, whose flags order it; past L1, which other blocks' flags do
  // not invalidate.
  TP2_HD void StoreWords(uint32_t* to, const uint32_t (&words)[4]) const {
    TP2_PTX("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]),
            "r"(words[2]), "r"(words[3])
            : "memory");
  }
  TP2_HD void LoadWords(const uint32_t* from, uint32_t (&words)[4]) const {
    TP2_PTX("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
            : "l"(from)
            : "memory");
  }
  // The first thing that an operation's threads do: what they load besides travels with it. In a
  // larger block one thread reads for all: read by every warp, it would make one slice of L2 answer
  // a thousand requests.
  TP2_HD void RequestStatus() {
    if (is_warp_ || thread() == 0) entry_ = ReadStatus(own_);
  }
  // The first call begins the operation and is made by every thread of the block.
  TP2_HD Status LoadStatus(const Header* header) {
    if (has_begun_) return ReadStatus(header);
    has_begun_ = true;
    return Enter();
  }
  TP2_HD uint32_t LoadAcquire(const uint32_t* word) const {
    uint32_t value = 0;
    TP2_PTX("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  TP2_HD uint32_t LoadRelaxed(const uint32_t* word) const {
    uint32_t value = 0;
    TP2_PTX("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
  }
  // A release costs a round trip to the peer while stores to it are under way. Words that only the
  // rank's own later kernels read need none: the end of the kernel publishes them.
  TP2_HD void StoreRelease(uint32_t* word, uint32_t value) const {
    if (word == &own_->status.epoch || word == &own_->arrivals) {
      StoreRelaxed(word, value);
    } else {
      TP2_PTX("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    }
  }
  TP2_HD void StoreRelaxed(uint32_t* word, uint32_t value) const {
    TP2_PTX("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
  }
  TP2_HD void OrRelease(uint32_t* word, uint32_t bits) const { TP2_ON_DEVICE(LatchAt(word, bits);) }
  // SAFETY: relaxed, behind the barrier of Enter: the block's threads know their epoch by then.
  TP2_HD uint32_t Arrive(uint32_t* word) const {
    uint32_t former = 0;
    TP2_PTX("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(former) : "l"(word) : "memory");
    return former;
  }
  TP2_HD uint64_t NowNs() const {
    uint64_t now_ns = 0;
    TP2_PTX("mov.u64 %0, %%globaltimer;" : "=l"(now_ns)::"memory");
    return now_ns;
  }
  TP2_HD void Relax() const {}
  TP2_HD void Fence() const { TP2_PTX("fence.acq_rel.sys;" ::: "memory"); }

 private:
  struct Quad {
    uint32_t words[4];
  };
  // A call, so that what failures need is no part of what an operation has to fetch.
  TP2_ON_DEVICE(__device__ __noinline__ static void LatchAt(uint32_t* word, uint32_t bits) {
    [[maybe_unused]] uint32_t former;
    TP2_PTX("atom.acq_rel.sys.global.or.b32 %0, [%1], %2;"
            : "=r"(former)
            : "l"(word), "r"(bits)
            : "memory");
  })
  TP2_HD static Quad LoadQuad(const void* from) {
    uint64_t low = 0, high = 0;
    TP2_PTX(
        "{\n .reg .b128 quad;\n ld.relaxed.sys.global.b128 quad, [%2];\n"
        " mov.b128 {%0, %1}, quad;\n}"
        : "=l"(low), "=l"(high)
        : "l"(from)
        : "memory");
    return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
             static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}};
  }

  // The requested status, for every thread of the block.
  TP2_HD Status Enter() const {
    if (is_warp_) {
      TP2_ON_DEVICE(__syncwarp();)
      return entry_;
    }
    TP2_ON_DEVICE(__shared__ Status shared; if (threadIdx.x == 0) shared = entry_; __syncthreads();
                  return shared;)
    TP2_ON_HOST(return {};)
  }

  // Relaxed: nothing that an error or a cancellation publishes is read after it.
  TP2_HD static Status ReadStatus(const Header* header) {
    const Quad quad = LoadQuad(&header->status);
    return {quad.words[0], quad.words[1], quad.words[2], quad.words[3]};
  }

  const Header* own_;
  int block_;
  int block_count_;
  bool is_warp_;
  bool has_agreed_ = false;
  bool has_begun_ = false;
  Status entry_;
};

#undef TP2_PTX
#undef TP2_ON_DEVICE
#undef TP2_ON_HOST
#undef TP2_OR_ZERO

}  // namespace tp2::coll::cuda
