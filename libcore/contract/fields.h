// A message is one list of fields (message_fields.h), written once and walked in both directions.
// The reader takes every byte that no field covers for reserved and demands zero there, so that a
// list cannot forget a gap; the writer zeroes the message first.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "libcore/contract/codec.h"
#include "libcore/contract/wire.h"

namespace tp2::contract {

inline constexpr size_t kLargestFieldListBytes = 256;  // HELLO and HEALTH

class FieldReader {
 public:
  explicit FieldReader(ByteView bytes) : bytes_(bytes), reader_(bytes) {}

  template <class T>
  void operator()(size_t offset, T& value) {
    static_assert(std::is_arithmetic_v<T> || !std::is_scalar_v<T>, "enums and flags have calls");
    value = reader_.At<T>(offset);
    Cover(offset, sizeof(T));
  }
  // The wire holds 16 bits; a value outside `first`..`last` makes the message invalid.
  template <class E>
  void Enum(size_t offset, E& value, E first, E last) {
    const uint16_t number = reader_.At<uint16_t>(offset);
    is_valid_ &= number >= static_cast<uint16_t>(first) && number <= static_cast<uint16_t>(last);
    value = static_cast<E>(number);
    Cover(offset, sizeof(number));
  }
  // One byte, 0 or 1.
  void Flag(size_t offset, bool& value) {
    const uint8_t number = reader_.At<uint8_t>(offset);
    is_valid_ &= number <= 1;
    value = number != 0;
    Cover(offset, sizeof(number));
  }
  void Text(size_t offset, size_t field_bytes, std::string& text) {
    is_valid_ &= reader_.Text(offset, field_bytes, &text);
    Cover(offset, field_bytes);
  }
  template <class T>
  void Constant(size_t offset, T value) {
    is_valid_ &= reader_.At<T>(offset) == value;
    Cover(offset, sizeof(T));
  }

  // Call after the list: every value was possible and every reserved byte is zero.
  bool is_valid() const {
    for (size_t at = 0; at < bytes_.size(); ++at) {
      if (!is_covered_[at] && bytes_[at] != std::byte{0}) return false;
    }
    return is_valid_;
  }

 private:
  void Cover(size_t offset, size_t count) {
    for (size_t at = offset; at < offset + count; ++at) is_covered_.set(at);
  }

  ByteView bytes_;
  WireReader reader_;
  std::bitset<kLargestFieldListBytes> is_covered_;
  bool is_valid_ = true;
};

class FieldWriter {
 public:
  explicit FieldWriter(Bytes bytes) : writer_(bytes) {}

  template <class T>
  void operator()(size_t offset, const T& value) {
    writer_.Put(offset, value);
  }
  template <class E>
  void Enum(size_t offset, const E& value, E, E) {
    writer_.Put(offset, static_cast<uint16_t>(value));
  }
  void Flag(size_t offset, const bool& value) {
    writer_.Put(offset, static_cast<uint8_t>(value ? 1 : 0));
  }
  void Text(size_t offset, size_t field_bytes, const std::string& text) {
    writer_.PutText(offset, field_bytes, text);
  }
  template <class T>
  void Constant(size_t offset, T value) {
    writer_.Put(offset, value);
  }

 private:
  WireWriter writer_;
};

}  // namespace tp2::contract
