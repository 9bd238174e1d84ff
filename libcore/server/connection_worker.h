// One client connection: a thread that receives, answers what needs no engine (HEALTH, PING, BUSY,
// broken frames), takes everything else into the engine itself when the engine is free, hands it to
// the controller otherwise, and sends the replies.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "libcore/base/clock.h"
#include "libcore/base/digest.h"
#include "libcore/server/health.h"
#include "libcore/server/reply.h"
#include "libcore/server/spin_budget.h"
#include "libcore/server/statistics.h"
#include "libcore/server/step_service.h"
#include "libcore/transport/transport.h"

namespace tp2::server {

class ConnectionWorker {
 public:
  struct Options {
    int64_t idle_close_ms = 60'000;
    int64_t send_timeout_ms = 3'000;
    int64_t hello_ms = 5'000;      // from the connect to a session
    bool requires_secret = false;  // then HEALTH and PING need a session too
    // After a frame of a client with an open slot its next one is polled for so long, if the budget
    // allows: a thread that sleeps costs a STEP the time to wake it.
    int64_t spin_ms = 0;
    SpinBudget* spin_budget = nullptr;  // outlives the worker
  };
  // Called from the worker's thread at any time until Retire.
  struct Hooks {
    // Calls ServeHere and returns true, or returns false when the engine is taken.
    std::function<bool(ConnectionWorker*)> try_serve;
    // StepService::Settle.
    std::function<void(Session*)> settle;
    // Hands this worker to the controller, which calls Serve or, once `is_gone()`, Retire.
    std::function<void(ConnectionWorker*)> post;
  };

  ConnectionWorker(std::unique_ptr<transport::Connection> connection, const Options& options,
                   const Clock* clock, const Health* health, Statistics* statistics, Hooks hooks);
  // Retire must have been called.
  ~ConnectionWorker();
  ConnectionWorker(const ConnectionWorker&) = delete;
  ConnectionWorker& operator=(const ConnectionWorker&) = delete;

  // Controller side.
  bool is_gone() const { return is_gone_.load(); }
  void Serve(StepService* service);   // answers the posted request
  void Retire(StepService* service);  // ends the session; the thread then ends
  // The thread sends what is owed, then posts itself as gone.
  void RequestStop();
  // While the worker's own thread is in the engine for long: answers what has arrived, so that
  // HEALTH overtakes. Does not wait for the peer.
  void Attend();

  // Worker's thread, from try_serve, with the engine to itself.
  void ServeHere(StepService* service);

  // True once Retire was called and the thread needs no more than a join.
  bool is_retired() const { return is_retired_.load(); }

 private:
  // HashBody of a frame, most of it computed while the body arrived.
  class BodyHash final : public transport::BodyObserver {
   public:
    void BeginFrame() override;
    void See(std::span<const std::byte> bytes) override;
    // Of the frame that was received last.
    uint64_t Of(std::span<const std::byte> body) const;

   private:
    Xxh3 hash_;
    size_t seen_bytes_ = 0;
  };

  void Run();
  void Answer(StepService* service);
  transport::Received ReceiveNext();
  int64_t SpinLeftMs() const;
  // Frames that came while a request was under way; whoever reads them holds io_mutex_.
  void AnswerArrived();
  // Each returns false when the connection is to end.
  bool OnReceived(const transport::Received& received);
  bool OnFrame(std::span<std::byte> frame);
  void TakeRequest(std::span<std::byte> frame, const ServiceRequest& request);
  void OnBadHeader(std::span<const std::byte> frame);
  bool SendOwedReply();
  bool SendNow(const contract::FrameHeader& request, ReplyFrame* reply, int64_t arrival_ns);
  bool Send(const ReplyFrame& reply);
  void WaitForReply();
  int64_t IdleLeftMs() const;

  BodyHash body_hash_;  // guarded by io_mutex_
  std::unique_ptr<transport::Connection> connection_;
  const Options options_;
  const Clock* clock_;
  const Health* health_;
  Statistics* statistics_;
  const Hooks hooks_;

  // The thread's all the time but for its own visits to the engine: who holds it receives and
  // sends.
  std::mutex io_mutex_;
  std::span<std::byte> request_frame_;  // guarded by io_mutex_
  bool is_outstanding_ = false;         // guarded by io_mutex_
  bool is_up_ = true;                   // guarded by io_mutex_
  std::string end_reason_;              // guarded by io_mutex_
  int64_t send_timeout_ms_ = 0;         // guarded by io_mutex_
  int64_t last_activity_ns_ = 0;        // guarded by io_mutex_
  int64_t begin_ns_ = 0;                // thread only
  bool is_bound_ = false;               // thread only; the engine knows the thread

  // The request under way: written by the thread, read by whoever serves it.
  ServiceRequest request_;

  Session session_;  // of whoever has the engine
  std::atomic<uint64_t> session_id_{0};
  std::atomic<bool> has_slots_{false};
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> is_gone_{false};
  std::atomic<bool> is_retired_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reply_ready_ = false;  // guarded by mutex_
  ReplyFrame reply_;             // the server's until is_reply_ready_, then the thread's

  std::thread thread_;  // last: everything above exists when it starts
};

}  // namespace tp2::server
