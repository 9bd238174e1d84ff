// Little-endian fields at fixed offsets. Callers check the extent once; offsets are then constants.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "libcore/base/check.h"

namespace tp2::contract {

static_assert(std::endian::native == std::endian::little,
              "fields are copied as they lie in memory");

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T At(size_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    TP2_CHECK(offset + sizeof(T) <= bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  bool IsZero(size_t begin, size_t end) const {
    TP2_CHECK(begin <= end && end <= bytes_.size());
    return std::all_of(bytes_.begin() + begin, bytes_.begin() + end,
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

  // Text padded with zeros: ends at the first zero, after which all must be zero.
  bool Text(size_t offset, size_t field_bytes, std::string* out) const {
    const char* begin = reinterpret_cast<const char*>(bytes_.data()) + offset;
    TP2_CHECK(offset + field_bytes <= bytes_.size());
    const std::string_view field(begin, field_bytes);
    const std::string_view text = field.substr(0, std::min(field.find('\0'), field_bytes));
    if (!IsZero(offset + text.size(), offset + field_bytes)) return false;
    *out = text;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

class WireWriter {
 public:
  // Zeroes everything first, so that what is not written is zero on the wire.
  explicit WireWriter(std::span<std::byte> bytes) : bytes_(bytes) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
  }

  template <class T>
  void Put(size_t offset, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    TP2_CHECK(offset + sizeof(T) <= bytes_.size());
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
  }

  // Cut to the field.
  void PutText(size_t offset, size_t field_bytes, std::string_view text) {
    TP2_CHECK(offset + field_bytes <= bytes_.size());
    std::memcpy(bytes_.data() + offset, text.data(), std::min(text.size(), field_bytes));
  }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace tp2::contract
