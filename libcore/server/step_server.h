// The worker process between its sockets and its engine: one acceptor thread per listener, one
// thread per connection, and the controller, the thread that calls Run.
//
// One thread at a time has the engine. A connection's thread that finds it free takes its request
// there itself, because handing it over would cost a STEP two wake-ups; requests that find it taken
// queue for the controller, and as long as any does nobody overtakes them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libcore/server/connection_worker.h"
#include "libcore/server/step_service.h"
#include "libcore/server/turn.h"
#include "libcore/transport/networks.h"
#include "libcore/transport/transport.h"

namespace tp2::server {

struct ServerOptions {
  ServiceOptions service = {};
  int max_connections = 64;
  int64_t drain_ms = 2'000;  // how long a drain waits for open slots
  int64_t send_timeout_ms = 3'000;
  int64_t frame_timeout_ms = 2'000;  // from a frame's first byte to its last
  int64_t hello_ms = 5'000;          // from the connect to a session
  // A connection with an open slot is polled for so long after its last frame, by at most so many
  // threads; 0: never.
  int64_t spin_ms = 0;
  int spin_threads = SpinBudget::Default();
  // Connections that a listener brings must come from here; empty: from anywhere.
  transport::NetworkList allowed_clients = {};
  // When no STEP succeeded for so long, one of our own is run (StepService::RunCanary); 0: never.
  int64_t canary_ms = 0;
  // Called by the STEP loop, at least 20 times a second unless a STEP takes longer.
  std::function<void()> tick = {};
};

enum class ServeEnd {
  kDrained,
  kTooManyFailures,  // failures in a row reached the limit
  kEngineLost,       // the engine cannot be used again in this process
};

class StepServer {
 public:
  // `engine` and `clock` outlive the server.
  StepServer(StepEngine* engine, const ServerOptions& options, const Clock* clock);
  // Run must have returned, or never been called.
  ~StepServer();

  // What a server's connections accept.
  static transport::FrameRule RequestRule(const ServerOptions& options);

  // Any thread, before or while Run runs.
  void Listen(std::unique_ptr<transport::Listener> listener);
  void Adopt(std::unique_ptr<transport::Connection> connection);

  // One canary before the first client: an engine that cannot draft must not be offered.
  // Errors: kAborted.
  absl::Status CheckEngine();

  // Serves until a drain is complete or the engine failed; no thread is left when it returns.
  ServeEnd Run();

  // From any thread. The first call refuses new slots and waits for the open ones up to drain_ms;
  // the second does not wait.
  void BeginDrain();

  // From any thread.
  contract::HealthReply health() const { return service_.health().Snapshot(); }
  Counts counts() const { return service_.statistics().Snapshot(); }
  std::vector<uint32_t> SortedStepTimes() const { return service_.health().SortedStepTimes(); }
  const TraceRing& trace() const { return service_.trace(); }
  std::string MetricsText() const;
  // Why no client should be sent here; empty when one should.
  std::string NotReadyReason() const;
  int64_t loop_age_ms() const { return (clock_->NowNs() - loop_ns_.load()) / 1'000'000; }
  const contract::WorkerLimits& limits() const { return service_.limits(); }

 private:
  // One header that says why, then the end of the connection.
  void Refuse(transport::Connection* connection, contract::Code code);
  void AcceptLoop(transport::Listener* listener);
  // Called by a connection's thread: see ConnectionWorker::Hooks.
  bool TryServe(ConnectionWorker* worker);
  void Post(ConnectionWorker* worker);
  // The next worker with something to do; null when `wait_ms` passed or a drain call came in.
  void WaitForWork(int64_t wait_ms);
  ConnectionWorker* NextWorker();
  // The controller's turn with the engine. While another thread is in there, whose connection then
  // has nobody to answer it, the controller does.
  std::unique_lock<Turn> TakeTurn();
  // When nobody has asked for a while; the controller's work for the engine.
  void UseIdleGap();
  // Whether Run ends; the caller has the turn.
  bool IsOver();
  void Tick();
  void ServeOne(ConnectionWorker* worker);
  void StopListeners();
  void StopConnections();
  // Forgets connections whose thread is done; workers_mutex_ is held.
  void ReapLocked();

  const ServerOptions options_;
  const Clock* clock_;
  StepService service_;
  std::atomic<int64_t> loop_ns_{0};  // when the STEP loop last moved
  LogLimit refusal_log_;
  SpinBudget spin_budget_;

  // Held by whoever uses service_ and with it the engine.
  Turn turn_;
  std::atomic<bool> is_turn_wanted_{false};          // by the controller, for too long already
  std::atomic<ConnectionWorker*> visitor_{nullptr};  // whose own thread has the turn
  std::atomic<int64_t> last_served_ns_{0};
  int64_t drain_end_ns_ = 0;  // controller only

  std::mutex queue_mutex_;
  std::condition_variable queue_changed_;
  std::deque<ConnectionWorker*> queue_;  // guarded by queue_mutex_
  int drain_calls_ = 0;                  // guarded by queue_mutex_

  std::mutex workers_mutex_;
  std::vector<std::unique_ptr<ConnectionWorker>> workers_;       // guarded by workers_mutex_
  std::vector<std::unique_ptr<transport::Listener>> listeners_;  // guarded by workers_mutex_
  std::vector<std::thread> acceptors_;                           // guarded by workers_mutex_
  bool is_closed_ = false;                                       // guarded by workers_mutex_
};

}  // namespace tp2::server
