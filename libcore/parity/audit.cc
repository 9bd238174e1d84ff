#include "libcore/parity/audit.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

// The element's bytes, the most significant first.
std::string ElementText(const std::vector<std::byte>& bytes, size_t element, int element_bytes) {
  std::string text;
  for (int i = element_bytes - 1; i >= 0; --i) {
    absl::StrAppendFormat(&text, "%02x",
                          std::to_integer<unsigned>(bytes[element * element_bytes + i]));
  }
  return text;
}

// A bit in the middle of the tensor: what most STEPs leave alone would be no test for some.
int64_t PlantedBit(const ReplicatedTensor& tensor) {
  return static_cast<int64_t>(tensor.by_rank.front().size()) * 8 / 2;
}

absl::Status Plant(StepEngine& engine, const std::string& name) {
  TP2_ASSIGN_OR_RETURN(const std::vector<ReplicatedTensor> replicas, engine.ReadReplicas());
  int64_t bit = 0;
  for (const ReplicatedTensor& tensor : replicas) {
    if (tensor.name == name) bit = PlantedBit(tensor);
  }
  return engine.FlipReplicaBit(name, bit);
}

}  // namespace

std::optional<std::string> FindReplicaDifference(std::span<const ReplicatedTensor> replicas) {
  for (const ReplicatedTensor& tensor : replicas) {
    const std::vector<std::byte>& first = tensor.by_rank.front();
    for (size_t rank = 1; rank < tensor.by_rank.size(); ++rank) {
      const std::vector<std::byte>& other = tensor.by_rank[rank];
      const auto found = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
      if (found.first == first.end() && found.second == other.end()) continue;
      const auto byte = static_cast<size_t>(found.first - first.begin());
      const size_t element = byte / static_cast<size_t>(tensor.element_bytes);
      return absl::StrCat(tensor.name, " element ", element, ": rank 0 ",
                          ElementText(first, element, tensor.element_bytes), ", rank ", rank, " ",
                          ElementText(other, element, tensor.element_bytes));
    }
  }
  return std::nullopt;
}

absl::StatusOr<AuditResult> RunAudit(StepEngine& engine, const AuditOptions& options) {
  AuditResult result;
  const auto audit = [&](int done) -> absl::StatusOr<bool> {
    result.rounds = done;
    if (!options.plant.empty() && done == (options.rounds + 1) / 2) {
      TP2_RETURN_IF_ERROR(Plant(engine, options.plant));
    }
    if (done % options.every != 0 && done != options.rounds) return true;
    TP2_ASSIGN_OR_RETURN(const std::vector<ReplicatedTensor> replicas, engine.ReadReplicas());
    ++result.audits;
    result.tensors = static_cast<int>(replicas.size());
    result.bytes = 0;
    for (const ReplicatedTensor& tensor : replicas) {
      result.bytes += static_cast<int64_t>(tensor.by_rank.front().size());
    }
    const std::optional<std::string> difference = FindReplicaDifference(replicas);
    if (!difference.has_value()) return true;
    result.difference = absl::StrCat(*difference, ", after round ", done);
    return false;
  };
  TP2_RETURN_IF_ERROR(
      RunSelf(engine, {.rounds = options.rounds, .seed = options.seed, .after_round = audit})
          .status());
  return result;
}

}  // namespace tp2
