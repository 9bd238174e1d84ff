#include "cmd/run-owned/preflight.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cmd/run-owned/permit.h"
#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"

namespace tp2::owned {
namespace {

absl::Status BadFile(const std::string& path, const std::string& expected, const std::string& got,
                     const std::string& next) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   {.what = path, .expected = expected, .got = got, .where = "", .next = next});
}

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, bool appends) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | (appends ? 0 : O_EXCL);
  UniqueFd fd(::open(path.c_str(), flags, 0644));
  if (!fd.is_open()) return BadFile(path, "a new file", ErrnoText(), "check the path");
  return fd;
}

}  // namespace

std::vector<std::string> Cards::Uuids() const {
  std::vector<std::string> uuids;
  for (const telemetry::CardInfo& card : cards) uuids.push_back(card.uuid);
  return uuids;
}

absl::StatusOr<Cards> FindCards(const Options& options) {
  Cards found;
  if (!options.wants_telemetry) {
    for (const std::string& gpu : options.gpus) found.cards.push_back({.uuid = gpu});
    found.warning = "no NVML: nobody has checked that these cards exist";
    return found;
  }
  TP2_ASSIGN_OR_RETURN(telemetry::HelperProcess helper,
                       telemetry::HelperProcess::Start(options.nvml_library));
  TP2_ASSIGN_OR_RETURN(const std::vector<telemetry::CardInfo> present,
                       helper.ReadCards(options.nvml_timeout_ms));
  TP2_ASSIGN_OR_RETURN(found.cards, telemetry::MatchCards(options.gpus, present));
  TP2_RETURN_IF_ERROR(telemetry::CheckPci(found.cards, options.expected_pci));
  found.helper.emplace(std::move(helper));
  return found;
}

absl::Status CheckPermit(const Options& options) {
  if (options.permit_path.empty()) return absl::OkStatus();
  const PermitReading reading = ReadPermit(options.permit_path, options.permit_name);
  if (reading.state == PermitState::kOurs) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable,
                   {.what = absl::StrCat("permit ", options.permit_path),
                    .expected = absl::StrCat("one that names ", options.permit_name),
                    .got = absl::StrCat("it ", reading.detail),
                    .where = "",
                    .next = "ask the coordinator"});
}

absl::Status CheckFiles(const Options& options) {
  for (const std::string& path : {options.log_path, options.telemetry_path, options.summary_path}) {
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0 && !options.appends) {
      return BadFile(path, "no such file yet", "an existing file",
                     "choose another name or give --append");
    }
    const std::string folder = Folder(path);
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
      return BadFile(path, "a folder that can be written", ErrnoText(), "make " + folder);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Files> OpenFiles(const Options& options) {
  Files files;
  TP2_ASSIGN_OR_RETURN(files.log, OpenFile(options.log_path, options.appends));
  if (options.wants_telemetry) {
    TP2_ASSIGN_OR_RETURN(files.telemetry, OpenFile(options.telemetry_path, options.appends));
  }
  return files;
}

}  // namespace tp2::owned
