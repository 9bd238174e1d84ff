#include "libcore/contract/all_finite.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libcore/contract/all_finite.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tp2::contract {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr uint16_t kExponent = 0x7F80;
constexpr uint16_t kLowestBit = 0x0080;
constexpr uint16_t kSign = 0x8000;

// The lowest exponent bit, added to an exponent of all ones and to no other, carries into the sign
// bit, which the mask has cleared.
bool FindNoCarry(const uint16_t* values, size_t value_count) {
  const hn::ScalableTag<uint16_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto exponent = hn::Set(d, kExponent);
  const auto lowest_bit = hn::Set(d, kLowestBit);
  const auto carries_of = [&](size_t i) HWY_ATTR {
    return hn::Add(hn::And(hn::LoadU(d, values + i), exponent), lowest_bit);
  };
  // Four at a time, so that no chain waits for itself.
  auto found0 = hn::Zero(d), found1 = found0, found2 = found0, found3 = found0;
  size_t i = 0;
  for (; i + 4 * lanes <= value_count; i += 4 * lanes) {
    found0 = hn::Or(found0, carries_of(i));
    found1 = hn::Or(found1, carries_of(i + lanes));
    found2 = hn::Or(found2, carries_of(i + 2 * lanes));
    found3 = hn::Or(found3, carries_of(i + 3 * lanes));
  }
  const auto found = hn::Or(hn::Or(found0, found1), hn::Or(found2, found3));
  uint16_t rest = 0;
  for (; i < value_count; ++i) {
    rest |= static_cast<uint16_t>((values[i] & kExponent) + kLowestBit);
  }
  const auto signs = hn::And(found, hn::Set(d, kSign));
  return hn::AllTrue(d, hn::Eq(signs, hn::Zero(d))) && (rest & kSign) == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace tp2::contract
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tp2::contract {

HWY_EXPORT(FindNoCarry);

bool AllFinite(std::span<const std::byte> row_area) {
  return HWY_DYNAMIC_DISPATCH(FindNoCarry)(reinterpret_cast<const uint16_t*>(row_area.data()),
                                           row_area.size() / sizeof(uint16_t));
}

}  // namespace tp2::contract
#endif  // HWY_ONCE
