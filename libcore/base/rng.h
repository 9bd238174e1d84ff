// Deterministic random bits for synthetic weights and tests: the same on every machine for one
// seed.
#pragma once

#include <cstdint>
#include <string_view>

namespace tp2 {

// The splitmix64 finalizer: a bijection of 64-bit values whose outputs look random.
constexpr uint64_t Mix64(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Counter-based: value number `counter` of stream `stream`, so that any part can be produced
// without the rest.
constexpr uint64_t RandomAt(uint64_t stream, uint64_t counter) {
  return Mix64(Mix64(stream) ^ (counter * 0xD1342543DE82EF95u));
}

// A stream number from a seed and a name (FNV-1a over the name).
constexpr uint64_t StreamOf(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return Mix64(seed ^ hash);
}

// Sequential form. Thread-compatible.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : stream_(seed) {}
  constexpr uint64_t Next() { return RandomAt(stream_, counter_++); }
  // Uniform in [0, bound); bound > 0. The bias for bounds under 2^32 is below 2^-32.
  constexpr uint64_t Below(uint64_t bound) { return Next() % bound; }
  // Uniform in [-1, 1) on a grid of 2^-23: exact in fp32.
  constexpr float Signed() {
    return static_cast<float>(static_cast<int32_t>(Next() >> 40) - (1 << 23)) * 0x1p-23f;
  }

 private:
  uint64_t stream_;
  uint64_t counter_ = 0;
};

}  // namespace tp2
