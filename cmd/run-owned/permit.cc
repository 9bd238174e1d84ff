#include "cmd/run-owned/permit.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"

namespace tp2::owned {
namespace {

constexpr size_t kMaxPermitBytes = 4096;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM |
                             IN_DELETE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

bool IsSeparator(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f' || c == '=' ||
         c == ':' || c == ',';
}

// The first words of a permit that is not ours, safe to print.
std::string Excerpt(std::string_view text) {
  constexpr size_t kChars = 40;
  std::string excerpt;
  for (const char c : text.substr(0, kChars)) excerpt += c >= ' ' && c <= '~' ? c : ' ';
  while (!excerpt.empty() && excerpt.back() == ' ') excerpt.pop_back();
  return text.size() > kChars ? excerpt + "..." : excerpt;
}

std::string Identity(const struct stat& info) {
  return absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec);
}

PermitReading OpenFailure(int error) {
  errno = error;
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return {PermitState::kNobody, "is missing"};
    case ELOOP:
      return {PermitState::kNobody, "is a symbolic link"};
    case ENXIO:
    case ENODEV:
    case EISDIR:
      return {PermitState::kNobody, "is not a regular file"};
    default:
      return {PermitState::kUnreadable, absl::StrCat("cannot be read: ", ErrnoText())};
  }
}

}  // namespace

bool NamesOwner(std::string_view text, std::string_view name) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin;
    while (end < text.size() && !IsSeparator(text[end])) ++end;
    if (end > begin && text.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

PermitReading ReadPermit(const std::string& path, const std::string& name) {
  const UniqueFd fd(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd.is_open()) return OpenFailure(errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return OpenFailure(errno);
  if (!S_ISREG(info.st_mode)) return {PermitState::kNobody, "is not a regular file"};
  std::string text(kMaxPermitBytes + 1, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return OpenFailure(errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  if (text.size() > kMaxPermitBytes) return {PermitState::kNobody, "is larger than 4 KiB"};
  if (text.find('\0') != std::string::npos) return {PermitState::kNobody, "is not text"};
  if (NamesOwner(text, name)) {
    return {PermitState::kOurs, absl::StrCat("names ", name), Identity(info)};
  }
  const std::string excerpt = Excerpt(text);
  if (excerpt.empty()) return {PermitState::kNobody, "is empty"};
  return {PermitState::kOther, absl::StrCat("does not name ", name, ": '", excerpt, "'")};
}

PermitWatch::PermitWatch(std::string path, std::string name)
    : path_(std::move(path)), name_(std::move(name)) {
  const size_t slash = path_.rfind('/');
  folder_ = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  file_name_ = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  inotify_.Reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_.is_open()) {
    warning_ = absl::StrCat("no events for the permit (", ErrnoText(), "): it is only polled");
    return;
  }
  Rewatch();
}

// Adding a watch again is free for the same directory and follows a path that leads elsewhere now.
void PermitWatch::Rewatch() {
  if (!inotify_.is_open()) return;
  if (::inotify_add_watch(inotify_.get(), folder_.c_str(), kEvents) < 0 && warning_.empty() &&
      errno != ENOENT) {
    warning_ = absl::StrCat("no events for ", folder_, " (", ErrnoText(), "): it is only polled");
  }
}

bool PermitWatch::TakeEvents() {
  alignas(struct inotify_event) char buffer[16384];
  bool concerns_us = false;
  ssize_t got = 0;
  while ((got = ::read(inotify_.get(), buffer, sizeof buffer)) > 0) {
    for (ssize_t offset = 0; offset < got;) {
      struct inotify_event event = {};
      std::memcpy(&event, buffer + offset, sizeof event);
      const char* name = event.len == 0 ? "" : buffer + offset + sizeof event;
      if (*name == '\0' || file_name_ == name) concerns_us = true;
      offset += static_cast<ssize_t>(sizeof event + event.len);
    }
  }
  return concerns_us;
}

std::optional<std::string> PermitWatch::Check(int64_t now_ns) {
  Rewatch();
  const PermitReading reading = ReadPermit(path_, name_);
  due_ns_ = now_ns + kPollMs * kNsPerMs;
  if (reading.state == PermitState::kOurs) {
    nobody_since_ns_.reset();
    negative_since_ns_.reset();
    if (!identity_.empty() && identity_ != reading.identity) has_changed_ = true;
    identity_ = reading.identity;
    return std::nullopt;
  }
  if (!negative_since_ns_.has_value()) negative_since_ns_ = now_ns;
  bool is_withdrawn = reading.state == PermitState::kOther ||
                      now_ns - *negative_since_ns_ > kUnreadableMs * kNsPerMs;
  if (reading.state == PermitState::kNobody) {
    if (!nobody_since_ns_.has_value()) nobody_since_ns_ = now_ns;
    if (now_ns - *nobody_since_ns_ >= kConfirmMs * kNsPerMs) is_withdrawn = true;
  }
  if (is_withdrawn) return absl::StrCat(path_, " ", reading.detail);
  due_ns_ = now_ns + kConfirmMs * kNsPerMs;
  return std::nullopt;
}

bool PermitWatch::TakeChanged() { return std::exchange(has_changed_, false); }

}  // namespace tp2::owned
