// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): guards the 64 header bytes only, so a
// byte-wise table is fast enough.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tp2::contract {

constexpr std::array<uint32_t, 256> MakeCrc32cTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t value = 0; value < 256; ++value) {
    uint32_t crc = value;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[value] = crc;
  }
  return table;
}

inline uint32_t Crc32c(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrc32cTable();
  uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(byte)) & 0xFFu];
  }
  return ~crc;
}

}  // namespace tp2::contract
