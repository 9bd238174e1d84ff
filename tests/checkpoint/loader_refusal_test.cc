// One test per mistake that a folder can hold: each is refused in one line that names it.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/checkpoint/editable_checkpoint.h"

namespace tp2 {
namespace {

constexpr auto kBad = absl::StatusCode::kInvalidArgument;

TEST(LoaderRefusal, MicroCheckpointsOfBothArchsOpen) {
  for (const Arch arch : {Arch::kV41, Arch::kV4}) {
    EditableCheckpoint pack(MicroShape(arch));
    const auto checkpoint = pack.Open();
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->weights().head_mix_fn != nullptr, arch == Arch::kV4);
  }
}

TEST(LoaderRefusal, EveryTensorIsNeededExceptTheUnusedBiasAndTheCodebookFlag) {
  for (const char* name :
       {"embed.weight", "head.trellis", "mtp.0.main_proj.suh", "mtp.0.main_norm.weight",
        "mtp.1.attn.wkv.svh", "mtp.0.attn.attn_sink", "mtp.1.attn.wo_a.scale", "mtp.0.hc_ffn_base",
        "mtp.1.ffn.gate.bias", "mtp.1.ffn.shared_experts.w2.trellis",
        "mtp.0.ffn.experts.1.w3.trellis", "mtp.1.norm.weight", "mtp.1.markov_head.head.weight",
        "mtp.1.confidence_head.proj.weight"}) {
    EditableCheckpoint pack;
    ASSERT_EQ(pack.tensors().erase(name), 1u) << name;
    ExpectRefusal(pack.Open().status(), kBad,
                  {std::string("tensor ") + name, "got no such tensor", "incomplete"});
  }
  EditableCheckpoint pack;
  ASSERT_EQ(pack.tensors().erase("mtp.0.ffn.gate.bias_vl"), 1u);
  EXPECT_TRUE(pack.Open().ok());
}

TEST(LoaderRefusal, MissingTensorOfADeepSeekPackAdvisesQuantization) {
  EditableCheckpoint pack;
  pack.tensors().erase("mtp.0.attn.wq_a.trellis");
  pack.Put("mtp.0.attn.wq_a.weight", DType::kFp8E4m3, {128, 128});
  ExpectRefusal(pack.Open().status(), kBad,
                {"mtp.0.attn.wq_a.trellis", "an unquantized mtp.0.attn.wq_a.weight", "quantize"});
}

TEST(LoaderRefusal, UnexpectedDrafterTensor) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.enorm.weight", DType::kBf16, {128});
  ExpectRefusal(pack.Open().status(), kBad, {"tensor mtp.0.enorm.weight", "unexpected"});
}

TEST(LoaderRefusal, TrunkTensorsAreIgnored) {
  EditableCheckpoint pack;
  pack.Put("layers.0.attn.wq_a.weight", DType::kFp8E4m3, {4, 4});
  pack.Put("norm.weight", DType::kBf16, {128});
  const auto checkpoint = pack.Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const TensorView& view : (*checkpoint)->tensors()) EXPECT_NE(view.name, "norm.weight");
}

TEST(LoaderRefusal, WrongShape) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.attn_norm.weight", DType::kBf16, {64});
  ExpectRefusal(pack.Open().status(), kBad,
                {"mtp.0.attn_norm.weight", "expected BF16 or F16 [128]", "got BF16 [64]"});
}

TEST(LoaderRefusal, WrongTrellisShapeStillNamesTheWidthItHas) {
  EditableCheckpoint pack;
  pack.Put("head.trellis", DType::kI16, {8, 16, 96});
  ExpectRefusal(pack.Open().status(), kBad,
                {"head.trellis", "expected I16 [8, 8, 96]", "got I16 [8, 16, 96]"});
}

TEST(LoaderRefusal, WrongDtype) {
  EditableCheckpoint pack;
  pack.Put("mtp.1.markov_head.embed.weight", DType::kF32, {128, 32});
  ExpectRefusal(pack.Open().status(), kBad,
                {"mtp.1.markov_head.embed.weight", "BF16 or F16 [128, 32]", "got F32 [128, 32]"});
}

TEST(LoaderRefusal, BothCodebookFlags) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.attn.wkv.mcg", DType::kI32, {});
  ExpectRefusal(pack.Open().status(), kBad,
                {"mtp.0.attn.wkv.mul1", "one codebook flag", "mtp.0.attn.wkv.mcg"});
}

TEST(LoaderRefusal, BiasOfAPackedMatrix) {
  EditableCheckpoint pack;
  pack.Put("head.bias", DType::kF16, {128});
  ExpectRefusal(pack.Open().status(), kBad, {"tensor head.bias", "no bias"});
}

TEST(LoaderRefusal, HalfIntegerWidth) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.ffn.experts.0.w1.trellis", DType::kI16, {8, 16, 24});
  ExpectRefusal(pack.Open().status(), kBad,
                {"mtp.0.ffn.experts.0.w1.trellis", "24 units per tile, a half-integer K"});
}

TEST(LoaderRefusal, WidthsOutsideOneToEight) {
  for (const int units : {0, 4, 144}) {
    EditableCheckpoint pack;
    pack.Put("head.trellis", DType::kI16, {8, 8, units});
    ExpectRefusal(pack.Open().status(), kBad,
                  {"head.trellis", "K = 1 .. 8", std::to_string(units) + " units"});
  }
}

TEST(LoaderRefusal, NonFiniteChannelScales) {
  for (const char* name : {"head.suh", "mtp.0.ffn.experts.1.w2.svh"}) {
    EditableCheckpoint pack;
    pack.Poke<uint16_t>(name, 3, 0x7E00);
    ExpectRefusal(pack.Open().status(), kBad,
                  {std::string("tensor ") + name, "finite values", "0x7e00 at element 3"});
  }
}

TEST(LoaderRefusal, NonFiniteValuesOfEveryPlainType) {
  EditableCheckpoint pack;
  pack.Poke<uint16_t>("mtp.1.attn.q_norm.weight", 0, 0xFF80);
  ExpectRefusal(pack.Open().status(), kBad, {"mtp.1.attn.q_norm.weight", "0xff80 at element 0"});
  EditableCheckpoint floats;
  floats.Poke<float>("mtp.0.hc_attn_fn", 77, std::numeric_limits<float>::quiet_NaN());
  ExpectRefusal(floats.Open().status(), kBad, {"mtp.0.hc_attn_fn", "at element 77"});
  EditableCheckpoint embedding;
  embedding.Poke<uint16_t>("embed.weight", 128 * 128 - 1, 0x7F80);
  ExpectRefusal(embedding.Open().status(), kBad, {"embed.weight", "at element 16383"});
}

TEST(LoaderRefusal, AllZeroOutputScalesButNotOneDeadOutput) {
  EditableCheckpoint pack;
  pack.Poke<uint16_t>("head.svh", 5, 0);
  EXPECT_TRUE(pack.Open().ok());
  pack.at("head.svh").bytes.assign(256, '\0');
  ExpectRefusal(pack.Open().status(), kBad, {"head.svh", "zeros only"});
}

TEST(LoaderRefusal, Fp8NanCode) {
  for (const uint8_t code : {uint8_t{0x7F}, uint8_t{0xFF}}) {
    EditableCheckpoint pack;
    pack.Poke<uint8_t>("mtp.0.attn.wo_a.weight", 1000, code);
    ExpectRefusal(pack.Open().status(), kBad, {"mtp.0.attn.wo_a.weight", "at element 1000"});
  }
}

TEST(LoaderRefusal, BlockScalesOfAnotherBlockSize) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.attn.wo_a.scale", DType::kF32, {2, 1});
  ExpectRefusal(pack.Open().status(), kBad, {"mtp.0.attn.wo_a.scale", "[8, 4]", "got F32 [2, 1]"});
}

TEST(LoaderRefusal, BlockScaleThatIsNoPowerOfTwo) {
  for (const float scale :
       {0.0f, -0.5f, 0.75f, 0x1p101f, 0x1p-101f, std::numeric_limits<float>::infinity()}) {
    EditableCheckpoint pack;
    pack.Poke<float>("mtp.1.attn.wo_a.scale", 2, scale);
    ExpectRefusal(pack.Open().status(), kBad,
                  {"mtp.1.attn.wo_a.scale", "powers of two", "element 2"});
  }
  EditableCheckpoint pack;
  pack.Poke<float>("mtp.1.attn.wo_a.scale", 2, 0x1p-100f);
  EXPECT_TRUE(pack.Open().ok());
}

TEST(LoaderRefusal, ExponentByteScalesOutsideTheRange) {
  for (const unsigned char byte : {0, 26, 228, 255}) {
    EditableCheckpoint pack;
    std::string bytes(32, '\x7F');
    bytes[9] = static_cast<char>(byte);
    pack.Put("mtp.0.attn.wo_a.scale", DType::kFp8E8m0, {8, 4}, bytes);
    ExpectRefusal(pack.Open().status(), kBad,
                  {"mtp.0.attn.wo_a.scale", "exponent byte " + std::to_string(byte), "element 9"});
  }
}

TEST(LoaderRefusal, BothFormsOfTheGroupedProjection) {
  EditableCheckpoint pack;
  pack.Put("mtp.0.attn.wo_a.slice.0.trellis", DType::kI16, {8, 8, 80});
  ExpectRefusal(pack.Open().status(), kBad, {"mtp.0.attn.wo_a.weight", "one form"});
}

TEST(LoaderRefusal, OneMissingSliceOfTheGroupedProjection) {
  SyntheticShape shape = MicroShape();
  shape.is_mixed = true;
  EditableCheckpoint pack(shape);
  ASSERT_EQ(pack.tensors().erase("mtp.0.attn.wo_a.slice.1.trellis"), 1u);
  ExpectRefusal(pack.Open().status(), kBad, {"mtp.0.attn.wo_a.slice.1.trellis", "no such tensor"});
}

TEST(LoaderRefusal, PlainMtpCheckpoint) {
  EditableCheckpoint pack;
  std::erase_if(pack.tensors(),
                [](const auto& item) { return item.first.find("main_proj") != std::string::npos; });
  ExpectRefusal(pack.Open().status(), kBad, {"mtp.0.main_proj", "plain MTP"});
}

TEST(LoaderRefusal, StageCountThatTheFilesDoNotHave) {
  EditableCheckpoint pack;
  SyntheticShape other = MicroShape();
  other.config.stages = 3;
  pack.config_text() = SyntheticConfigText(other, 1);
  ExpectRefusal(pack.Open().status(), kBad, {"drafter stages", "3 by config.json", "mtp.1"});
}

TEST(LoaderRefusal, TruncatedShard) {
  EditableCheckpoint pack;
  pack.Write();
  const std::string path = pack.dir().File("model.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  ExpectRefusal(Checkpoint::Open(pack.dir().path()).status(), absl::StatusCode::kDataLoss,
                {"a file that ends at data byte", path, "copy the file again"});
}

TEST(LoaderRefusal, MissingFilesAreNamed) {
  EditableCheckpoint pack;
  pack.Write();
  std::filesystem::remove(pack.dir().File("model.safetensors"));
  ExpectRefusal(Checkpoint::Open(pack.dir().path()).status(), absl::StatusCode::kDataLoss,
                {"model.safetensors"});
  std::filesystem::remove(pack.dir().File("config.json"));
  ExpectRefusal(Checkpoint::Open(pack.dir().path()).status(), absl::StatusCode::kDataLoss,
                {"config.json"});
}

}  // namespace
}  // namespace tp2
