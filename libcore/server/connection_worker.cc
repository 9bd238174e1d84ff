#include "libcore/server/connection_worker.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libcore/server/profile_range.h"

namespace tp2::server {

using contract::Code;
using contract::Type;
using transport::Event;

namespace {

// A stranger's first frame may be on its way already: the limit holds before anything is read.
std::unique_ptr<transport::Connection> WithRoomForHello(
    std::unique_ptr<transport::Connection> connection) {
  connection->LimitBody(contract::kHelloBytes);
  return connection;
}

}  // namespace

void ConnectionWorker::BodyHash::BeginFrame() {
  hash_ = Xxh3();
  seen_bytes_ = 0;
}

void ConnectionWorker::BodyHash::See(std::span<const std::byte> bytes) {
  hash_.Update(bytes);
  seen_bytes_ += bytes.size();
}

uint64_t ConnectionWorker::BodyHash::Of(std::span<const std::byte> body) const {
  return seen_bytes_ == body.size() ? hash_.Finish() : contract::HashBody(body);
}

ConnectionWorker::ConnectionWorker(std::unique_ptr<transport::Connection> connection,
                                   const Options& options, const Clock* clock, const Health* health,
                                   Statistics* statistics, Hooks hooks)
    : connection_(WithRoomForHello(std::move(connection))),
      options_(options),
      clock_(clock),
      health_(health),
      statistics_(statistics),
      hooks_(std::move(hooks)),
      send_timeout_ms_(options.send_timeout_ms),
      thread_([this] { Run(); }) {}

ConnectionWorker::~ConnectionWorker() { thread_.join(); }

void ConnectionWorker::ServeHere(StepService* service) {
  if (!is_bound_) service->UseThread();
  is_bound_ = true;
  Answer(service);
}

void ConnectionWorker::Serve(StepService* service) {
  Answer(service);
  changed_.notify_all();
  connection_->Wake();
}

void ConnectionWorker::Answer(StepService* service) {
  service->Handle(&session_, request_, &reply_);
  session_id_.store(session_.grant.session);
  has_slots_.store(session_.open_slots > 0);
  const std::lock_guard lock(mutex_);
  is_reply_ready_ = true;
}

void ConnectionWorker::Retire(StepService* service) {
  service->EndSession(&session_);
  const std::lock_guard lock(mutex_);
  is_retired_.store(true);
  changed_.notify_all();
}

void ConnectionWorker::RequestStop() {
  is_stopping_.store(true);
  connection_->Wake();
}

void ConnectionWorker::Attend() {
  const std::unique_lock io(io_mutex_, std::try_to_lock);
  if (!io.owns_lock() || !is_outstanding_) return;
  // The caller waits for nobody: whoever has no room for a few hundred bytes has stopped reading.
  send_timeout_ms_ = 0;
  AnswerArrived();
  send_timeout_ms_ = options_.send_timeout_ms;
}

void ConnectionWorker::AnswerArrived() {
  constexpr int kFramesAtOnce = 16;
  for (int i = 0; is_up_ && i < kFramesAtOnce; ++i) {
    const transport::Received received = connection_->Receive(0);
    if (received.event == Event::kTimeout) return;
    is_up_ = OnReceived(received);
  }
}

void ConnectionWorker::Run() {
  const std::unique_lock io(io_mutex_);
  connection_->ObserveBodies(&body_hash_);
  begin_ns_ = last_activity_ns_ = clock_->NowNs();
  end_reason_ = "server stops";
  while (is_up_ && !is_stopping_.load()) {
    is_up_ = OnReceived(ReceiveNext());
    if (is_up_) is_up_ = SendOwedReply();
  }
  // A peer that ended only its own direction still reads: it gets the reply it waits for.
  if (is_outstanding_) {
    WaitForReply();
    (void)SendOwedReply();
  }
  spdlog::info("connection {} ended: {}", connection_->peer(), end_reason_);
  statistics_->NoteClosed(end_reason_);
  is_gone_.store(true);
  hooks_.post(this);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_retired_.load(); });
  connection_->Shutdown();
}

int64_t ConnectionWorker::SpinLeftMs() const {
  if (!has_slots_.load()) return 0;
  return options_.spin_ms - (clock_->NowNs() - last_activity_ns_) / 1'000'000;
}

transport::Received ConnectionWorker::ReceiveNext() {
  const int64_t spin_left_ms = SpinLeftMs();
  if (spin_left_ms > 0 && options_.spin_budget->TryTake()) {
    connection_->SpinFor(spin_left_ms * 1000);
    const transport::Received received = connection_->Receive(spin_left_ms);
    connection_->SpinFor(0);
    options_.spin_budget->Give();
    if (received.event != Event::kTimeout) return received;
  }
  return connection_->Receive(is_outstanding_ ? -1 : IdleLeftMs());
}

bool ConnectionWorker::OnReceived(const transport::Received& received) {
  switch (received.event) {
    case Event::kFrame:
      last_activity_ns_ = clock_->NowNs();
      end_reason_ = "closed after the reply";
      return OnFrame(received.frame);
    case Event::kBadHeader:
      OnBadHeader(received.frame);
      end_reason_ = "bad frame";
      return false;
    case Event::kWoken:
      return true;
    case Event::kTimeout:
      end_reason_ = session_id_.load() == 0 ? "no HELLO in time" : "idle";
      return is_outstanding_ || IdleLeftMs() > 0;
    case Event::kClosed:
      end_reason_ = "closed by the peer";
      return false;
    case Event::kTruncated:
      end_reason_ = "ended inside a frame";
      return false;
    case Event::kStalled:
      end_reason_ = "sender too slow";
      return false;
  }
  return false;
}

int64_t ConnectionWorker::IdleLeftMs() const {
  const int64_t now_ns = clock_->NowNs();
  int64_t left_ms = options_.idle_close_ms - (now_ns - last_activity_ns_) / 1'000'000;
  if (session_id_.load() == 0) {
    left_ms = std::min(left_ms, options_.hello_ms - (now_ns - begin_ns_) / 1'000'000);
  }
  return std::max<int64_t>(left_ms, 0);
}

bool ConnectionWorker::OnFrame(std::span<std::byte> frame) {
  const int64_t arrival_ns = clock_->NowNs();
  statistics_->NoteFrameIn(frame.size());
  contract::FrameHeader header;
  const Code code = DecodeHeader(frame, contract::Direction::kRequest, &header);
  const std::span<const std::byte> body = frame.subspan(contract::kHeaderBytes);
  // The sizer let it through; over RDMA the peer can have rewritten it since.
  if (code != Code::kOk || header.body_bytes != body.size()) {
    OnBadHeader(frame);
    end_reason_ = "header changed after it was checked";
    return false;
  }
  const uint64_t body_hash = body_hash_.Of(body);
  const std::optional<Type> type = contract::RequestType(header);
  const bool is_unsequenced = type == Type::kHealth || type == Type::kPing;
  const bool is_hash_wrong =
      (header.flags & contract::kFlagBodyHash) != 0 && header.body_hash != body_hash;
  if (!is_hash_wrong && !is_unsequenced && !is_outstanding_) {
    TakeRequest(frame,
                {.header = header, .body = body, .body_hash = body_hash, .arrival_ns = arrival_ns});
    return is_up_;
  }
  ReplyFrame reply;
  if (is_hash_wrong) {
    reply.Refuse(Code::kBodyHash);
  } else if (is_unsequenced && options_.requires_secret && session_id_.load() == 0) {
    reply.Refuse(Code::kNotAuthorized);
  } else if (is_unsequenced) {
    AnswerUnsequenced(*type, header, body, session_id_.load(), *health_, &reply);
  } else {
    reply.Refuse(Code::kBusy);
  }
  connection_->Release(frame);
  return SendNow(header, &reply, arrival_ns);
}

void ConnectionWorker::TakeRequest(std::span<std::byte> frame, const ServiceRequest& request) {
  request_ = request;
  request_frame_ = frame;
  is_outstanding_ = true;
  io_mutex_.unlock();
  const bool is_served = hooks_.try_serve(this);
  io_mutex_.lock();
  if (is_served) {
    AnswerArrived();
  } else {
    hooks_.post(this);
  }
}

void ConnectionWorker::OnBadHeader(std::span<const std::byte> frame) {
  contract::FrameHeader header;  // stays empty when magic or checksum are wrong
  Code code = DecodeHeader(frame, contract::Direction::kRequest, &header);
  if (code == Code::kOk) code = Code::kTooLarge;  // the connection's own limit
  ReplyFrame reply;
  reply.Refuse(code);
  header.flags = 0;
  (void)SendNow(header, &reply, clock_->NowNs());
}

bool ConnectionWorker::SendOwedReply() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_reply_ready_) return true;
    is_reply_ready_ = false;
  }
  const bool is_bye = request_.header.type == static_cast<uint16_t>(Type::kBye);
  is_outstanding_ = false;
  last_activity_ns_ = clock_->NowNs();
  if (session_id_.load() != 0) connection_->LimitBody(contract::kMaxBodyBytes);
  const bool stays_up = Send(reply_) && !is_bye && !contract::ClosesConnection(reply_.code);
  hooks_.settle(&session_);
  connection_->Release(request_frame_);
  return stays_up;
}

bool ConnectionWorker::SendNow(const contract::FrameHeader& request, ReplyFrame* reply,
                               int64_t arrival_ns) {
  FinishReply(request,
              {.is_draining = health_->is_draining() && session_id_.load() != 0,
               .spent_us = (clock_->NowNs() - arrival_ns) / 1000},
              reply);
  return Send(*reply) && !contract::ClosesConnection(reply->code);
}

bool ConnectionWorker::Send(const ReplyFrame& reply) {
  const ProfileRange range("reply");
  statistics_->NoteReply(reply.code, reply.frame().size());
  const absl::Status status = connection_->Send(reply.header(), reply.body(), send_timeout_ms_);
  if (!status.ok()) spdlog::warn("{}", std::string(status.message()));
  return status.ok();
}

void ConnectionWorker::WaitForReply() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_reply_ready_; });
}

}  // namespace tp2::server
