#include "libcore/contract/digests.h"

#include <algorithm>
#include <cstring>

#include "libcore/contract/limits.h"

namespace tp2::contract {

std::string ConfigText(std::string_view drafter_lines) {
  std::vector<std::string> lines = {
      "contract.block_rows=" + std::to_string(kBlockRows),
      "contract.row_dtype=bf16",
      "contract.rows_per_message=" + std::to_string(kMaxRowsPerMessage),
      "contract.version=" + std::to_string(kVersion),
  };
  while (!drafter_lines.empty()) {
    const size_t end = std::min(drafter_lines.find('\n'), drafter_lines.size());
    if (end > 0) lines.emplace_back(drafter_lines.substr(0, end));
    drafter_lines.remove_prefix(std::min(end + 1, drafter_lines.size()));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Sha256Digest ConfigDigest(std::string_view drafter_lines) {
  return Sha256(ConfigText(drafter_lines));
}

std::string NumericsText(const NumericsFacts& facts) {
  std::string text = "numerics_version=" + Hex64(facts.version) + "\n";
  text += facts.portable_bits ? "portable_bits=true\n" : "portable_bits=false\n";
  if (facts.portable_bits) return text;
  text += "backend=" + facts.backend + "\ntp=" + std::to_string(facts.tp) + "\n";
  for (const std::string& name : facts.device_names) text += "device=" + name + "\n";
  return text;
}

Sha256Digest NumericsDigest(const NumericsFacts& facts) {
  const Sha256Digest hash = Sha256(NumericsText(facts));
  Sha256Digest digest;
  std::memcpy(digest.data(), &facts.version, sizeof(facts.version));
  std::copy_n(hash.begin(), digest.size() - sizeof(facts.version),
              digest.begin() + sizeof(facts.version));
  return digest;
}

uint64_t NumericsVersionOf(const Sha256Digest& numerics_digest) {
  uint64_t version;
  std::memcpy(&version, numerics_digest.data(), sizeof(version));
  return version;
}

}  // namespace tp2::contract
