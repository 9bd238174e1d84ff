#include "libcore/checkpoint/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/shard_set.h"

namespace tp2 {
namespace {

namespace fs = std::filesystem;

absl::Status Refuse(const std::string& dir, const std::string& expected, const std::string& got,
                    const std::string& next) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = dir, .expected = expected, .got = got, .where = "", .next = next});
}

bool IsCheckpointFile(const fs::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_regular_file(error) || entry.is_symlink(error)) return false;
  const std::string name = entry.path().filename().string();
  return name == "config.json" || name == kIndexFile ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

// Whether `dir` may be replaced by a new checkpoint.
absl::Status CheckTarget(const std::string& dir, IfExists if_exists) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(dir, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (status.type() != fs::file_type::directory) {
    return Refuse(dir, "a folder or nothing", "something else", "choose another name");
  }
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (if_exists == IfExists::kRefuse) {
      return Refuse(dir, "no such folder yet, or an empty one", "a folder with files",
                    "choose another name or replace it with --force");
    }
    if (!IsCheckpointFile(*it)) {
      return Refuse(dir, "a folder with nothing but a checkpoint",
                    absl::StrCat("also ", it->path().filename().string()),
                    "choose another name; --force replaces only checkpoints");
    }
  }
  if (error) return Refuse(dir, "a readable folder", error.message(), "check its permissions");
  return absl::OkStatus();
}

std::string WithoutTrailingSlashes(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

}  // namespace

StagedFolder::StagedFolder(std::string dir, std::string temporary)
    : dir_(std::move(dir)), temporary_(std::move(temporary)) {}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : dir_(std::move(other.dir_)), temporary_(std::exchange(other.temporary_, {})) {}

absl::Status StagedFolder::Check(const std::string& dir, IfExists if_exists) {
  return CheckTarget(WithoutTrailingSlashes(dir), if_exists);
}

absl::StatusOr<StagedFolder> StagedFolder::Create(const std::string& dir, IfExists if_exists) {
  std::string trimmed = WithoutTrailingSlashes(dir);
  TP2_RETURN_IF_ERROR(CheckTarget(trimmed, if_exists));
  std::string temporary = absl::StrCat(trimmed, ".tmp.XXXXXX");
  if (::mkdtemp(temporary.data()) == nullptr || ::chmod(temporary.c_str(), 0755) != 0) {
    return Refuse(trimmed, "a place for a new folder", std::strerror(errno),
                  "check the path and its permissions");
  }
  return StagedFolder(std::move(trimmed), std::move(temporary));
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

absl::Status StagedFolder::Commit() {
  // rename() replaces an absent or empty folder, the exchange a full one; each is one step.
  if (::rename(temporary_.c_str(), dir_.c_str()) == 0) {
    temporary_.clear();
    return absl::OkStatus();
  }
  if (errno == ENOTEMPTY || errno == EEXIST) {
    TP2_RETURN_IF_ERROR(CheckTarget(dir_, IfExists::kReplace));
    // The old folder ends up under the temporary name, where the destructor removes it.
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, dir_.c_str(), RENAME_EXCHANGE) == 0) {
      return absl::OkStatus();
    }
  }
  return Refuse(dir_, "a place for the new folder", std::strerror(errno),
                "check the path and its permissions");
}

}  // namespace tp2
