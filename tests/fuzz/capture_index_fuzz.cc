#include <cstdint>
#include <string_view>

#include "libcore/capture/capture_index.h"
#include "tests/fuzz/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  const std::string_view text(reinterpret_cast<const char*>(data), byte_count);
  const auto index = tp2::ParseCaptureIndex(text, "fuzz.json");
  tp2::CheckRefusal(index.status());
  if (!index.ok()) return 0;
  // What was accepted survives being written and read.
  const auto again = tp2::ParseCaptureIndex(tp2::CaptureIndexText(*index), "again.json");
  TP2_CHECK(again.ok());
  TP2_CHECK(tp2::CaptureIndexText(*again) == tp2::CaptureIndexText(*index));
  return 0;
}
