#include "libcore/tuning/kernel_choices.h"

#include <span>
#include <utility>

#include "libcore/base/digest.h"
#include "libcore/base/status_macros.h"

namespace tp2::tuning {

absl::StatusOr<std::shared_ptr<KernelChoices>> KernelChoices::Load(const std::string& path) {
  TP2_ASSIGN_OR_RETURN(KernelTable table, ReadKernelTable(path));
  TP2_RETURN_IF_ERROR(CheckBuild(table));
  // Of what it says, not of how the file was laid out.
  const std::string text = table.ToText();
  const std::string digest = Hex64(Xxh3::Of(std::as_bytes(std::span(text.data(), text.size()))));
  return std::make_shared<KernelChoices>(std::move(table), digest);
}

const KernelEntry* KernelChoices::Find(const KernelKey& key) {
  const KernelEntry* entry = table_.Find(key);
  (entry != nullptr ? found_ : missing_).insert(key);
  return entry;
}

std::optional<int> KernelChoices::Splits(const ProductKey& key) {
  const KernelEntry* entry = Find(key);
  if (entry == nullptr) return std::nullopt;
  return std::get<ProductChoice>(entry->choice).splits;
}

std::optional<ReduceChoice> KernelChoices::Reduce(const ReduceKey& key) {
  const KernelEntry* entry = Find(key);
  if (entry == nullptr) return std::nullopt;
  return std::get<ReduceChoice>(entry->choice);
}

std::optional<PairProtocol> KernelChoices::protocol() const {
  for (const auto& [key, entry] : table_.entries) {
    if (const auto* reduce = std::get_if<ReduceChoice>(&entry.choice)) return reduce->protocol;
  }
  return std::nullopt;
}

TableUse KernelChoices::use() const {
  return {digest_, static_cast<int>(found_.size()), static_cast<int>(missing_.size())};
}

}  // namespace tp2::tuning
