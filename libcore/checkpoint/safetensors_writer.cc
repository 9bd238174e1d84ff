#include "libcore/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libcore/base/check.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"
#include "libcore/checkpoint/shard_set.h"

namespace tp2 {
namespace {

constexpr size_t kHeaderAlignment = 8;

void SortByName(std::vector<TensorSpec>& specs) {
  std::sort(specs.begin(), specs.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
}

// `specs` in the order of their data.
std::string HeaderText(const std::vector<TensorSpec>& specs) {
  Json header = Json::object();
  header["__metadata__"] = {{"format", "pt"}};
  int64_t position = 0;
  for (const TensorSpec& spec : specs) {
    const int64_t end = position + spec.byte_count();
    header[spec.name] = {
        {"dtype", DTypeName(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.dump();
  while (text.size() % kHeaderAlignment != 0) text.push_back(' ');
  return text;
}

std::array<std::byte, 8> LittleEndian(uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  return bytes;
}

std::vector<std::vector<TensorSpec>> SplitIntoShards(std::vector<TensorSpec> specs,
                                                     int64_t max_shard_bytes) {
  SortByName(specs);
  std::vector<std::vector<TensorSpec>> shards(1);
  int64_t shard_bytes = 0;
  for (TensorSpec& spec : specs) {
    if (!shards.back().empty() && shard_bytes + spec.byte_count() > max_shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shard_bytes += spec.byte_count();
    shards.back().push_back(std::move(spec));
  }
  return shards;
}

std::string ShardName(size_t index, size_t count) {
  if (count == 1) return kSingleFile;
  return absl::StrFormat("model-%05d-of-%05d.safetensors", index + 1, count);
}

}  // namespace

int64_t TensorSpec::element_count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

absl::Status WriteSafetensors(const std::string& path, std::vector<TensorSpec> specs,
                              const TensorProducer& produce, IfExists if_exists) {
  SortByName(specs);
  std::stable_sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return DTypeBytes(a.dtype) > DTypeBytes(b.dtype);
  });
  const std::string header = HeaderText(specs);
  TP2_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path, if_exists));
  TP2_RETURN_IF_ERROR(writer.Append(LittleEndian(header.size())));
  TP2_RETURN_IF_ERROR(writer.Append(header));
  for (const TensorSpec& spec : specs) {
    int64_t written_bytes = 0;
    TP2_RETURN_IF_ERROR(produce(spec, [&](std::span<const std::byte> bytes) {
      written_bytes += static_cast<int64_t>(bytes.size());
      return writer.Append(bytes);
    }));
    TP2_CHECK(written_bytes == spec.byte_count());
  }
  return writer.Commit();
}

absl::Status WriteShards(const std::string& dir, std::vector<TensorSpec> specs,
                         int64_t max_shard_bytes, const TensorProducer& produce) {
  Json map = Json::object();
  int64_t total_bytes = 0;
  const auto shards = SplitIntoShards(std::move(specs), max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardName(i, shards.size());
    for (const TensorSpec& spec : shards[i]) {
      map[spec.name] = name;
      total_bytes += spec.byte_count();
    }
    TP2_RETURN_IF_ERROR(
        WriteSafetensors(absl::StrCat(dir, "/", name), shards[i], produce, IfExists::kRefuse));
  }
  const Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(map)}};
  return WriteFileAtomically(absl::StrCat(dir, "/", kIndexFile), index.dump(1) + "\n",
                             IfExists::kRefuse);
}

}  // namespace tp2
