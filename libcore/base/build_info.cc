#include "libcore/base/build_info.h"

#include "build_info_values.h"

namespace tp2 {

BuildInfo GetBuildInfo() { return {TP2_VERSION, TP2_GIT_ID, TP2_COMPILER}; }

}  // namespace tp2
