#include <cstdint>
#include <string_view>

#include "libcore/model/drafter_config.h"
#include "tests/fuzz/fuzz_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count) {
  const std::string_view text(reinterpret_cast<const char*>(data), byte_count);
  const auto config = tp2::ParseDrafterConfig(text, "fuzz/config.json");
  tp2::CheckRefusal(config.status());
  if (config.ok()) {
    // Everything computed from an accepted config stays inside int.
    TP2_CHECK(config->tap_values() > 0 && config->query_values() > 0);
    TP2_CHECK(config->group_inputs() > 0 && config->output_values() > 0);
    TP2_CHECK(config->fake_quant_dims() % config->fake_quant_group() == 0);
    TP2_CHECK(!config->Canonical().empty());
    TP2_CHECK(tp2::ValidateDrafterConfig(*config, "fuzz").ok());
  }
  return 0;
}
