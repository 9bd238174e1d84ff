#include "libcore/base/digest.h"

#include <openssl/evp.h>
#if defined(__x86_64__)
// The same functions, with the widest vectors of the machine that runs them. Debian's shared object
// has them, its archive of the library does not.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "libcore/base/check.h"

namespace tp2 {

struct Xxh3::State {
  State() : xxh(XXH3_createState()) {
    TP2_CHECK(xxh != nullptr);
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3::Finish() const { return XXH3_64bits_digest(state_->xxh); }

uint64_t Xxh3::Of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Sha256Digest Sha256(std::string_view text) {
  Sha256Digest digest;
  unsigned int digest_bytes = 0;
  TP2_CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &digest_bytes, EVP_sha256(),
                       nullptr) == 1);
  TP2_CHECK(digest_bytes == digest.size());
  return digest;
}

std::string Hex64(uint64_t value) { return absl::StrFormat("%016x", value); }

std::string Hex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace tp2
