// Files: read-only maps, bounded reads, and writes that are never seen half done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/unique_fd.h"

namespace tp2 {

// A whole regular file mapped read-only. Views into bytes() live as long as the map.
// Thread-compatible.
class MappedFile {
 public:
  // Errors: kDataLoss when the file is missing, unreadable, not a regular file or empty.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// The whole text of a small file. Errors: kDataLoss when it is missing, unreadable or larger than
// max_bytes.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

enum class IfExists { kRefuse, kReplace };

// A file that appears under its name complete or not at all: bytes go to a temporary file beside
// it, Commit syncs and renames; a writer that goes away without Commit leaves nothing behind.
// Thread-compatible.
class AtomicFileWriter {
 public:
  // kRefuse: kInvalidArgument when `path` exists, now or at Commit.
  static absl::StatusOr<AtomicFileWriter> Create(const std::string& path, IfExists if_exists);

  AtomicFileWriter(AtomicFileWriter&&) noexcept = default;
  AtomicFileWriter& operator=(AtomicFileWriter&&) noexcept = default;
  ~AtomicFileWriter();

  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(std::string_view text);
  absl::Status Commit();

 private:
  AtomicFileWriter(std::string path, std::string temporary, UniqueFd fd, IfExists if_exists);

  std::string path_;
  std::string temporary_;
  UniqueFd fd_;
  IfExists if_exists_;
};

// One-call form of AtomicFileWriter.
absl::Status WriteFileAtomically(const std::string& path, std::string_view text,
                                 IfExists if_exists);

}  // namespace tp2
