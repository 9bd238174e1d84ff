// The three digests of HELLO, kept apart so that a refusal says something useful:
//   identity   SHA-256 of the checkpoint manifest (Checkpoint::IdentityDigest)
//   config     SHA-256 of sorted `key=value` lines: the drafter's canonical config and the contract
//              settings both sides must share. The model length is not among them: HELLO carries
//              the length the client needs and the worker may have been started for more.
//   numerics   what can change bits but not meaning. Bytes 0-7 are the 64-bit numerics version,
//              little-endian; bytes 8-31 are the first 24 bytes of the SHA-256 of NumericsText.
//              Kernel tables, tp and fusing are not in it, because bits do not depend on them;
//              only when a codebook without portable bits is present do tp, backend and devices
//              count.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/base/digest.h"

namespace tp2::contract {

struct NumericsFacts {
  uint64_t version = 0;
  bool portable_bits = true;
  int tp = 1;
  std::string backend = {};
  std::vector<std::string> device_names = {};
};

// `drafter_lines`: DrafterConfig::Canonical().
std::string ConfigText(std::string_view drafter_lines);
Sha256Digest ConfigDigest(std::string_view drafter_lines);

std::string NumericsText(const NumericsFacts& facts);
Sha256Digest NumericsDigest(const NumericsFacts& facts);
uint64_t NumericsVersionOf(const Sha256Digest& numerics_digest);

}  // namespace tp2::contract
