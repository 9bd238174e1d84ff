#include "tests/cuda_emulation/block_runner.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tp2::cuda_emulation {
namespace {

namespace context = boost::context;

constexpr int kWarpLanes = 32;
constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kSharedBytes = 256 << 10;

enum class Waits { kForNothing, kForWarp, kForBlock, kEnded };

// Memory whose end meets a page that nobody may touch.
class FencedMemory {
 public:
  explicit FencedMemory(size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const base = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || mprotect(static_cast<char*>(base) + bytes, page, PROT_NONE) != 0) {
      std::perror("cuda emulation: memory");
      std::abort();
    }
    base_ = static_cast<std::byte*>(base);
  }
  std::byte* end() const { return base_ + bytes_; }

 private:
  std::byte* base_;
  size_t bytes_;
};

struct Thread {
  context::fiber fiber;
  context::fiber* scheduler = nullptr;  // whom to give way to, on the fiber's own stack
  dim3 index;
  Waits waits = Waits::kForNothing;
  uint64_t gathers = 0;
};

struct Warp {
  // Of even and of odd gathers: a lane can be one ahead of another, never two.
  alignas(16) std::array<std::array<std::byte, kWarpLanes * kLaneBytes>, 2> values;
  std::byte* gathered = nullptr;  // the values that are being gathered
  Combine combine = nullptr;      // what becomes of them
};

[[noreturn]] void Fail(const char* reason) {
  std::fprintf(stderr, "cuda emulation: block (%u, %u, %u), thread %u: %s\n", blockIdx.x,
               blockIdx.y, blockIdx.z, threadIdx.x, reason);
  std::abort();
}

class BlockRunner {
 public:
  void Run(const Shape& shape, const std::function<void()>& kernel) {
    const std::lock_guard lock(mutex_);
    if (shape.block.y != 1 || shape.block.z != 1 || shape.block.x > kMaxThreads) {
      Fail("blocks have one dimension and at most 1024 threads");
    }
    if (shape.shared_bytes > kSharedBytes) Fail("more shared memory than a card has");
    shared_bytes_ = (shape.shared_bytes + 15) / 16 * 16;
    kernel_ = &kernel;
    gridDim = shape.grid;
    blockDim = shape.block;
    thread_count_ = static_cast<int>(shape.block.x);
    for (unsigned z = 0; z < shape.grid.z; ++z) {
      for (unsigned y = 0; y < shape.grid.y; ++y) {
        for (unsigned x = 0; x < shape.grid.x; ++x) {
          blockIdx = dim3(x, y, z);
          RunBlock();
        }
      }
    }
  }

  void Wait(Waits for_what) {
    Thread& thread = threads_[current_];
    thread.waits = for_what;
    *thread.scheduler = std::move(*thread.scheduler).resume();
  }
  std::byte* dynamic_shared() const { return shared_.end() - shared_bytes_; }

  const void* Gather(unsigned mask, const void* value, size_t bytes, Combine combine) {
    if (mask != ~0u) Fail("a warp's exchange must name all lanes");
    Thread& thread = threads_[current_];
    Warp& warp = warps_[current_ / kWarpLanes];
    std::byte* values = warp.values[thread.gathers++ % 2].data();
    std::memcpy(values + static_cast<size_t>(current_ % kWarpLanes) * bytes, value, bytes);
    warp.gathered = values;
    warp.combine = combine;
    Wait(Waits::kForWarp);
    return values;
  }

 private:
  void RunBlock() {
    std::memset(dynamic_shared(), 0xCD, shared_bytes_);
    for (int i = 0; i < thread_count_; ++i) Start(i);
    while (true) {
      int ended = 0, at_barrier = 0;
      for (int first = 0; first < thread_count_; first += kWarpLanes) {
        RunWarp(first, std::min(first + kWarpLanes, thread_count_));
      }
      for (int i = 0; i < thread_count_; ++i) {
        if (threads_[i].waits == Waits::kEnded) ++ended;
        if (threads_[i].waits == Waits::kForBlock) ++at_barrier;
      }
      if (ended == thread_count_) return;
      if (ended + at_barrier != thread_count_) Fail("the block waits for a thread in vain");
      for (int i = 0; i < thread_count_; ++i) {
        if (threads_[i].waits == Waits::kForBlock) threads_[i].waits = Waits::kForNothing;
      }
    }
  }

  // Until every lane has ended or waits for the block.
  void RunWarp(int begin, int end) {
    while (true) {
      int waiting = 0;
      for (int i = begin; i < end; ++i) {
        if (threads_[i].waits == Waits::kForNothing) Resume(i);
        if (threads_[i].waits == Waits::kForWarp) ++waiting;
      }
      if (waiting == 0) return;
      if (waiting != end - begin || waiting != kWarpLanes) {
        Fail("a warp's exchange waits for a lane in vain");
      }
      Warp& warp = warps_[begin / kWarpLanes];
      if (warp.combine != nullptr) std::exchange(warp.combine, nullptr)(warp.gathered);
      for (int i = begin; i < end; ++i) threads_[i].waits = Waits::kForNothing;
    }
  }

  void Start(int i) {
    if (static_cast<size_t>(i) >= stacks_.size()) {
      stacks_.push_back(std::make_unique<std::byte[]>(kStackBytes));
    }
    std::byte* const stack = stacks_[i].get();
    const context::stack_context memory = [stack] {
      context::stack_context of;
      of.sp = stack + kStackBytes;
      of.size = kStackBytes;
      return of;
    }();
    Thread& thread = threads_[i];
    thread.waits = Waits::kForNothing;
    thread.gathers = 0;
    thread.index = dim3(static_cast<unsigned>(i), 0, 0);
    thread.fiber =
        context::fiber(std::allocator_arg, context::preallocated(memory.sp, memory.size, memory),
                       NoAllocator(), [this, i](context::fiber&& scheduler) {
                         threads_[i].scheduler = &scheduler;
                         (*kernel_)();
                         threads_[i].waits = Waits::kEnded;
                         return std::move(scheduler);
                       });
  }

  void Resume(int i) {
    current_ = i;
    threadIdx = threads_[i].index;
    threads_[i].fiber = std::move(threads_[i].fiber).resume();
  }

  // Stacks are kept for the next block.
  struct NoAllocator {
    context::stack_context allocate() { return {}; }
    void deallocate(context::stack_context&) {}
  };

  std::mutex mutex_;
  FencedMemory shared_{kSharedBytes};
  size_t shared_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> stacks_;
  std::array<Thread, kMaxThreads> threads_;
  std::array<Warp, kMaxThreads / kWarpLanes> warps_;
  int thread_count_ = 0;
  int current_ = 0;
  const std::function<void()>* kernel_ = nullptr;
};

// Made at the first launch: code inside of it asks far too often for a guarded static.
BlockRunner* runner = nullptr;

}  // namespace

void RunGrid(const Shape& shape, const std::function<void()>& kernel) {
  static BlockRunner made;
  runner = &made;
  made.Run(shape, kernel);
}
void SyncBlock() { runner->Wait(Waits::kForBlock); }
void SyncWarp() { runner->Wait(Waits::kForWarp); }
void* DynamicSharedMemory() { return runner->dynamic_shared(); }
const void* GatherWarp(unsigned mask, const void* value, size_t bytes, Combine combine) {
  return runner->Gather(mask, value, bytes, combine);
}

}  // namespace tp2::cuda_emulation
