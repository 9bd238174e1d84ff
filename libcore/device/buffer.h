// Device memory by plain cudaMalloc (never the stream-ordered allocator, whose memory peers cannot
// map safely) and pinned host memory, both zeroed, owned and move-only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace tp2::device {

// Untyped core of the two buffers below.
class Allocation {
 public:
  enum class Place { kDevice, kPinnedHost };

  Allocation() = default;
  // Zero-filled bytes on the current device (or pinned for it). No bytes: an empty allocation.
  static absl::StatusOr<Allocation> Create(Place place, size_t bytes);
  ~Allocation();
  Allocation(Allocation&& other) noexcept
      : place_(other.place_),
        data_(std::exchange(other.data_, nullptr)),
        base_(std::exchange(other.base_, nullptr)) {}
  Allocation& operator=(Allocation&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(data_, other.data_);
    std::swap(base_, other.base_);
    return *this;
  }

  void* data() const { return data_; }
  // Made so far in this process: does not grow once an engine is warm.
  static int64_t created_count();

 private:
  absl::Status CreateOnDevice(size_t bytes);

  Place place_ = Place::kDevice;
  void* data_ = nullptr;
  void* base_ = nullptr;  // what the runtime gave: a red zone may lie in between
};

template <class T, Allocation::Place kPlace>
class TypedBuffer {
 public:
  TypedBuffer() = default;
  static absl::StatusOr<TypedBuffer> Create(int64_t count) {
    absl::StatusOr<Allocation> memory =
        Allocation::Create(kPlace, static_cast<size_t>(count) * sizeof(T));
    if (!memory.ok()) return memory.status();
    return TypedBuffer(*std::move(memory), count);
  }

  T* data() { return static_cast<T*>(memory_.data()); }
  const T* data() const { return static_cast<const T*>(memory_.data()); }
  size_t size() const { return static_cast<size_t>(count_); }

 private:
  TypedBuffer(Allocation memory, int64_t count) : memory_(std::move(memory)), count_(count) {}

  Allocation memory_;
  int64_t count_ = 0;
};

template <class T>
using Buffer = TypedBuffer<T, Allocation::Place::kDevice>;
template <class T>
using PinnedBuffer = TypedBuffer<T, Allocation::Place::kPinnedHost>;

}  // namespace tp2::device
