// Allow-lists of client networks: what parses, and who is in.
#include "libcore/transport/networks.h"

#include <gtest/gtest.h>

namespace tp2::transport {
namespace {

NetworkList Parsed(const std::vector<std::string>& networks) {
  return NetworkList::Parse(networks).value();
}

TEST(NetworkList, HoldsExactlyTheAddressesOfItsNetworks) {
  const NetworkList list = Parsed({"10.1.0.0/16", "192.168.7.9", "fd00:1::/32"});
  EXPECT_TRUE(list.Contains("10.1.0.0:1"));
  EXPECT_TRUE(list.Contains("10.1.255.255:65535"));
  EXPECT_FALSE(list.Contains("10.2.0.0:1"));
  EXPECT_FALSE(list.Contains("10.0.255.255:1"));
  EXPECT_TRUE(list.Contains("192.168.7.9:5"));
  EXPECT_FALSE(list.Contains("192.168.7.8:5"));
  EXPECT_TRUE(list.Contains("[fd00:1:2::3]:9"));
  EXPECT_FALSE(list.Contains("[fd00:2::3]:9"));
}

TEST(NetworkList, TakesIPv4InIPv6ClothesForIPv4) {
  EXPECT_TRUE(Parsed({"10.1.0.0/16"}).Contains("[::ffff:10.1.2.3]:9"));
  EXPECT_FALSE(Parsed({"10.1.0.0/16"}).Contains("[::10.1.2.3]:9"));
}

TEST(NetworkList, AZeroPrefixHoldsOneFamilyOnly) {
  EXPECT_TRUE(Parsed({"0.0.0.0/0"}).Contains("203.0.113.9:1"));
  EXPECT_FALSE(Parsed({"0.0.0.0/0"}).Contains("[2001:db8::1]:1"));
  EXPECT_TRUE(Parsed({"::/0"}).Contains("[2001:db8::1]:1"));
}

TEST(NetworkList, AnEmptyListAndWhatIsNoAddressAreOutside) {
  EXPECT_FALSE(Parsed({}).Contains("127.0.0.1:1"));
  EXPECT_FALSE(Parsed({"0.0.0.0/0"}).Contains("inproc"));
  EXPECT_FALSE(Parsed({"0.0.0.0/0"}).Contains(""));
}

TEST(NetworkList, RefusesWhatIsNoNetwork) {
  for (const char* text : {"", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/-1", "10.1.0.0/8x", "host/8",
                           "10.1.0/16", "fd00::/129", "10.1.0.1/16", "fd00::1/64"}) {
    EXPECT_FALSE(NetworkList::Parse({text}).ok()) << text;
  }
}

}  // namespace
}  // namespace tp2::transport
