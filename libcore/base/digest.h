// Content digests. XXH3 tells whether bits are the same; SHA-256 names what two parties must agree
// on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tp2 {

// Streaming XXH3-64 over little-endian bytes. Thread-compatible.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  template <class T>
  void UpdateValues(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Update(std::as_bytes(values));
  }
  uint64_t Finish() const;

  static uint64_t Of(std::span<const std::byte> bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

using Sha256Digest = std::array<uint8_t, 32>;
Sha256Digest Sha256(std::string_view text);

// 16 lower-case hex digits, most significant first.
std::string Hex64(uint64_t value);
std::string Hex(std::span<const uint8_t> bytes);

}  // namespace tp2
