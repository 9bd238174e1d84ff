// The two receive buffers of a connection and which of them is held by the receiver.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "libcore/base/check.h"

namespace tp2::transport {

class FrameBuffers {
 public:
  // Pages that no frame reaches stay untouched, so a large limit costs address space only.
  explicit FrameBuffers(size_t frame_bytes) : frame_bytes_(frame_bytes) {
    for (auto& storage : storage_) {
      storage.reset(
          static_cast<std::byte*>(::operator new (frame_bytes, std::align_val_t{kAlignment})));
    }
  }

  // A buffer that is not held, or null.
  std::byte* Free() {
    for (size_t i = 0; i < storage_.size(); ++i) {
      if (!is_held_[i]) return storage_[i].get();
    }
    return nullptr;
  }
  void Hold(const std::byte* buffer) { is_held_[IndexOf(buffer)] = true; }
  void Release(const std::byte* buffer) { is_held_[IndexOf(buffer)] = false; }
  size_t frame_bytes() const { return frame_bytes_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Deleter {
    void operator()(std::byte* bytes) const {
      ::operator delete (bytes, std::align_val_t{kAlignment});
    }
  };

  size_t IndexOf(const std::byte* buffer) const {
    for (size_t i = 0; i < storage_.size(); ++i) {
      if (storage_[i].get() == buffer) return i;
    }
    TP2_CHECK(false && "a frame of this connection");
    return 0;
  }

  size_t frame_bytes_;
  std::array<std::unique_ptr<std::byte, Deleter>, 2> storage_;
  std::array<bool, 2> is_held_{};
};

}  // namespace tp2::transport
