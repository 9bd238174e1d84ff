#include <nvtx3/nvToolsExt.h>

#include "libcore/server/profile_range.h"

namespace tp2::server {

ProfileRange::ProfileRange(const char* name, uint64_t round) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  range.payload.ullValue = round;
  nvtxRangePushEx(&range);
}

ProfileRange::~ProfileRange() { nvtxRangePop(); }

}  // namespace tp2::server
