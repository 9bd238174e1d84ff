// The launches of a drafter whose shape a kernel table may choose, from its config and the widths
// of its matrices alone: what tp2-tune times and what a table is checked against. Follows the order
// of block-inl.h and insert-inl.h; tests hold it against what a drafter really asks its op set for.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libcore/checkpoint/tensor_view.h"
#include "libcore/model/drafter_config.h"
#include "libcore/tuning/kernel_key.h"

namespace tp2 {

// Most matrices of one launch.
inline constexpr int kJoinedProducts = 8;

// How a matrix is stored. bits 0: it is no EXL3 matrix. Only integer products can be split.
struct MatrixForm {
  int bits = 0;
  bool is_integer = true;
};
using MatrixForms = std::function<MatrixForm(const std::string& name)>;

// The mission's pack (MissionForm), and what a folder's tensors have (OpenShards). Slices of wo_a
// have names and forms of their own: NAME.slice.G.
MatrixForms MissionForms(const DrafterConfig& config);
MatrixForms FormsIn(const std::vector<TensorView>& tensors);

struct LaunchList {
  // One per key: the first launch that has it. Keys() leaves out those without room for sums.
  std::vector<tuning::ProductLaunch> products;
  std::vector<tuning::ReduceKey> reduces;  // of a draft; none without tp = 2

  std::vector<tuning::KernelKey> Keys() const;
};

// Of all ranks, for each number of ranks in `tps`. Routed experts are not in it: the device
// cuts their launches. Without `joins_products` every matrix has a launch of its own. Errors:
// MakeShardPlan's.
absl::StatusOr<LaunchList> ListLaunches(const DrafterConfig& config, std::span<const int> tps,
                                        const MatrixForms& forms, bool joins_products = true);

}  // namespace tp2
