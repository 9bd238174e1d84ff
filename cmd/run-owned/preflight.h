// Everything that is checked before a lock is taken or a process started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cmd/run-owned/options.h"
#include "libcore/base/unique_fd.h"
#include "libcore/telemetry/cards.h"
#include "libcore/telemetry/helper_process.h"

namespace tp2::owned {

struct Cards {
  std::vector<telemetry::CardInfo> cards;               // rank by rank
  std::optional<telemetry::HelperProcess> helper = {};  // absent with --no-telemetry
  std::string warning = {};

  std::vector<std::string> Uuids() const;
};

// Forks the telemetry helper. Errors: kUnavailable and kDeadlineExceeded with the reason.
absl::StatusOr<Cards> FindCards(const Options& options);

// Errors: kUnavailable when the permit does not name us.
absl::Status CheckPermit(const Options& options);

// Whether the files can be made. Errors: kInvalidArgument.
absl::Status CheckFiles(const Options& options);

struct Files {
  UniqueFd log;
  UniqueFd telemetry;
};
// Makes them; never over existing ones, except to go on in them when asked to.
absl::StatusOr<Files> OpenFiles(const Options& options);

}  // namespace tp2::owned
