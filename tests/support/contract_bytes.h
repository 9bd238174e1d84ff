// Filled messages and hex, for tests of the wire layout.
#pragma once

#include <string>
#include <vector>

#include "libcore/contract/codec.h"
#include "libcore/contract/frame.h"

namespace tp2::testing {

inline std::string HexOf(std::span<const std::byte> bytes) {
  return Hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

// 1, 2, 3, ... from `first` on.
template <size_t N>
std::array<uint8_t, N> Counting(uint8_t first) {
  std::array<uint8_t, N> bytes;
  for (size_t i = 0; i < N; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

inline std::vector<std::byte> Rows(size_t row_bytes, int rows) {
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(rows));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 61);
  return bytes;
}

// A whole request frame with a right header.
inline std::vector<std::byte> MakeFrame(contract::FrameHeader header,
                                        std::span<const std::byte> body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  if ((header.flags & contract::kFlagBodyHash) != 0) header.body_hash = contract::HashBody(body);
  std::vector<std::byte> frame(contract::kHeaderBytes + body.size());
  contract::EncodeHeader(header, frame);
  std::copy(body.begin(), body.end(), frame.begin() + contract::kHeaderBytes);
  return frame;
}

}  // namespace tp2::testing
