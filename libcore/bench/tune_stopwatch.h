// Times the launches of a kernel table on cards, as serving runs them: the drafter's own op set and
// collectives, captured graphs, cold L2. Built twice: tune_stopwatch_cuda.cc with the CUDA toolkit,
// tune_stopwatch_no_cuda.cc without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/model/drafter_config.h"
#include "libcore/tuning/kernel_key.h"
#include "libcore/tuning/select.h"

namespace tp2::bench {

// Products of `launches` on one card: input transform and product over random weights, several
// copies one behind the other in a graph, so that a launch's own cost is small in the mean.
// Errors: kUnavailable, also in a build without CUDA; CudaOps::Create's.
absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeProductStopwatch(
    const DrafterConfig& config, const std::string& device_uuid,
    std::vector<tuning::ProductLaunch> launches);

// All-reduces of up to `max_words` values between two cards, both protocols, many in a row in a
// graph; the slower rank counts. Sums are verified before anything is timed. Errors: as above,
// coll::CudaPair::Create's.
absl::StatusOr<std::unique_ptr<tuning::Stopwatch>> MakeReduceStopwatch(
    const std::vector<std::string>& device_uuids, int64_t max_words);

}  // namespace tp2::bench
