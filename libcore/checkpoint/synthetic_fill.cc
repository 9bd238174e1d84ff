#include "libcore/checkpoint/synthetic_fill.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"
#include "libcore/math/bf16.h"
#include "libcore/math/fp16.h"
#include "libcore/math/fp8.h"

namespace tp2 {
namespace {

// The sum of four uniform 16-bit integers has mean 131070 and variance (2^32 - 1) / 3.
constexpr int kBellMean = 131070;
constexpr float kBellScale = 1.0f / 37837.2265625f;  // sqrt((2^32 - 1) / 3) = 37837.2277 in fp32

float Bell(uint64_t random) {
  const auto sum = static_cast<int>((random & 0xFFFFu) + ((random >> 16) & 0xFFFFu) +
                                    ((random >> 32) & 0xFFFFu) + (random >> 48));
  return static_cast<float>(sum - kBellMean) * kBellScale;
}

// Uniform in [-1, 1) from the upper 24 bits.
float Uniform(uint64_t random) {
  return static_cast<float>(static_cast<int32_t>(random >> 40) - (1 << 23)) * 0x1p-23f;
}

// The code of a value that lies on the e4m3 grid.
uint8_t Fp8Code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  if (magnitude < 0x1p-6f) {  // zero and subnormals, steps of 2^-9
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(magnitude * 512.0f));
  }
  const uint32_t exponent = ((bits >> 23) & 0xFFu) - 120;
  return static_cast<uint8_t>(sign | (exponent << 3) | ((bits >> 20) & 0x7u));
}

template <class T, class Make>
void FillWith(uint64_t stream, int64_t first, std::span<std::byte> out, Make make) {
  T* values = reinterpret_cast<T*>(out.data());
  const auto count = static_cast<int64_t>(out.size() / sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = make(first + i, RandomAt(stream, static_cast<uint64_t>(first + i)));
  }
}

void FillBits(DType dtype, uint64_t stream, int64_t first_element, std::span<std::byte> out) {
  const int64_t first_byte = first_element * DTypeBytes(dtype);
  TP2_CHECK(first_byte % 8 == 0);
  for (size_t offset = 0; offset < out.size(); offset += 8) {
    const uint64_t random = RandomAt(stream, static_cast<uint64_t>(first_byte) / 8 + offset / 8);
    std::memcpy(out.data() + offset, &random, std::min<size_t>(8, out.size() - offset));
  }
}

void FillBell(const Fill& fill, DType dtype, uint64_t stream, int64_t first,
              std::span<std::byte> out) {
  const auto value = [&fill](uint64_t random) { return fill.center + fill.spread * Bell(random); };
  switch (dtype) {
    case DType::kBf16:
      FillWith<Bf16>(stream, first, out,
                     [&](int64_t, uint64_t random) { return ToBf16(value(random)); });
      return;
    case DType::kF16:
      FillWith<Fp16>(stream, first, out,
                     [&](int64_t, uint64_t random) { return ToFp16(value(random)); });
      return;
    default:
      TP2_CHECK(dtype == DType::kF32);
      FillWith<float>(stream, first, out, [&](int64_t, uint64_t random) { return value(random); });
  }
}

}  // namespace

void FillElements(const Fill& fill, DType dtype, uint64_t stream, int64_t first_element,
                  std::span<std::byte> out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::array<float, 3> kMixScales = {0.8f, 1.05f, 2.5f};
  switch (fill.kind) {
    case FillKind::kBits:
      return FillBits(dtype, stream, first_element, out);
    case FillKind::kConstant:
      return FillWith<uint32_t>(stream, first_element, out,
                                [&](int64_t, uint64_t) { return fill.constant; });
    case FillKind::kSigned:
      return FillWith<Fp16>(stream, first_element, out, [&](int64_t, uint64_t random) {
        const float magnitude = fill.center * (1.0f + 0.4f * Uniform(random));
        return ToFp16((random & 1u) != 0 ? -magnitude : magnitude);
      });
    case FillKind::kBell:
      return FillBell(fill, dtype, stream, first_element, out);
    case FillKind::kThree:
      return FillWith<float>(stream, first_element, out, [&](int64_t index, uint64_t random) {
        return kMixScales[static_cast<size_t>(index) % 3] * (1.0f + 0.05f * Uniform(random));
      });
    case FillKind::kFp8Bell:
      return FillWith<uint8_t>(stream, first_element, out, [&](int64_t, uint64_t random) {
        return Fp8Code(RoundToFp8E4m3(fill.spread * Bell(random)));
      });
    case FillKind::kBlockScales:
      return FillWith<float>(stream, first_element, out, [&](int64_t, uint64_t random) {
        const int exponent = fill.exponent - static_cast<int>(random & 1u);
        return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
      });
  }
}

}  // namespace tp2
