#include "libcore/transport/networks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "libcore/base/error.h"
#include "libcore/transport/tcp.h"

namespace tp2::transport {
namespace {

constexpr size_t kV4Offset = 12;  // of an IPv4 address in its IPv6 clothes
constexpr int kV6Bits = 128;
constexpr int kV4Bits = 32;

bool HasBit(const std::array<uint8_t, 16>& address, int bit) {
  return (address[static_cast<size_t>(bit) / 8] >> (7 - bit % 8) & 1) != 0;
}

}  // namespace

bool NetworkList::ParseAddress(const std::string& text, Address* address, bool* is_v4) {
  in_addr v4;
  *is_v4 = ::inet_pton(AF_INET, text.c_str(), &v4) == 1;
  if (*is_v4) {
    address->fill(0);
    (*address)[10] = (*address)[11] = 0xFF;
    std::memcpy(address->data() + kV4Offset, &v4, sizeof(v4));
    return true;
  }
  in6_addr v6;
  if (::inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  std::memcpy(address->data(), &v6, sizeof(v6));
  return true;
}

absl::StatusOr<NetworkList> NetworkList::Parse(const std::vector<std::string>& networks) {
  NetworkList list;
  for (const std::string& text : networks) {
    const auto refuse = [&](const char* expected) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       {.what = "client network", .expected = expected, .got = "'" + text + "'"});
    };
    const size_t slash = std::min(text.find('/'), text.size());
    Network network{};
    bool is_v4 = false;
    if (!ParseAddress(text.substr(0, slash), &network.address, &is_v4)) {
      return refuse("ADDRESS or ADDRESS/PREFIX, as in 10.1.0.0/16");
    }
    int prefix = is_v4 ? kV4Bits : kV6Bits;
    if (slash < text.size()) {
      const char* begin = text.data() + slash + 1;
      const char* end = text.data() + text.size();
      const int longest = prefix;
      const auto [stop, error] = std::from_chars(begin, end, prefix);
      if (error != std::errc() || stop != end || begin == end || prefix < 0 || prefix > longest) {
        return refuse("a prefix from 0 to the bits of the address");
      }
    }
    network.prefix_bits = prefix + (is_v4 ? kV6Bits - kV4Bits : 0);
    for (int bit = network.prefix_bits; bit < kV6Bits; ++bit) {
      if (HasBit(network.address, bit)) return refuse("no bits of the address beyond its prefix");
    }
    list.networks_.push_back(network);
  }
  return list;
}

bool NetworkList::Contains(std::string_view peer) const {
  const absl::StatusOr<TcpAddress> parsed = ParseTcpAddress(peer);
  Address address;
  bool is_v4 = false;
  if (!parsed.ok() || !ParseAddress(parsed->host, &address, &is_v4)) return false;
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    for (int bit = 0; bit < network.prefix_bits; ++bit) {
      if (HasBit(address, bit) != HasBit(network.address, bit)) return false;
    }
    return true;
  });
}

}  // namespace tp2::transport
