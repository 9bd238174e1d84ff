#include "libcore/checkpoint/inventory.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_join.h"
#include "libcore/exl3/matrix.h"

namespace tp2 {
namespace {

constexpr std::array<std::string_view, 7> kExl3Suffixes = {".trellis", ".suh",  ".svh", ".su",
                                                           ".sv",      ".mul1", ".mcg"};
constexpr std::array<const char*, 8> kParts = {"embedding", "main_proj", "dense", "wo_a",
                                               "experts",   "norms etc", "head",  "markov"};

std::string Stem(const std::string& name) { return name.substr(0, name.rfind('.')); }

bool HasExl3Suffix(const std::string& name) {
  return std::any_of(kExl3Suffixes.begin(), kExl3Suffixes.end(),
                     [&name](std::string_view suffix) { return name.ends_with(suffix); });
}

std::string PartOf(const std::string& name) {
  const auto has = [&name](const char* text) { return name.find(text) != std::string::npos; };
  if (name.starts_with("embed")) return "embedding";
  if (name.starts_with("head")) return "head";
  if (has("markov_head.")) return "markov";
  if (has(".main_proj")) return "main_proj";
  if (has(".wo_a")) return "wo_a";
  if (has(".ffn.experts.")) return "experts";
  if (has(".wq_") || has(".wkv") || has(".wo_b") || has(".shared_experts.")) return "dense";
  return "norms etc";
}

void DescribeTrellis(const TensorView& view, InventoryLine& line) {
  if (view.shape.size() != 3) return;
  line.shape = {view.shape[0] * exl3::kTile, view.shape[1] * exl3::kTile};
  line.bits = static_cast<int>(view.shape[2] / exl3::kTile);
}

// Numbers between dots become `*`.
std::string Fold(const std::string& name) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    std::string word = name.substr(begin, end - begin);
    if (!word.empty() &&
        std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      word = "*";
    }
    words.push_back(std::move(word));
    begin = end + 1;
  }
  return absl::StrJoin(words, ".");
}

}  // namespace

std::vector<InventoryLine> BuildInventory(const std::vector<TensorView>& tensors) {
  std::set<std::string> exl3_stems;
  std::set<std::string> scaled_stems;
  for (const TensorView& view : tensors) {
    if (view.name.ends_with(".trellis")) exl3_stems.insert(Stem(view.name));
    if (view.name.ends_with(".scale")) scaled_stems.insert(Stem(view.name));
  }
  std::map<std::string, InventoryLine> lines;
  for (const TensorView& view : tensors) {
    const std::string stem = Stem(view.name);
    const bool is_exl3 = HasExl3Suffix(view.name) && exl3_stems.contains(stem);
    const bool is_scaled = scaled_stems.contains(stem);
    const std::string name = is_exl3 || is_scaled ? stem : view.name;
    InventoryLine& line = lines[name];
    if (line.name.empty()) {
      line.name = name;
      line.part = PartOf(name);
      line.form = DTypeName(view.dtype);
      line.shape = view.shape;
      if (is_exl3) {
        line.form = "exl3";
        line.codebook = exl3::CodebookName(exl3::Codebook::k3Inst);
      }
    }
    line.stored_bytes += static_cast<int64_t>(view.bytes.size());
    if (is_scaled && view.name.ends_with(".weight")) {
      line.form = view.dtype == DType::kFp8E4m3 ? "fp8" : DTypeName(view.dtype);
      line.shape = view.shape;
    }
    if (!is_exl3) continue;
    if (view.name.ends_with(".trellis")) DescribeTrellis(view, line);
    if (view.name.ends_with(".mul1")) line.codebook = exl3::CodebookName(exl3::Codebook::kMul1);
    if (view.name.ends_with(".mcg")) line.codebook = exl3::CodebookName(exl3::Codebook::kMcg);
  }
  std::vector<InventoryLine> result;
  for (auto& [name, line] : lines) result.push_back(std::move(line));
  return result;
}

std::vector<InventoryLine> FoldInventory(const std::vector<InventoryLine>& lines) {
  using Key = std::tuple<std::string, std::string, std::vector<int64_t>, int, std::string>;
  std::map<Key, InventoryLine> folded;
  for (const InventoryLine& line : lines) {
    const std::string name = Fold(line.name);
    InventoryLine& sum = folded[{name, line.form, line.shape, line.bits, line.codebook}];
    if (sum.name.empty()) {
      sum = line;
      sum.name = name;
    } else {
      sum.matrices += line.matrices;
      sum.stored_bytes += line.stored_bytes;
    }
  }
  std::vector<InventoryLine> result;
  for (auto& [key, line] : folded) result.push_back(std::move(line));
  return result;
}

std::vector<PartTotal> PartTotals(const std::vector<InventoryLine>& lines) {
  std::vector<PartTotal> totals;
  for (const char* part : kParts) {
    PartTotal total{part, 0};
    for (const InventoryLine& line : lines) {
      if (line.part == part) total.stored_bytes += line.stored_bytes;
    }
    totals.push_back(std::move(total));
  }
  return totals;
}

Json InventoryJson(const std::vector<InventoryLine>& lines) {
  Json tensors = Json::array();
  int64_t total_bytes = 0;
  for (const InventoryLine& line : lines) {
    Json item = {{"name", line.name},         {"part", line.part},
                 {"form", line.form},         {"shape", line.shape},
                 {"bits", nullptr},           {"codebook", nullptr},
                 {"matrices", line.matrices}, {"stored_bytes", line.stored_bytes}};
    if (line.bits != 0) item["bits"] = line.bits;
    if (!line.codebook.empty()) item["codebook"] = line.codebook;
    tensors.push_back(std::move(item));
    total_bytes += line.stored_bytes;
  }
  Json parts = Json::object();
  for (const PartTotal& total : PartTotals(lines)) parts[total.part] = total.stored_bytes;
  return {{"schema", "dspark-pack-inspect/1"},
          {"tensors", std::move(tensors)},
          {"parts_bytes", std::move(parts)},
          {"total_bytes", total_bytes}};
}

}  // namespace tp2
