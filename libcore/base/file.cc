#include "libcore/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

absl::Status Unreadable(const std::string& path, const std::string& got) {
  return MakeError(absl::StatusCode::kDataLoss, {.what = path,
                                                 .expected = "a readable file",
                                                 .got = got,
                                                 .where = "",
                                                 .next = "check the path and its permissions"});
}

std::string Errno(const char* call) { return absl::StrCat(call, ": ", ErrnoText()); }

absl::StatusOr<UniqueFd> OpenRegular(const std::string& path, uint64_t* file_bytes) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang; it has no effect on regular files.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return Unreadable(path, ErrnoText());
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return Unreadable(path, Errno("fstat"));
  if (!S_ISREG(info.st_mode)) return Unreadable(path, "not a regular file");
  *file_bytes = static_cast<uint64_t>(info.st_size);
  return fd;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  uint64_t file_bytes = 0;
  TP2_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, &file_bytes));
  if (file_bytes == 0) return Unreadable(path, "an empty file");
  void* address = ::mmap(nullptr, file_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return Unreadable(path, Errno("mmap"));
  MappedFile file;
  file.path_ = path;
  file.bytes_ = {static_cast<const std::byte*>(address), file_bytes};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  uint64_t file_bytes = 0;
  TP2_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, &file_bytes));
  if (file_bytes > max_bytes) {
    return Unreadable(path, absl::StrCat(file_bytes, " bytes, more than the limit of ", max_bytes));
  }
  std::string text(file_bytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unreadable(path, Errno("read"));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

namespace {

absl::Status Unwritable(const std::string& path, const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = path,
                    .expected = "a writable place",
                    .got = got,
                    .where = "",
                    .next = "check the folder, its permissions and the free space"});
}

absl::Status AlreadyThere(const std::string& path) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = path,
                    .expected = "no such file yet",
                    .got = "an existing file",
                    .where = "",
                    .next = "choose another name or remove it first"});
}

}  // namespace

AtomicFileWriter::AtomicFileWriter(std::string path, std::string temporary, UniqueFd fd,
                                   IfExists if_exists)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      fd_(std::move(fd)),
      if_exists_(if_exists) {}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Create(const std::string& path,
                                                          IfExists if_exists) {
  if (if_exists == IfExists::kRefuse && ::access(path.c_str(), F_OK) == 0)
    return AlreadyThere(path);
  std::string temporary = absl::StrCat(path, ".tmp.XXXXXX");
  UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.is_open()) return Unwritable(path, ErrnoText());
  if (::fchmod(fd.get(), 0644) != 0) {
    const absl::Status status = Unwritable(path, Errno("fchmod"));
    ::unlink(temporary.c_str());
    return status;
  }
  return AtomicFileWriter(path, std::move(temporary), std::move(fd), if_exists);
}

AtomicFileWriter::~AtomicFileWriter() {
  if (fd_.is_open()) ::unlink(temporary_.c_str());
}

absl::Status AtomicFileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Unwritable(path_, Errno("write"));
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Append(std::string_view text) {
  return Append(std::as_bytes(std::span(text.data(), text.size())));
}

absl::Status AtomicFileWriter::Commit() {
  if (::fsync(fd_.get()) != 0) return Unwritable(path_, Errno("fsync"));
  // link() refuses an existing name, rename() replaces it: the check and the act are one system
  // call either way.
  const int done = if_exists_ == IfExists::kRefuse ? ::link(temporary_.c_str(), path_.c_str())
                                                   : ::rename(temporary_.c_str(), path_.c_str());
  if (done != 0) return errno == EEXIST ? AlreadyThere(path_) : Unwritable(path_, ErrnoText());
  if (if_exists_ == IfExists::kRefuse) ::unlink(temporary_.c_str());
  fd_.Reset();
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view text,
                                 IfExists if_exists) {
  TP2_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path, if_exists));
  TP2_RETURN_IF_ERROR(writer.Append(text));
  return writer.Commit();
}

}  // namespace tp2
