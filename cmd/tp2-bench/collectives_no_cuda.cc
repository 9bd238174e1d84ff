// tp2-bench collectives in a build without the CUDA half.
#include "cmd/tp2-bench/collectives.h"
#include "libcore/base/error.h"

namespace tp2::bench {

absl::Status PrintCollectives(const CollectivesFlags& flags) {
  return MakeError(absl::StatusCode::kUnavailable, {.what = "collectives",
                                                    .expected = "a build with CUDA and two cards",
                                                    .got = "a build without CUDA",
                                                    .next = "configure with -DTP2_CUDA=ON"});
}

}  // namespace tp2::bench
