#include <cstdint>
#include <string_view>

#include "libcore/base/json.h"
#include "tests/fuzz/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  const std::string_view text(reinterpret_cast<const char*>(data), byte_count);
  const auto document = tp2::ParseJson(text, "fuzz.json", {.max_bytes = 1 << 20, .max_depth = 16});
  tp2::CheckRefusal(document.status());
  // What was accepted must be writable again.
  if (document.ok()) (void)document->dump(-1, ' ', true, tp2::Json::error_handler_t::replace);
  return 0;
}
