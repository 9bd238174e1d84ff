// Every test of this binary runs with red zones around its device memory and ends with a look at
// them. TP2_RED_ZONES=off for runs under a memory checker.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string_view>

#include "libcore/device/red_zones.h"

namespace tp2 {
namespace {

class RedZoneListener final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    const absl::Status whole = device::RedZones::Check();
    EXPECT_TRUE(whole.ok()) << info.name() << ": " << whole;
  }
};

class RedZoneEnvironment final : public testing::Environment {
  void SetUp() override {
    const char* wish = ::getenv("TP2_RED_ZONES");
    if (wish != nullptr && std::string_view(wish) == "off") return;
    device::RedZones::Enable();
    testing::UnitTest::GetInstance()->listeners().Append(new RedZoneListener);
  }
};

[[maybe_unused]] testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new RedZoneEnvironment);

}  // namespace
}  // namespace tp2
