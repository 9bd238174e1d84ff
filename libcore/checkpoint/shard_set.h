// The shards of a checkpoint folder, mapped, and the drafter's tensors inside them.
//
// Which files: those that `model.safetensors.index.json` names for at least one drafter tensor, or
// the lone `model.safetensors` where there is no index. So a folder may hold the whole target model
// or only the drafter's shards of it. Tensors of the target (`layers.*`, `norm.weight`, ...) are
// ignored; IsDrafterTensor draws the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/base/file.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

inline constexpr char kIndexFile[] = "model.safetensors.index.json";
inline constexpr char kSingleFile[] = "model.safetensors";

// `mtp.*`, `embed.*` and `head.*`: the drafter's stages and the two matrices it shares with the
// target.
bool IsDrafterTensor(std::string_view name);

// Owns the maps that the views point into. Thread-compatible.
struct ShardSet {
  std::vector<MappedFile> files;
  std::vector<TensorView> tensors;  // the drafter's, sorted by name, no name twice
};

// Errors: kDataLoss for missing or truncated files, kInvalidArgument for files that contradict
// their index, each other or the format.
absl::StatusOr<ShardSet> OpenShards(const std::string& model_dir);

}  // namespace tp2
