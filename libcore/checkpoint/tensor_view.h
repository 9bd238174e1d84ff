// A tensor of a checkpoint: dtype, shape and bytes inside a mapped file. Never owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tp2 {

// Every dtype of the safetensors format with whole bytes per element; kOther: the packed ones.
enum class DType : uint8_t {
  kBf16,
  kF16,
  kF32,
  kI16,
  kI32,
  kFp8E4m3,
  kFp8E8m0,
  kU8,
  kBool,
  kI8,
  kFp8E5m2,
  kU16,
  kU32,
  kI64,
  kU64,
  kF64,
  kOther
};

const char* DTypeName(DType dtype);        // safetensors spelling: "BF16", "F8_E4M3", ...
int DTypeBytes(DType dtype);               // 0 for kOther
DType DTypeOfName(std::string_view name);  // kOther for names without whole bytes per element

// "[16, 80, 96]", "[]".
std::string ShapeText(const std::vector<int64_t>& shape);

struct TensorView {
  std::string name;
  DType dtype = DType::kOther;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // the shard it lies in, for errors

  int64_t element_count() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  // The caller has checked dtype and alignment (the loader does).
  template <class T>
  const T* As() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

}  // namespace tp2
