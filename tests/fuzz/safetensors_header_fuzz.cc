#include <cstdint>
#include <span>

#include "libcore/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  const auto bytes = std::as_bytes(std::span(data, byte_count));
  const auto views = tp2::ParseSafetensors(bytes, "fuzz.safetensors");
  tp2::CheckRefusal(views.status());
  if (!views.ok()) return 0;
  // Accepted views tile the data: no byte twice, none outside.
  size_t covered_bytes = 0;
  unsigned sum = 0;
  for (const tp2::TensorView& view : *views) {
    covered_bytes += view.bytes.size();
    for (const std::byte byte : view.bytes) sum += static_cast<unsigned>(byte);
    if (view.dtype != tp2::DType::kOther) {
      const auto element_bytes = static_cast<int64_t>(tp2::DTypeBytes(view.dtype));
      TP2_CHECK(view.element_count() * element_bytes == static_cast<int64_t>(view.bytes.size()));
    }
  }
  TP2_CHECK(covered_bytes + 8 <= byte_count);
  TP2_CHECK(covered_bytes > 0 || sum == 0);
  return 0;
}
