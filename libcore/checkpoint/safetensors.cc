#include "libcore/checkpoint/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/status_macros.h"

namespace tp2 {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxRank = 8;
constexpr char kRewrite[] = "write the file again with a safetensors library";
constexpr char kCopyAgain[] = "copy the file again";

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct Entry {
  TensorView view;
  Extent extent;
};

absl::Status Bad(const std::string& what, const std::string& expected, const std::string& got,
                 const std::string& where) {
  return MakeError(
      absl::StatusCode::kInvalidArgument,
      {.what = what, .expected = expected, .got = got, .where = where, .next = kRewrite});
}

absl::Status Truncated(const std::string& what, const std::string& expected, const std::string& got,
                       const std::string& where) {
  return MakeError(
      absl::StatusCode::kDataLoss,
      {.what = what, .expected = expected, .got = got, .where = where, .next = kCopyAgain});
}

std::string TensorText(const std::string& name) { return absl::StrCat("tensor ", name); }

// Names go into one-line errors and manifests, so they must be short and printable.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::optional<uint64_t> NonNegative(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  return std::nullopt;
}

// The shape's product times the element's bytes, or nothing when it leaves int64.
std::optional<uint64_t> CheckedBytes(const std::vector<int64_t>& shape, int element_bytes) {
  int64_t product = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return static_cast<uint64_t>(product);
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& name, const Json& value,
                                                const std::string& where) {
  const std::string expected = absl::StrCat("a shape of at most ", kMaxRank, " extents");
  if (!value.is_array() || value.size() > kMaxRank) {
    return Bad(TensorText(name), expected, "another value", where);
  }
  std::vector<int64_t> shape;
  for (const Json& item : value) {
    const auto extent = NonNegative(item);
    if (!extent || *extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Bad(TensorText(name), expected, "an extent that is no count", where);
    }
    shape.push_back(static_cast<int64_t>(*extent));
  }
  return shape;
}

absl::StatusOr<Extent> ParseOffsets(const std::string& name, const Json& value, uint64_t data_bytes,
                                    const std::string& where) {
  if (!value.is_array() || value.size() != 2 || !NonNegative(value[0]) || !NonNegative(value[1])) {
    return Bad(TensorText(name), "data_offsets [begin, end]", "another value", where);
  }
  const Extent extent = {*NonNegative(value[0]), *NonNegative(value[1])};
  if (extent.begin > extent.end) {
    return Bad(TensorText(name), "begin <= end",
               absl::StrCat("data_offsets [", extent.begin, ", ", extent.end, "]"), where);
  }
  if (extent.end > data_bytes) {
    return Truncated(TensorText(name), absl::StrCat("data up to byte ", extent.end),
                     absl::StrCat("a file that ends at data byte ", data_bytes), where);
  }
  return extent;
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& value,
                                 std::span<const std::byte> data, const std::string& where) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets") || !value["dtype"].is_string()) {
    return Bad(TensorText(name), "an object with dtype, shape and data_offsets", "another value",
               where);
  }
  Entry entry;
  entry.view.name = name;
  entry.view.file = where;
  entry.view.dtype = DTypeOfName(value["dtype"].get_ref<const std::string&>());
  TP2_ASSIGN_OR_RETURN(entry.view.shape, ParseShape(name, value["shape"], where));
  TP2_ASSIGN_OR_RETURN(entry.extent, ParseOffsets(name, value["data_offsets"], data.size(), where));
  const uint64_t got_bytes = entry.extent.end - entry.extent.begin;
  // Packed dtypes are never ours; their tensors are checked for place only.
  if (entry.view.dtype != DType::kOther) {
    const auto want_bytes = CheckedBytes(entry.view.shape, DTypeBytes(entry.view.dtype));
    if (!want_bytes || *want_bytes != got_bytes) {
      return Bad(TensorText(name),
                 want_bytes ? absl::StrCat(*want_bytes, " bytes for ", DTypeName(entry.view.dtype),
                                           " ", ShapeText(entry.view.shape))
                            : "a shape whose bytes can be counted",
                 absl::StrCat(got_bytes, " bytes"), where);
    }
  }
  entry.view.bytes = data.subspan(entry.extent.begin, got_bytes);
  return entry;
}

absl::Status CheckMetadata(const Json& value, const std::string& where) {
  bool is_good = value.is_object();
  for (auto it = value.begin(); is_good && it != value.end(); ++it) is_good = it->is_string();
  if (is_good) return absl::OkStatus();
  return Bad("header entry __metadata__", "a map of texts", "another value", where);
}

// Sorts by place and refuses overlaps, holes and a tail.
absl::Status CheckCoverage(std::vector<Entry>& entries, uint64_t data_bytes,
                           const std::string& where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.extent.begin != b.extent.begin) return a.extent.begin < b.extent.begin;
    if (a.extent.end != b.extent.end) return a.extent.end < b.extent.end;
    return a.view.name < b.view.name;
  });
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.extent.begin < position) {
      return Bad(TensorText(entry.view.name), absl::StrCat("data from byte ", position),
                 absl::StrCat("bytes ", entry.extent.begin, " .. ", entry.extent.end,
                              ", overlapping the tensor before it"),
                 where);
    }
    if (entry.extent.begin > position) {
      return Bad(TensorText(entry.view.name), absl::StrCat("data from byte ", position),
                 absl::StrCat("data from byte ", entry.extent.begin, " behind a hole"), where);
    }
    position = entry.extent.end;
  }
  if (position != data_bytes) {
    return Bad("safetensors file", absl::StrCat(position, " bytes of data"),
               absl::StrCat(data_bytes, " bytes of data"), where);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> HeaderBytes(std::span<const std::byte> file_bytes,
                                   const std::string& where) {
  if (file_bytes.size() < kLengthBytes) {
    return Truncated("safetensors file", "an 8-byte header length",
                     absl::StrCat(file_bytes.size(), " bytes"), where);
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= static_cast<uint64_t>(file_bytes[i]) << (8 * i);
  }
  if (header_bytes > file_bytes.size() - kLengthBytes) {
    return Truncated("safetensors header", absl::StrCat("a header of ", header_bytes, " bytes"),
                     absl::StrCat("a file of ", file_bytes.size(), " bytes"), where);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return Bad("safetensors header", absl::StrCat("at most ", kMaxHeaderBytes, " bytes"),
               absl::StrCat(header_bytes, " bytes"), where);
  }
  return static_cast<size_t>(header_bytes);
}

}  // namespace

absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const std::byte> file_bytes,
                                                         const std::string& where) {
  TP2_ASSIGN_OR_RETURN(const size_t header_bytes, HeaderBytes(file_bytes, where));
  const auto text_bytes = file_bytes.subspan(kLengthBytes, header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(text_bytes.data()), text_bytes.size());
  const auto data = file_bytes.subspan(kLengthBytes + header_bytes);
  TP2_ASSIGN_OR_RETURN(const Json header,
                       ParseJson(text, where, {.max_bytes = kMaxHeaderBytes, .max_depth = 4}));
  if (!header.is_object()) return Bad("safetensors header", "an object", "another value", where);
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (auto it = header.begin(); it != header.end(); ++it) {
    if (it.key() == "__metadata__") {
      TP2_RETURN_IF_ERROR(CheckMetadata(*it, where));
      continue;
    }
    if (!IsPlainName(it.key())) {
      return Bad("safetensors header", "tensor names of 1 .. 256 printable characters",
                 absl::StrCat("a name of ", it.key().size(), " bytes"), where);
    }
    TP2_ASSIGN_OR_RETURN(Entry entry, ParseEntry(it.key(), *it, data, where));
    entries.push_back(std::move(entry));
  }
  TP2_RETURN_IF_ERROR(CheckCoverage(entries, data.size(), where));
  std::vector<TensorView> views;
  views.reserve(entries.size());
  for (Entry& entry : entries) views.push_back(std::move(entry.view));
  return views;
}

}  // namespace tp2
