#include "libcore/server/profile_range.h"

namespace tp2::server {

ProfileRange::ProfileRange(const char* name, uint64_t round) {}
ProfileRange::~ProfileRange() = default;

}  // namespace tp2::server
