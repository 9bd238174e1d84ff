#include <cstdint>
#include <string_view>

#include "libcore/tuning/kernel_table.h"
#include "tests/fuzz/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  const std::string_view text(reinterpret_cast<const char*>(data), byte_count);
  const auto table = tp2::tuning::ParseKernelTable(text, "fuzz.json");
  tp2::CheckRefusal(table.status());
  if (!table.ok()) return 0;
  // What was accepted survives being written and read.
  const auto again = tp2::tuning::ParseKernelTable(table->ToText(), "again.json");
  TP2_CHECK(again.ok());
  TP2_CHECK(again->ToText() == table->ToText());
  return 0;
}
