// A shared secret: read from a file that only its owner can read, used for HMAC-SHA256, wiped when
// it goes. It cannot be printed, copied into text or compared but through a MAC.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "libcore/base/digest.h"

namespace tp2 {

class Secret {
 public:
  static constexpr size_t kMinBytes = 16;
  static constexpr size_t kMaxBytes = 4096;

  // The whole file without the white space at its end. Errors: kInvalidArgument when the file is
  // open to group or others or its length is out of bounds, kDataLoss when it cannot be read.
  static absl::StatusOr<Secret> ReadFile(const std::string& path);
  // For tests and for callers that got the bytes elsewhere. Errors: kInvalidArgument, as above.
  static absl::StatusOr<Secret> FromBytes(std::string_view bytes);

  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret();

  // HMAC-SHA256 over the parts one after the other.
  Sha256Digest Mac(std::initializer_list<std::span<const std::byte>> parts) const;

 private:
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
  void Wipe();

  std::string bytes_;
};

// Takes the same time wherever the two differ.
bool MacsEqual(const Sha256Digest& a, const Sha256Digest& b);

}  // namespace tp2
