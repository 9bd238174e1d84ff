// What fault checks share: a paying client whose drafts must not change, strangers that misbehave
// beside it, and what each check found.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cmd/dspark-selftest/checks.h"
#include "cmd/dspark-selftest/twin.h"
#include "libcore/base/clock.h"

namespace tp2::selftest {

// One row of the fault table.
struct Fault {
  std::string name;    // "F4 half-frame-then-silence"
  std::string figure;  // what the number says: "ms until closed"
  // The number; an error says what went wrong. None: `figure` says where the row is shown instead.
  std::function<absl::StatusOr<double>()> run;
};

class FaultBench {
 public:
  // `twin`'s client has a session; the bench opens one slot there and keeps it.
  FaultBench(Connector connect, Twin* twin) : connect_(std::move(connect)), twin_(twin) {}
  absl::Status Begin();
  absl::Status End() { return twin_->Close(payer_); }
  // The paying client's request ends and another begins, at position 0: one that lasted for ever
  // would run into the worker's longest sequence.
  absl::Status RenewPayer();

  Twin& twin() { return *twin_; }
  const EngineInfo& info() { return twin_->engine().info(); }

  // A connection without and with a session.
  absl::StatusOr<std::unique_ptr<client::Client>> Stranger() { return connect_(); }
  absl::StatusOr<std::unique_ptr<client::Client>> Session();
  // A session with one slot of six rows.
  struct Tenant {
    std::unique_ptr<client::Client> client;
    TwinSlot slot;
  };
  absl::StatusOr<Tenant> NewTenant();

  // The paying client STEPs so often: bits must be our engine's. Returns the p50 in milliseconds.
  absl::StatusOr<double> PayerP50(int steps);
  // The same, each time in nanoseconds.
  absl::StatusOr<std::vector<int64_t>> PayerTimes(int steps);

  // Waits until the worker counts so many open slots; returns how long it took in milliseconds.
  absl::StatusOr<double> WaitForOpenSlots(uint32_t count);
  absl::StatusOr<contract::HealthReply> Health();
  // How long until the peer ends the connection; an error when it does not within `limit_ms`.
  absl::StatusOr<double> MsUntilClosed(client::Client* client, int64_t limit_ms);

  int64_t NowNs() const { return clock_.NowNs(); }

 private:
  Connector connect_;
  Twin* twin_;
  TwinSlot payer_;
  SteadyClock clock_;
};

// Raw bytes onto the connection, whole frames or not.
absl::Status SendRaw(client::Client* client, std::span<const std::byte> bytes);

// A frame of this type in the client's session with the next seq, header and body in one piece.
std::vector<std::byte> NextFrame(client::Client* client, contract::Type type,
                                 std::span<const std::byte> body);

// An error unless `holds`.
absl::Status Demand(bool holds, const std::string& what, const std::string& expected,
                    const std::string& got);

// Broken connections and frames; broken requests.
std::vector<Fault> WireFaults(FaultBench* bench, uint64_t seed);
std::vector<Fault> RequestFaults(FaultBench* bench);
// What a client alone cannot do to a worker.
std::vector<Fault> WaivedFaults();

}  // namespace tp2::selftest
