// capture.json: who drafted, for which model, with which sizes, in which shards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/capture/capture.h"

namespace tp2 {

struct CaptureIndex {
  CaptureInfo info;
  int64_t rounds = 0;
  std::vector<std::string> shards;  // file names inside the folder, in the order of their rounds
};

// `where` names the text in errors. Errors: kInvalidArgument, one line naming the field; an unknown
// schema version is refused before anything else is read.
absl::StatusOr<CaptureIndex> ParseCaptureIndex(std::string_view text, const std::string& where);

std::string CaptureIndexText(const CaptureIndex& index);

}  // namespace tp2
