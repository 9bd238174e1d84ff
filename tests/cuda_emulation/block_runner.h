// Runs the blocks of a grid on one thread of the CPU. A block's threads are fibers that give way
// where they wait for each other; a thread that others wait for in vain ends the program with the
// reason, which a card would answer with a hang or with garbage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as CUDA's
};

namespace tp2::cuda_emulation {

struct Shape {
  dim3 grid, block;
  size_t shared_bytes = 0;
};

// Calls `kernel` once per thread of the grid, with threadIdx and the others set.
void RunGrid(const Shape& shape, const std::function<void()>& kernel);

// For code that runs inside of it.
void SyncBlock();
void SyncWarp();
// 16-byte aligned; what lies behind it must not be touched. Garbage at a block's start.
void* DynamicSharedMemory();
// All lanes' values of `bytes` bytes (at most kLaneBytes), one behind the other; valid until the
// lane's next but one call. All 32 lanes must call it. `combine`, once for the warp, may put other
// values in their place.
inline constexpr size_t kLaneBytes = 32;
using Combine = void (*)(void* values);
const void* GatherWarp(unsigned mask, const void* value, size_t bytes, Combine combine = nullptr);

template <class T>
T FromLane(unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= kLaneBytes);
  T result;
  std::memcpy(&result,
              static_cast<const std::byte*>(GatherWarp(mask, &value, sizeof(T))) +
                  static_cast<size_t>(lane) * sizeof(T),
              sizeof(T));
  return result;
}

}  // namespace tp2::cuda_emulation
