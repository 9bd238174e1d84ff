// A kernel table in use: looked up while launches are recorded, and a memory of what was not there.
// It never guesses: what the table lacks gets the safe default of launch_limits.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "libcore/tuning/kernel_key.h"
#include "libcore/tuning/kernel_table.h"
#include "libcore/tuning/table_use.h"

namespace tp2::tuning {

// Thread-compatible. The ranks of a pair share one, so that both launch the same.
class KernelChoices {
 public:
  KernelChoices(KernelTable table, std::string digest)
      : table_(std::move(table)), digest_(std::move(digest)) {}

  // The file of `path`, made for this build. Errors: ReadKernelTable's, CheckBuild's.
  static absl::StatusOr<std::shared_ptr<KernelChoices>> Load(const std::string& path);

  const KernelTable& table() const { return table_; }

  // Within the limits of the key (the table's parser saw to it).
  std::optional<int> Splits(const ProductKey& key);
  std::optional<ReduceChoice> Reduce(const ReduceKey& key);
  // Of all all-reduces in the table; nothing without one.
  std::optional<PairProtocol> protocol() const;

  TableUse use() const;
  const std::set<KernelKey>& missing() const { return missing_; }

 private:
  const KernelEntry* Find(const KernelKey& key);

  KernelTable table_;
  std::string digest_;
  std::set<KernelKey> found_, missing_;
};

}  // namespace tp2::tuning
