#include "libcore/checkpoint/shard_set.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/safetensors.h"

namespace tp2 {
namespace {

constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxNameChars = 256;
constexpr char kRegenerate[] = "regenerate the index from the shards";

// Shard file name -> the tensors that the index puts there.
using ShardNames = std::map<std::string, std::set<std::string>>;

absl::Status BadIndex(const std::string& what, const std::string& expected, const std::string& got,
                      const std::string& where) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = what, .expected = expected, .got = got, .where = where, .next = kRegenerate});
}

// A file of this folder: no separators, so that an index cannot point outside.
bool IsPlainFileName(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameChars || name.front() == '.') return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c <= '~' && c != '/'; });
}

absl::StatusOr<ShardNames> ReadIndex(const std::string& path) {
  TP2_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  TP2_ASSIGN_OR_RETURN(const Json document,
                       ParseJson(text, path, {.max_bytes = kMaxIndexBytes, .max_depth = 8}));
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object()) {
    return BadIndex("checkpoint index", "an object weight_map", "no such object", path);
  }
  ShardNames shards;
  const Json& map = document["weight_map"];
  for (auto it = map.begin(); it != map.end(); ++it) {
    if (!it->is_string() || !IsPlainFileName(it->get_ref<const std::string&>())) {
      return BadIndex("checkpoint index", "plain file names as values of weight_map",
                      "another value", path);
    }
    shards[it->get<std::string>()].insert(it.key());
  }
  std::erase_if(shards, [](const auto& shard) {
    return std::none_of(shard.second.begin(), shard.second.end(), IsDrafterTensor);
  });
  if (shards.empty()) {
    return BadIndex("checkpoint index", "drafter tensors (mtp.*)", "none", path);
  }
  return shards;
}

absl::Status CheckAgainstIndex(const std::vector<TensorView>& views,
                               const std::set<std::string>& indexed, const std::string& path) {
  std::set<std::string> found;
  for (const TensorView& view : views) {
    found.insert(view.name);
    if (!indexed.contains(view.name)) {
      return BadIndex(absl::StrCat("tensor ", view.name), "an index entry for this file", "none",
                      path);
    }
  }
  for (const std::string& name : indexed) {
    if (found.contains(name)) continue;
    // An index key may hold anything; only drafter names are known to be printable here.
    const bool is_plain =
        name.size() <= kMaxNameChars &&
        std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
    return BadIndex(is_plain ? absl::StrCat("tensor ", name) : "a tensor of the index",
                    "its data in the file that the index names", "no such tensor", path);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsDrafterTensor(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("embed.") || name.starts_with("head.");
}

absl::StatusOr<ShardSet> OpenShards(const std::string& model_dir) {
  const std::string index_path = absl::StrCat(model_dir, "/", kIndexFile);
  const bool has_index = ::access(index_path.c_str(), F_OK) == 0;
  ShardNames shards;
  if (has_index) {
    TP2_ASSIGN_OR_RETURN(shards, ReadIndex(index_path));
  } else {
    shards[kSingleFile] = {};
  }
  ShardSet set;
  for (const auto& [file_name, indexed] : shards) {
    const std::string path = absl::StrCat(model_dir, "/", file_name);
    TP2_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    TP2_ASSIGN_OR_RETURN(std::vector<TensorView> views, ParseSafetensors(file.bytes(), path));
    if (has_index) TP2_RETURN_IF_ERROR(CheckAgainstIndex(views, indexed, path));
    set.files.push_back(std::move(file));
    for (TensorView& view : views) {
      if (IsDrafterTensor(view.name)) set.tensors.push_back(std::move(view));
    }
  }
  // No name can come twice: an index is a map, and every shard was checked against it.
  std::sort(set.tensors.begin(), set.tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  return set;
}

}  // namespace tp2
