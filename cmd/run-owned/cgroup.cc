#include "cmd/run-owned/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/unique_fd.h"
#include "libcore/telemetry/sample.h"

namespace tp2::owned {
namespace {

// More than any job of ours needs, and few enough that a fork bomb leaves the machine usable.
constexpr char kMaxPids[] = "4096";

absl::Status Unavailable(const std::string& got) {
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = "control group", .expected = "one of our own", .got = got});
}

bool Write(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.is_open() &&
         ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Where the version 2 hierarchy is mounted; empty when it is not.
std::string MountPoint() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string id, parent, device, root, place;
    words >> id >> parent >> device >> root >> place;
    return place;
  }
  return "";
}

// The group this process is in, below the mount point; empty when there is none.
std::string OwnGroup() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "";
}

}  // namespace

absl::StatusOr<Cgroup> Cgroup::Create() {
  const std::string mount = MountPoint();
  const std::string own = OwnGroup();
  if (mount.empty() || own.empty()) return Unavailable("no version 2 hierarchy");
  const std::string path = absl::StrCat(mount, own == "/" ? "" : own, "/run-owned-", ::getpid(),
                                        "-", telemetry::BootNowNs());
  if (::mkdir(path.c_str(), 0755) != 0) return Unavailable(ErrnoText());
  Cgroup group(path);
  if (::access((path + "/cgroup.kill").c_str(), W_OK) != 0) {
    group.Remove();
    return Unavailable("no cgroup.kill");
  }
  Write(path + "/pids.max", kMaxPids);  // only where the controller is delegated
  return group;
}

bool Cgroup::Enter() const { return Write(path_ + "/cgroup.procs", "0"); }

std::vector<pid_t> Cgroup::Pids() const {
  std::vector<pid_t> pids;
  std::ifstream file(path_ + "/cgroup.procs");
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

bool Cgroup::Kill() const { return Write(path_ + "/cgroup.kill", "1"); }

bool Cgroup::IsPopulated() const {
  std::ifstream events(path_ + "/cgroup.events");
  std::string key;
  for (int value = 0; events >> key >> value;) {
    if (key == "populated") return value != 0;
  }
  return false;
}

bool Cgroup::Remove() const {
  std::error_code error;
  std::vector<std::string> folders = {path_};
  for (auto entry = std::filesystem::recursive_directory_iterator(path_, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_directory(error)) folders.push_back(entry->path());
  }
  // Parents come before their children in the list.
  bool is_removed = true;
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    is_removed = ::rmdir(folder->c_str()) == 0 || errno == ENOENT;
  }
  return is_removed;
}

}  // namespace tp2::owned
