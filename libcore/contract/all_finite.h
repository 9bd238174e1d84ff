// Whether rows hold numbers only: the one check of a request that reads all of its bytes.
#pragma once

#include <cstddef>
#include <span>

namespace tp2::contract {

// Whether every bf16 value of a row area, which begins at an even address, is finite.
bool AllFinite(std::span<const std::byte> row_area);

}  // namespace tp2::contract
