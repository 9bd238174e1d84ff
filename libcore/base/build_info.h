// What was built, from what, by what: printed by --version and written into every result.
#pragma once

namespace tp2 {

struct BuildInfo {
  const char* version;  // project version, "0.1.0"
  const char*
      git_id;  // abbreviated commit, "-dirty" when the tree had changes, "unknown" without git
  const char* compiler;  // "GNU-12.2.0"
};

BuildInfo GetBuildInfo();

}  // namespace tp2
