#include "libcore/server/step_server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/contract/frame.h"

namespace tp2::server {

StepServer::StepServer(StepEngine* engine, const ServerOptions& options, const Clock* clock)
    : options_(options),
      clock_(clock),
      service_(engine, options.service, clock),
      refusal_log_(clock) {
  loop_ns_.store(clock->NowNs());
}

StepServer::~StepServer() {
  StopListeners();
  StopConnections();
}

transport::FrameRule StepServer::RequestRule(const ServerOptions& options) {
  return {.header_bytes = contract::kHeaderBytes,
          .max_body_bytes = contract::kMaxBodyBytes,
          .sizer = contract::RequestBodyBytes,
          .frame_timeout_ms = options.frame_timeout_ms};
}

void StepServer::Listen(std::unique_ptr<transport::Listener> listener) {
  const std::lock_guard lock(workers_mutex_);
  if (is_closed_) return;
  transport::Listener* raw = listener.get();
  listeners_.push_back(std::move(listener));
  acceptors_.emplace_back([this, raw] { AcceptLoop(raw); });
}

void StepServer::AcceptLoop(transport::Listener* listener) {
  while (true) {
    absl::StatusOr<std::unique_ptr<transport::Connection>> connection = listener->Accept(-1);
    if (!connection.ok()) {
      // Out of descriptors, most likely: serving goes on, and some may come back.
      spdlog::warn("{}", std::string(connection.status().message()));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (*connection == nullptr) return;
    if (!options_.allowed_clients.is_empty() &&
        !options_.allowed_clients.Contains((*connection)->peer())) {
      Refuse(connection->get(), contract::Code::kNotAuthorized);
      continue;
    }
    Adopt(std::move(connection).value());
  }
}

void StepServer::Refuse(transport::Connection* connection, contract::Code code) {
  if (const std::optional<int64_t> unsaid = refusal_log_.Pass()) {
    spdlog::warn("connection {} refused: {} ({} more unsaid)", connection->peer(),
                 contract::CodeName(code), *unsaid);
  }
  service_.statistics().NoteRefused(code);
  ReplyFrame reply;
  reply.Refuse(code);
  contract::FrameHeader hello;  // which every client says first
  hello.type = static_cast<uint16_t>(contract::Type::kHello);
  FinishReply(hello, {}, &reply);
  // An empty socket buffer takes a header at once; whoever has none to take it goes without.
  (void)connection->Send(reply.header(), {}, 0);
  connection->Shutdown();
}

void StepServer::Adopt(std::unique_ptr<transport::Connection> connection) {
  const std::lock_guard lock(workers_mutex_);
  ReapLocked();
  if (is_closed_) return;
  if (static_cast<int>(workers_.size()) >= options_.max_connections) {
    return Refuse(connection.get(), contract::Code::kTooManyConnections);
  }
  spdlog::info("connection {} accepted", connection->peer());
  service_.statistics().NoteAccepted();
  workers_.push_back(std::make_unique<ConnectionWorker>(
      std::move(connection),
      ConnectionWorker::Options{.idle_close_ms = options_.service.idle_close_ms,
                                .send_timeout_ms = options_.send_timeout_ms,
                                .hello_ms = options_.hello_ms,
                                .requires_secret = options_.service.secret != nullptr},
      clock_, &service_.health(), &service_.statistics(),
      [this](ConnectionWorker* worker) { Post(worker); }));
}

void StepServer::ReapLocked() {
  std::erase_if(workers_, [](const auto& worker) { return worker->is_retired(); });
}

void StepServer::Post(ConnectionWorker* worker) {
  const std::lock_guard lock(queue_mutex_);
  queue_.push_back(worker);
  queue_changed_.notify_one();
}

ConnectionWorker* StepServer::NextWorker(int64_t wait_ms) {
  std::unique_lock lock(queue_mutex_);
  const int calls_before = drain_calls_;
  queue_changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                          [&] { return !queue_.empty() || drain_calls_ != calls_before; });
  if (queue_.empty()) return nullptr;
  ConnectionWorker* worker = queue_.front();
  queue_.pop_front();
  return worker;
}

void StepServer::ServeOne(ConnectionWorker* worker) {
  if (worker->is_gone()) {
    worker->Retire(&service_);
  } else {
    worker->Serve(&service_);
  }
}

ServeEnd StepServer::Run() {
  // Long enough to cost nothing, short enough to notice the end of a drain in time.
  constexpr int64_t kTickMs = 50;
  int64_t drain_end_ns = 0;
  while (!service_.must_exit()) {
    if (ConnectionWorker* worker = NextWorker(kTickMs)) ServeOne(worker);
    Tick();
    const std::lock_guard lock(queue_mutex_);
    if (drain_calls_ == 0) continue;
    if (drain_end_ns == 0) {
      drain_end_ns = clock_->NowNs() + options_.drain_ms * 1'000'000;
      service_.health().BeginDrain();
      spdlog::info("draining: {} slots open", service_.open_slots());
    }
    const bool is_over = drain_calls_ > 1 || clock_->NowNs() >= drain_end_ns;
    if (queue_.empty() && (service_.open_slots() == 0 || is_over)) break;
  }
  StopListeners();
  StopConnections();
  if (service_.is_engine_lost()) return ServeEnd::kEngineLost;
  return service_.must_exit() ? ServeEnd::kTooManyFailures : ServeEnd::kDrained;
}

void StepServer::Tick() {
  loop_ns_.store(clock_->NowNs());
  {
    // Descriptors of those who left are not kept until somebody comes.
    const std::lock_guard lock(workers_mutex_);
    ReapLocked();
  }
  if (options_.tick) options_.tick();
  if (options_.canary_ms <= 0 || service_.health().is_draining()) return;
  if (service_.health().IsOlderThan(options_.canary_ms)) (void)service_.RunCanary();
}

absl::Status StepServer::CheckEngine() {
  (void)service_.RunCanary();
  const contract::HealthReply reply = health();
  if (reply.failures_in_a_row == 0) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kAborted,
      {.what = "first STEP of the engine", .expected = "drafts", .got = reply.last_error});
}

std::string StepServer::MetricsText() const {
  return service_.metrics().Text(health(), counts(), service_.limits());
}

std::string StepServer::NotReadyReason() const {
  const contract::HealthReply reply = health();
  const bool takes_clients = reply.state == contract::WorkerState::kReady ||
                             reply.state == contract::WorkerState::kDegraded;
  if (!takes_clients) return std::string("state ") + contract::WorkerStateName(reply.state);
  // With every slot taken there is no room for a canary, and no room for a client either.
  if (reply.open_slots >= static_cast<uint32_t>(service_.limits().slot_count)) return "slots full";
  const int64_t limit_ms = 3 * options_.canary_ms;
  if (options_.canary_ms > 0 && service_.health().IsOlderThan(limit_ms)) {
    return "no STEP succeeded for " + std::to_string(limit_ms) + " ms";
  }
  return "";
}

void StepServer::BeginDrain() {
  const std::lock_guard lock(queue_mutex_);
  ++drain_calls_;
  queue_changed_.notify_one();
}

void StepServer::StopListeners() {
  std::vector<std::thread> acceptors;
  {
    const std::lock_guard lock(workers_mutex_);
    is_closed_ = true;
    for (const auto& listener : listeners_) listener->Stop();
    acceptors.swap(acceptors_);
  }
  for (std::thread& acceptor : acceptors) acceptor.join();
}

void StepServer::StopConnections() {
  // The threads need the controller to retire them, so the queue is served to the end.
  constexpr int64_t kTickMs = 10;
  while (true) {
    {
      const std::lock_guard lock(workers_mutex_);
      ReapLocked();
      if (workers_.empty()) return;
      for (const auto& worker : workers_) worker->RequestStop();
    }
    if (ConnectionWorker* worker = NextWorker(kTickMs)) ServeOne(worker);
  }
}

}  // namespace tp2::server
