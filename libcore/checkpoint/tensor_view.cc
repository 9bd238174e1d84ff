#include "libcore/checkpoint/tensor_view.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tp2 {
namespace {

struct DTypeEntry {
  DType dtype;
  const char* name;
  int bytes;
};

constexpr DTypeEntry kDTypes[] = {
    {DType::kBf16, "BF16", 2},       {DType::kF16, "F16", 2},
    {DType::kF32, "F32", 4},         {DType::kI16, "I16", 2},
    {DType::kI32, "I32", 4},         {DType::kFp8E4m3, "F8_E4M3", 1},
    {DType::kFp8E8m0, "F8_E8M0", 1}, {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},       {DType::kI8, "I8", 1},
    {DType::kFp8E5m2, "F8_E5M2", 1}, {DType::kU16, "U16", 2},
    {DType::kU32, "U32", 4},         {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},         {DType::kF64, "F64", 8},
};

}  // namespace

const char* DTypeName(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.dtype == dtype) return entry.name;
  }
  return "a packed dtype";
}

int DTypeBytes(DType dtype) {
  for (const DTypeEntry& entry : kDTypes) {
    if (entry.dtype == dtype) return entry.bytes;
  }
  return 0;
}

DType DTypeOfName(std::string_view name) {
  for (const DTypeEntry& entry : kDTypes) {
    if (name == entry.name) return entry.dtype;
  }
  return DType::kOther;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace tp2
