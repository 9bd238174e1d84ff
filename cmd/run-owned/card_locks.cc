#include "cmd/run-owned/card_locks.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cmd/run-owned/processes.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::owned {
namespace {

constexpr int kAttempts = 3;
constexpr long kNfsMagic = 0x6969;

absl::Status Unusable(const std::string& path, const std::string& got) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = absl::StrCat("lock file ", path),
                    .expected = "a regular file of ours or a place to make one",
                    .got = got,
                    .where = "",
                    .next = "check --lock-dir"});
}

// Reading is enough for flock, and lets lanes of different users share one file.
UniqueFd OpenLock(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), kFlags));
  if (fd.is_open() || errno != ENOENT) return fd;
  fd.Reset(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0644));
  if (!fd.is_open() && errno == EEXIST) fd.Reset(::open(path.c_str(), kFlags));
  return fd;
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Pids that have the file open.
std::vector<pid_t> Openers(const struct stat& wanted) {
  std::vector<pid_t> pids;
  for (const pid_t pid : AllPids()) {
    const std::string folder = absl::StrCat("/proc/", pid, "/fd");
    DIR* fds = ::opendir(folder.c_str());
    if (fds == nullptr) continue;
    while (const struct dirent* entry = ::readdir(fds)) {
      struct stat info = {};
      if (::stat(absl::StrCat(folder, "/", entry->d_name).c_str(), &info) == 0 &&
          IsSameFile(info, wanted)) {
        pids.push_back(pid);
        break;
      }
    }
    ::closedir(fds);
  }
  return pids;
}

// The pid that took the lock, from /proc/locks; 0 when there is none.
pid_t Locker(const struct stat& info) {
  const std::string file =
      absl::StrFormat("%02x:%02x:%d", major(info.st_dev), minor(info.st_dev), info.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advice, access, place;
    pid_t pid = 0;
    words >> number >> kind >> advice >> access >> pid >> place;
    if (kind == "FLOCK" && place == file) return pid;
  }
  return 0;
}

}  // namespace

std::string LockPath(const std::string& folder, const std::string& uuid) {
  return absl::StrCat(folder, "/run-owned-", uuid, ".lock");
}

std::string LockHolder(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  const pid_t locker = Locker(info);
  if (locker == 0) return "";
  const std::vector<pid_t> openers = Openers(info);
  if (openers.empty() || std::find(openers.begin(), openers.end(), locker) != openers.end()) {
    return absl::StrCat("pid ", locker, " (", ProcessName(locker), ")");
  }
  std::string text;
  for (const pid_t pid : openers) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "pid ", pid, " (", ProcessName(pid), ")");
  }
  return absl::StrCat(text, ", which inherited it from pid ", locker);
}

absl::Status CardLocks::TakeOne(const std::string& path, const std::string& ordinal) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    UniqueFd fd = OpenLock(path);
    struct stat held = {};
    struct stat named = {};
    if (!fd.is_open()) return Unusable(path, errno == ELOOP ? "a symbolic link" : ErrnoText());
    if (::fstat(fd.get(), &held) != 0 || !S_ISREG(held.st_mode)) {
      return Unusable(path, "something else");
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return Unusable(path, ErrnoText());
      const std::string holder = LockHolder(path);
      return MakeError(absl::StatusCode::kUnavailable,
                       {.what = absl::StrCat(ordinal, " lock"),
                        .expected = "a free card",
                        .got = holder.empty() ? "an unknown holder" : "held by " + holder,
                        .where = path,
                        .next = "wait for it to end"});
    }
    // Locked, but maybe a file that somebody has unlinked meanwhile: then two could hold "the"
    // lock.
    if (::lstat(path.c_str(), &named) == 0 && IsSameFile(held, named)) {
      struct statfs system = {};
      if (::fstatfs(fd.get(), &system) == 0 && system.f_type == kNfsMagic) {
        warnings_.push_back(absl::StrCat(path, " is on NFS: locks may not reach other hosts"));
      }
      fds_.push_back(std::move(fd));
      return absl::OkStatus();
    }
  }
  return Unusable(path, "a file that is replaced again and again");
}

absl::StatusOr<CardLocks> CardLocks::Take(const std::string& folder,
                                          std::span<const std::string> uuids) {
  std::vector<std::string> ordered(uuids.begin(), uuids.end());
  std::sort(ordered.begin(), ordered.end());
  CardLocks locks;
  for (size_t i = 0; i < ordered.size(); ++i) {
    TP2_RETURN_IF_ERROR(locks.TakeOne(LockPath(folder, ordered[i]), i == 0 ? "first" : "second"));
  }
  return locks;
}

}  // namespace tp2::owned
