// A folder that appears under its name complete or not at all: files go into a temporary folder
// beside it, Commit puts that in place.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libcore/base/file.h"

namespace tp2 {

// Thread-compatible.
class StagedFolder {
 public:
  // `dir` may be absent or an empty folder. With kReplace it may also be a folder that holds
  // nothing but a checkpoint's files (config.json, model*.safetensors, the index): anything else is
  // somebody's data and refused. Check looks without
  // touching anything. Errors: kInvalidArgument.
  static absl::Status Check(const std::string& dir, IfExists if_exists);
  static absl::StatusOr<StagedFolder> Create(const std::string& dir, IfExists if_exists);

  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&&) = delete;
  ~StagedFolder();  // removes what was not committed

  const std::string& path() const { return temporary_; }

  // One atomic step: the name points at the new folder, then the old one is removed.
  absl::Status Commit();

 private:
  StagedFolder(std::string dir, std::string temporary);

  std::string dir_;
  std::string temporary_;  // empty once committed or moved from
};

}  // namespace tp2
