// Which networks clients may come from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tp2::transport {

class NetworkList {
 public:
  // "10.1.0.0/16", "fd00::/8", or an address alone. Errors: kInvalidArgument for what is neither,
  // and for an address with bits beyond its prefix, which is usually a typing error.
  static absl::StatusOr<NetworkList> Parse(const std::vector<std::string>& networks);

  bool is_empty() const { return networks_.empty(); }
  // `peer` is an address with a port, as Connection::peer() has it. IPv4 addresses in IPv6 clothes
  // (::ffff:10.1.2.3) count as IPv4. False for what is no address.
  bool Contains(std::string_view peer) const;

 private:
  // IPv4 as ::ffff:a.b.c.d, so that there is one kind of address.
  using Address = std::array<uint8_t, 16>;
  struct Network {
    Address address;
    int prefix_bits;
  };
  static bool ParseAddress(const std::string& text, Address* address, bool* is_v4);

  std::vector<Network> networks_;
};

}  // namespace tp2::transport
