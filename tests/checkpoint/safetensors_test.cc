#include "libcore/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/checkpoint/editable_checkpoint.h"

namespace tp2 {
namespace {

constexpr auto kBad = absl::StatusCode::kInvalidArgument;
constexpr auto kLost = absl::StatusCode::kDataLoss;

std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i)));
  return file + header + std::string(data_bytes, '\x01');
}

absl::StatusOr<std::vector<TensorView>> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file.data(), file.size())), "x.safetensors");
}

absl::Status ParseHeader(const std::string& header, size_t data_bytes) {
  return Parse(FileOf(header, data_bytes)).status();
}

// One F32 [2] tensor named "a" with the given fields in place of the usual ones.
std::string OneTensor(const std::string& dtype = R"("F32")", const std::string& shape = "[2]",
                      const std::string& offsets = "[0,8]") {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = FileOf(
      R"({"b":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("e":{"dtype":"I64","shape":[0],"data_offsets":[12,12]}}   )",
      12);
  const auto views = Parse(file);
  ASSERT_TRUE(views.ok()) << views.status();
  ASSERT_EQ(views->size(), 3u);
  EXPECT_EQ((*views)[0].name, "a");
  EXPECT_EQ((*views)[1].name, "b");
  EXPECT_EQ((*views)[1].dtype, DType::kF16);
  EXPECT_EQ((*views)[1].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ((*views)[1].bytes.size(), 4u);
  EXPECT_EQ((*views)[0].bytes.data() + 8, (*views)[1].bytes.data());
  EXPECT_EQ((*views)[2].element_count(), 0);
}

TEST(Safetensors, RefusesFilesWithoutALength) {
  ExpectRefusal(Parse("").status(), kLost, {"8-byte header length", "0 bytes"});
  ExpectRefusal(Parse("1234567").status(), kLost, {"7 bytes", "x.safetensors"});
}

TEST(Safetensors, RefusesAHeaderLargerThanTheFile) {
  std::string file = FileOf("{}", 0);
  file[0] = 3;
  ExpectRefusal(Parse(file).status(), kLost, {"a header of 3 bytes", "a file of 10 bytes"});
  ExpectRefusal(Parse(std::string(12, '\xFF')).status(), kLost, {"18446744073709551615"});
}

TEST(Safetensors, RefusesAHeaderBeyondTheLimit) {
  const std::string header(kMaxHeaderBytes + 1, ' ');
  ExpectRefusal(ParseHeader(header, 0), kBad, {"at most 33554432 bytes"});
}

TEST(Safetensors, RefusesHeadersThatAreNoObjectsOfObjects) {
  ExpectRefusal(ParseHeader("", 0), kBad, {"JSON"});
  ExpectRefusal(ParseHeader("[]", 0), kBad, {"an object"});
  ExpectRefusal(ParseHeader("{\"a\":1}", 0), kBad, {"tensor a", "dtype, shape and data_offsets"});
  ExpectRefusal(ParseHeader("{\"a\":{}}", 0), kBad, {"tensor a"});
  ExpectRefusal(ParseHeader("{\"a\":{\"a\":{\"a\":[[[[1]]]]}}}", 0), kBad, {"nesting"});
  ExpectRefusal(ParseHeader("{\"__metadata__\":{\"a\":1}}", 0), kBad, {"__metadata__"});
}

TEST(Safetensors, RefusesOneNameTwice) {
  const std::string one = OneTensor();
  const std::string twice = one.substr(0, one.size() - 1) + "," + one.substr(1);
  ExpectRefusal(ParseHeader(twice, 8), kBad, {"\"a\" twice"});
}

TEST(Safetensors, RefusesNamesThatDoNotPrint) {
  ExpectRefusal(ParseHeader(R"({"a\nb":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), kBad,
                {"printable"});
  ExpectRefusal(ParseHeader(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), kBad,
                {"a name of 0 bytes"});
}

TEST(Safetensors, RefusesBadShapes) {
  for (const char* shape :
       {"[-1]", "[2.0]", "[\"2\"]", "2", "[1,1,1,1,1,1,1,1,2]", "[18446744073709551615]"}) {
    ExpectRefusal(ParseHeader(OneTensor(R"("F32")", shape), 8), kBad, {"tensor a"});
  }
}

TEST(Safetensors, RefusesShapesWhoseProductOverflows) {
  // 2^62 * 4 bytes and 2^32 * 2^32 elements wrap to small numbers.
  for (const char* shape :
       {"[4611686018427387904]", "[4294967296,4294967296]", "[4294967296,4294967296,0]"}) {
    ExpectRefusal(ParseHeader(OneTensor(R"("F32")", shape), 8), kBad, {"tensor a", "counted"});
  }
}

TEST(Safetensors, RefusesByteCountsThatDoNotFitTheShape) {
  ExpectRefusal(ParseHeader(OneTensor(R"("F16")"), 8), kBad,
                {"expected 4 bytes for F16 [2]", "got 8 bytes"});
  ExpectRefusal(ParseHeader(OneTensor(R"("F32")", "[]"), 8), kBad, {"4 bytes for F32 []"});
}

TEST(Safetensors, RefusesBadOffsets) {
  for (const char* offsets : {"[0]", "[0,8,8]", "[-8,0]", "[0.0,8]", "8", "[8,0]"}) {
    ExpectRefusal(ParseHeader(OneTensor(R"("F32")", "[2]", offsets), 8), kBad, {"tensor a"});
  }
}

TEST(Safetensors, RefusesDataThatEndsTooEarly) {
  ExpectRefusal(ParseHeader(OneTensor(), 7), kLost, {"tensor a", "up to byte 8", "data byte 7"});
  ExpectRefusal(ParseHeader(OneTensor(R"("F32")", "[2]", "[0,18446744073709551615]"), 8), kLost,
                {"tensor a"});
}

TEST(Safetensors, RefusesOverlaps) {
  ExpectRefusal(ParseHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                            7),
                kBad, {"tensor b", "overlapping"});
  ExpectRefusal(ParseHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                            4),
                kBad, {"tensor b", "overlapping"});
}

TEST(Safetensors, RefusesHolesAndTails) {
  ExpectRefusal(ParseHeader(OneTensor(R"("F32")", "[2]", "[4,12]"), 12), kBad,
                {"tensor a", "behind a hole"});
  ExpectRefusal(ParseHeader(OneTensor(), 9), kBad, {"8 bytes of data", "9 bytes"});
}

TEST(Safetensors, KeepsPackedAndUnknownTypesOutOfTheWay) {
  const auto views = Parse(FileOf(OneTensor(R"("F4")", "[16]"), 8));
  ASSERT_TRUE(views.ok()) << views.status();
  EXPECT_EQ(views->front().dtype, DType::kOther);
}

TEST(SafetensorsWriter, WhatItWritesReadsBackAlignedAndComplete) {
  TempDir dir;
  const std::vector<TensorSpec> specs = {{"z", DType::kU8, {3}},
                                         {"b", DType::kF16, {1}},
                                         {"c", DType::kF32, {2, 1}},
                                         {"a", DType::kI32, {}}};
  const auto produce = [](const TensorSpec& spec, const ByteSink& sink) {
    for (int64_t i = 0; i < spec.byte_count(); ++i) {  // one byte at a time is legal
      const std::byte byte{static_cast<unsigned char>(spec.name[0])};
      if (absl::Status status = sink({&byte, 1}); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  const std::string path = dir.File("out.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, specs, produce, IfExists::kRefuse).ok());
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto views = ParseSafetensors(file->bytes(), path);
  ASSERT_TRUE(views.ok()) << views.status();
  ASSERT_EQ(views->size(), 4u);
  for (const TensorView& view : *views) {
    const auto address = reinterpret_cast<uintptr_t>(view.bytes.data());
    EXPECT_EQ(address % static_cast<uintptr_t>(DTypeBytes(view.dtype)), 0u) << view.name;
    for (const std::byte byte : view.bytes) EXPECT_EQ(static_cast<char>(byte), view.name[0]);
  }
  EXPECT_FALSE(WriteSafetensors(path, specs, produce, IfExists::kRefuse).ok());
}

TEST(SafetensorsWriter, AFailingProducerLeavesNoFile) {
  TempDir dir;
  const auto produce = [](const TensorSpec&, const ByteSink&) {
    return absl::ResourceExhaustedError("no");
  };
  const std::string path = dir.File("out.safetensors");
  EXPECT_FALSE(WriteSafetensors(path, {{"a", DType::kU8, {1}}}, produce, IfExists::kRefuse).ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace tp2
