#include "libcore/server/reply.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace tp2::server {

using contract::Code;

void FinishReply(const contract::FrameHeader& request, const ReplyContext& context,
                 ReplyFrame* reply) {
  const bool has_hash = (request.flags & contract::kFlagBodyHash) != 0;
  contract::FrameHeader header{
      .version = contract::kVersion,
      .type = static_cast<uint16_t>(request.type | contract::kReplyBit),
      .flags = (has_hash ? contract::kFlagBodyHash : 0u) |
               (context.is_draining ? contract::kFlagDraining : 0u),
      .session = request.session,
      .seq = request.seq,
      .body_bytes = static_cast<uint32_t>(reply->body_bytes),
      .status = static_cast<uint32_t>(reply->code),
      .time_us = static_cast<uint64_t>(std::max<int64_t>(context.spent_us, 0)),
      .body_hash = has_hash ? contract::HashBody(reply->body()) : 0,
      .trace_id = request.trace_id};
  contract::EncodeHeader(header, reply->bytes);
}

void LoadCachedReply(std::span<const std::byte> stored, ReplyFrame* reply) {
  TP2_CHECK(stored.size() >= contract::kHeaderBytes && stored.size() <= reply->bytes.size());
  contract::FrameHeader header;
  TP2_CHECK(contract::DecodeHeader(stored, contract::Direction::kReply, &header) == Code::kOk);
  std::copy(stored.begin(), stored.end(), reply->bytes.begin());
  reply->body_bytes = stored.size() - contract::kHeaderBytes;
  reply->code = static_cast<Code>(header.status);
  header.flags |= contract::kFlagCachedReply;
  contract::EncodeHeader(header, reply->bytes);
}

void AnswerUnsequenced(contract::Type type, const contract::FrameHeader& request,
                       std::span<const std::byte> body, uint64_t session, const Health& health,
                       ReplyFrame* reply) {
  contract::RequestBody unused;
  const Code code = contract::DecodeRequestBody(type, body, &unused);
  if (code != Code::kOk) return reply->Refuse(code);
  if (request.session != 0 && request.session != session) return reply->Refuse(Code::kBadRequest);
  reply->code = Code::kOk;
  if (type == contract::Type::kPing) {
    std::copy(body.begin(), body.end(), reply->Body(body.size()).begin());
    return;
  }
  contract::EncodeHealthReply(health.Snapshot(), reply->Body(contract::kHealthBytes));
}

}  // namespace tp2::server
