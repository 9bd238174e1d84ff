// Whether stores and copies from one card really arrive at another. Capability bits are not enough:
// an IOMMU or a patched driver can drop or corrupt peer writes without an error.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "libcore/device/select.h"

namespace tp2::coll {

inline constexpr int64_t kStartUpLines = 65536;  // 1 MiB each way

// Sends `line_count` random lines from `from` to `to` by kernel stores and by a device copy, and
// compares all of them at the receiver. Peer access must be enabled. A pass is remembered for the
// process by both UUIDs, driver and count. Errors: kDataLoss with the number of wrong lines.
absl::Status CheckPeerData(const device::DeviceInfo& from, const device::DeviceInfo& to,
                           int64_t line_count = kStartUpLines);

}  // namespace tp2::coll
