#include "libcore/transport/verbs.h"

#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/status_macros.h"
#include "libcore/base/unique_fd.h"
#include "libcore/transport/socket_util.h"
#include "libcore/transport/verbs_connection.h"
#include "libcore/transport/verbs_events.h"
#include "libcore/transport/verbs_link.h"

namespace tp2::transport {
namespace {

// A request that was accepted is established within a round trip, or never.
constexpr int64_t kEstablishMs = 5'000;
// Rings are locked memory: strangers get so many at once before they are connections.
constexpr size_t kMaxPending = 16;
constexpr int kBacklog = 128;
// 4.096 us * 2^14 = 67 ms until a write is repeated, seven times: half a second to a dead link.
constexpr uint8_t kAckTimeoutExponent = 14;
constexpr uint8_t kRetries = 7;
// A receiver that is not ready is asked again for as long as it takes: releases bound what is under
// way, deadlines the wait.
constexpr uint8_t kEndlessRetries = 7;

absl::StatusOr<CmId> MakeId(const CmChannel& channel) {
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return VerbsError("connection manager", errno);
  }
  return CmId(id);
}

// Old kernels do not know it; a dead link then takes as long as the device finds right.
void TuneId(rdma_cm_id* id) {
  uint8_t exponent = kAckTimeoutExponent;
  (void)::rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent,
                          sizeof(exponent));
}

rdma_conn_param ConnectionParameters(std::span<const std::byte> private_data) {
  rdma_conn_param parameters{};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<uint8_t>(private_data.size());
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kEndlessRetries;
  return parameters;
}

sockaddr* Mutable(const ResolvedAddress& address) { return const_cast<sockaddr*>(address.get()); }

std::string PeerText(rdma_cm_id* id) {
  sockaddr_storage address{};
  const sockaddr* peer = ::rdma_get_peer_addr(id);
  std::memcpy(&address, peer,
              peer->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return SocketAddressText(address);
}

class VerbsListener final : public Listener {
 public:
  VerbsListener(CmChannel channel, CmId id, std::string address, const FrameRule& rule,
                const VerbsOptions& options)
      : rule_(rule),
        options_(options),
        address_(std::move(address)),
        wake_fd_(MakeWakeFd()),
        channel_(std::move(channel)),
        id_(std::move(id)) {}

  absl::StatusOr<std::unique_ptr<Connection>> Accept(int64_t timeout_ms) override;
  void Stop() override {
    is_stopped_.store(true);
    SignalWakeFd(wake_fd_.get());
  }
  std::string address() const override { return address_; }

 private:
  // Accepted, but the peer has not said that it knows.
  struct Pending {
    std::unique_ptr<VerbsLink> link;
    RingAddress remote;
    std::string peer;
    int64_t deadline_ms;
  };

  void OnRequest(const CmEvent& event);
  Refusal Admit(const CmEvent& event, const std::string& peer, CmId* id);
  absl::StatusOr<std::unique_ptr<Connection>> Establish(Pending pending);
  // Takes a pending one out, or returns one without a link.
  Pending Take(const rdma_cm_id* id);

  const FrameRule rule_;
  const VerbsOptions options_;
  const std::string address_;
  UniqueFd wake_fd_;
  std::atomic<bool> is_stopped_{false};
  CmChannel channel_;
  CmId id_;
  std::vector<Pending> pending_;
};

absl::StatusOr<std::unique_ptr<Connection>> VerbsListener::Accept(int64_t timeout_ms) {
  const int64_t deadline_ms = DeadlineFrom(timeout_ms);
  while (!is_stopped_.load()) {
    std::erase_if(pending_, [](const Pending& one) { return NowMs() >= one.deadline_ms; });
    int64_t until_ms = deadline_ms;
    for (const Pending& one : pending_) {
      until_ms = until_ms == kNoDeadline ? one.deadline_ms : std::min(until_ms, one.deadline_ms);
    }
    const std::optional<CmEvent> event = channel_.Wait(until_ms, wake_fd_.get());
    if (!event.has_value()) {
      if (deadline_ms != kNoDeadline && NowMs() >= deadline_ms) break;
      continue;
    }
    if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      OnRequest(*event);
      continue;
    }
    if (event->id == id_.get()) return VerbsError("listener", ENODEV);
    Pending pending = Take(event->id);
    if (event->type != RDMA_CM_EVENT_ESTABLISHED || pending.link == nullptr) continue;
    return Establish(std::move(pending));
  }
  return std::unique_ptr<Connection>();
}

VerbsListener::Pending VerbsListener::Take(const rdma_cm_id* id) {
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [id](const Pending& one) { return one.link->id() == id; });
  if (found == pending_.end()) return {};
  Pending pending = std::move(*found);
  pending_.erase(found);
  return pending;
}

absl::StatusOr<std::unique_ptr<Connection>> VerbsListener::Establish(Pending pending) {
  TP2_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Open());
  if (::rdma_migrate_id(pending.link->id(), channel.get()) != 0) {
    return VerbsError("connection manager", errno);
  }
  return std::make_unique<VerbsConnection>(std::move(channel), std::move(pending.link),
                                           pending.remote, std::move(pending.peer), rule_);
}

void VerbsListener::OnRequest(const CmEvent& event) {
  CmId id(event.id);
  const std::string peer = PeerText(id.get());
  const Refusal refusal = Admit(event, peer, &id);
  if (refusal == Refusal::kNone) return;
  if (options_.on_refused) options_.on_refused(peer, refusal);
  if (id == nullptr) return;  // its memory is gone with it, and the peer sees an end
  const std::array<std::byte, kRejectDataBytes> data = EncodeRejection(refusal);
  (void)::rdma_reject(id.get(), data.data(), static_cast<uint8_t>(data.size()));
}

Refusal VerbsListener::Admit(const CmEvent& event, const std::string& peer, CmId* id) {
  if (!options_.allowed_clients.is_empty() && !options_.allowed_clients.Contains(peer)) {
    return Refusal::kNotAllowed;
  }
  ConnectRequest request;
  const Refusal refusal =
      DecodeRequest(event.private_data(), options_.identity, rule_.header_bytes, &request);
  if (refusal != Refusal::kNone) return refusal;
  if (pending_.size() >= kMaxPending) return Refusal::kTooMany;
  TuneId(id->get());
  auto link = VerbsLink::Create(
      std::move(*id),
      {.receive_slot_bytes = rule_.header_bytes + rule_.max_body_bytes,
       .send_slot_bytes = std::min<size_t>(request.ring.slot_bytes, options_.max_send_bytes)});
  if (!link.ok()) return Refusal::kResources;
  const auto data = EncodeAcceptance({.instance = options_.uuid, .ring = (*link)->ring_address()});
  rdma_conn_param parameters = ConnectionParameters(data);
  if (::rdma_accept((*link)->id(), &parameters) != 0) return Refusal::kResources;
  pending_.push_back({.link = std::move(*link),
                      .remote = request.ring,
                      .peer = peer,
                      .deadline_ms = DeadlineFrom(kEstablishMs)});
  return Refusal::kNone;
}

absl::Status RefusedBy(const std::string& what, const CmEvent& event) {
  // The reason of a rejection that a party wrote itself; others come from its connection manager.
  constexpr int kConsumerDefined = 28;
  const Refusal refusal = DecodeRejection(event.private_data());
  if (event.status != kConsumerDefined) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = what, .expected = "a worker", .got = "nobody who listens"});
  }
  absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
  if (refusal == Refusal::kNotAllowed) code = absl::StatusCode::kPermissionDenied;
  if (refusal == Refusal::kTooMany || refusal == Refusal::kResources) {
    code = absl::StatusCode::kUnavailable;
  }
  return MakeError(code, {.what = what,
                          .expected = "to be accepted",
                          .got = std::string("a refusal: ") + RefusalName(refusal)});
}

// Waits for one step of a connect. Errors: what came instead, kDeadlineExceeded.
absl::StatusOr<CmEvent> Await(CmChannel* channel, rdma_cm_event_type wanted,
                              const std::string& what, int64_t deadline_ms) {
  const std::optional<CmEvent> event = channel->Wait(deadline_ms);
  if (!event.has_value()) {
    return MakeError(absl::StatusCode::kDeadlineExceeded,
                     {.what = what, .expected = "an answer in time", .got = "none"});
  }
  if (event->type == wanted) return *event;
  if (event->type == RDMA_CM_EVENT_REJECTED) return RefusedBy(what, *event);
  return MakeError(
      absl::StatusCode::kUnavailable,
      {.what = what, .expected = ::rdma_event_str(wanted), .got = ::rdma_event_str(event->type)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> VerbsListen(const TcpAddress& address,
                                                      const FrameRule& rule,
                                                      const VerbsOptions& options) {
  TP2_ASSIGN_OR_RETURN(const ResolvedAddress resolved, ResolveTcpAddress(address, AI_PASSIVE));
  TP2_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Open());
  TP2_ASSIGN_OR_RETURN(CmId id, MakeId(channel));
  int on = 1;
  (void)::rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
  if (::rdma_bind_addr(id.get(), Mutable(resolved)) != 0 ||
      ::rdma_listen(id.get(), kBacklog) != 0) {
    return MakeError(absl::StatusCode::kUnavailable,
                     {.what = "RDMA listen on " + address.ToString(),
                      .expected = "a free address of an RDMA device",
                      .got = ErrnoText(),
                      .next = "listen on the address of a device in `rdma link`"});
  }
  sockaddr_storage bound{};
  std::memcpy(&bound, ::rdma_get_local_addr(id.get()), resolved.storage_bytes);
  return std::make_unique<VerbsListener>(std::move(channel), std::move(id),
                                         SocketAddressText(bound), rule, options);
}

absl::StatusOr<std::unique_ptr<Connection>> VerbsConnect(const TcpAddress& address,
                                                         const FrameRule& rule,
                                                         const VerbsOptions& options,
                                                         int64_t timeout_ms) {
  const int64_t deadline_ms = DeadlineFrom(timeout_ms);
  const std::string what = "RDMA connect to " + address.ToString();
  TP2_ASSIGN_OR_RETURN(const ResolvedAddress resolved, ResolveTcpAddress(address, 0));
  TP2_ASSIGN_OR_RETURN(CmChannel channel, CmChannel::Open());
  TP2_ASSIGN_OR_RETURN(CmId id, MakeId(channel));
  constexpr int kResolveMs = 60'000;  // the deadline comes first, unless there is none
  if (::rdma_resolve_addr(id.get(), nullptr, Mutable(resolved), kResolveMs) != 0) {
    return VerbsError("address " + address.ToString(), errno);
  }
  TP2_RETURN_IF_ERROR(Await(&channel, RDMA_CM_EVENT_ADDR_RESOLVED, what, deadline_ms).status());
  if (::rdma_resolve_route(id.get(), kResolveMs) != 0) return VerbsError("route", errno);
  TP2_RETURN_IF_ERROR(Await(&channel, RDMA_CM_EVENT_ROUTE_RESOLVED, what, deadline_ms).status());
  TuneId(id.get());
  TP2_ASSIGN_OR_RETURN(
      std::unique_ptr<VerbsLink> link,
      VerbsLink::Create(std::move(id),
                        {.receive_slot_bytes = rule.header_bytes + rule.max_body_bytes,
                         .send_slot_bytes = options.max_send_bytes}));
  const auto data = EncodeRequest(
      {.client = options.uuid, .identity = options.identity, .ring = link->ring_address()});
  rdma_conn_param parameters = ConnectionParameters(data);
  if (::rdma_connect(link->id(), &parameters) != 0) return VerbsError("connect", errno);
  TP2_ASSIGN_OR_RETURN(const CmEvent event,
                       Await(&channel, RDMA_CM_EVENT_ESTABLISHED, what, deadline_ms));
  Acceptance acceptance;
  const Refusal refusal = DecodeAcceptance(event.private_data(), rule.header_bytes, &acceptance);
  if (refusal != Refusal::kNone) {
    return MakeError(absl::StatusCode::kFailedPrecondition,
                     {.what = what, .expected = "a DSPK/1 worker", .got = RefusalName(refusal)});
  }
  return std::make_unique<VerbsConnection>(std::move(channel), std::move(link), acceptance.ring,
                                           address.ToString(), rule);
}

}  // namespace tp2::transport
