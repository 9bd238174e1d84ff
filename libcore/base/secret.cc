#include "libcore/base/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/file.h"
#include "libcore/base/status_macros.h"

namespace tp2 {

absl::StatusOr<Secret> Secret::ReadFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return MakeError(
        absl::StatusCode::kDataLoss,
        {.what = "secret file", .expected = "a readable file", .got = ErrnoText(), .where = path});
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, {.what = "secret file",
                                                          .expected = "access for its owner only",
                                                          .got = "access for group or others",
                                                          .where = path,
                                                          .next = "chmod 600 " + path});
  }
  TP2_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, kMaxBytes + 2));
  absl::StatusOr<Secret> secret = FromBytes(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
  OPENSSL_cleanse(text.data(), text.size());
  return secret.ok() ? std::move(secret) : WithContext(secret.status(), path);
}

absl::StatusOr<Secret> Secret::FromBytes(std::string_view bytes) {
  if (bytes.size() >= kMinBytes && bytes.size() <= kMaxBytes) return Secret(std::string(bytes));
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = "secret",
       .expected = std::to_string(kMinBytes) + " to " + std::to_string(kMaxBytes) + " bytes",
       .got = std::to_string(bytes.size()),
       .next = "make one with: openssl rand -hex 32"});
}

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.Wipe(); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  Wipe();
  bytes_ = other.bytes_;
  other.Wipe();
  return *this;
}

Secret::~Secret() { Wipe(); }

void Secret::Wipe() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
  bytes_.clear();
}

Sha256Digest Secret::Mac(std::initializer_list<std::span<const std::byte>> parts) const {
  std::vector<std::byte> message;
  for (const auto& part : parts) message.insert(message.end(), part.begin(), part.end());
  Sha256Digest mac;
  unsigned int mac_bytes = 0;
  TP2_CHECK(HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                 reinterpret_cast<const unsigned char*>(message.data()), message.size(), mac.data(),
                 &mac_bytes) != nullptr);
  TP2_CHECK(mac_bytes == mac.size());
  return mac;
}

bool MacsEqual(const Sha256Digest& a, const Sha256Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tp2
