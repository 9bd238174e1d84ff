// What a folder holds, as people ask for it: one line per matrix or plain tensor, the same folded
// over stages and experts, and totals per part of the drafter. Describes files as they are; judges
// nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/checkpoint/tensor_view.h"

namespace tp2 {

struct InventoryLine {
  std::string name;            // "mtp.0.attn.wq_a", or folded "mtp.*.ffn.experts.*.w1"
  std::string part;            // "experts", "dense", ...
  std::string form;            // "exl3", "fp8", or the dtype of a plain tensor
  std::vector<int64_t> shape;  // [inputs, outputs] for exl3, else as stored
  int bits = 0;                // exl3 only
  std::string codebook;        // exl3 only
  int64_t matrices = 1;        // lines folded into this one
  int64_t stored_bytes = 0;    // of all of them, scales included
};

// `tensors` sorted by name. Lines are sorted by name.
std::vector<InventoryLine> BuildInventory(const std::vector<TensorView>& tensors);

// Stages and experts that agree in form, shape, width and codebook become one line.
std::vector<InventoryLine> FoldInventory(const std::vector<InventoryLine>& lines);

// Name and bytes of each part, in the order of the forward pass.
struct PartTotal {
  std::string part;
  int64_t stored_bytes = 0;
};
std::vector<PartTotal> PartTotals(const std::vector<InventoryLine>& lines);

Json InventoryJson(const std::vector<InventoryLine>& lines);

}  // namespace tp2
