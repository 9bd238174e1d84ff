// The contract's promises as checks by name, each against a running worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cmd/dspark-selftest/twin.h"

namespace tp2::selftest {

// A new connection to the worker, HELLO not said.
using Connector = std::function<absl::StatusOr<std::unique_ptr<client::Client>>()>;

struct Check {
  std::string name;
  std::function<absl::Status()> run;  // an error says what differed
};

// HELLO is refused by name when identity or version differ.
std::vector<Check> RefusalChecks(const Connector& connect, const EngineInfo& info);
// HELLO is refused by name when the config differs; the identity must be the worker's.
std::vector<Check> ConfigChecks(const Connector& connect, const EngineInfo& info);

// Says HELLO and compares every digest with ours. Errors: what differs, local and worker.
absl::Status SayHello(client::Client& client, const EngineInfo& info);

// Everything that needs a session. The worker must have no slot open.
std::vector<Check> SessionChecks(Twin* twin, int rounds, uint64_t seed);

}  // namespace tp2::selftest
