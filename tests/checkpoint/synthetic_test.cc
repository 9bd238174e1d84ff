#include "libcore/checkpoint/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "libcore/base/digest.h"
#include "libcore/checkpoint/inventory.h"
#include "libcore/checkpoint/synthetic_fill.h"
#include "libcore/exl3/decode.h"
#include "libcore/math/fp8.h"
#include "tests/checkpoint/editable_checkpoint.h"

namespace tp2 {
namespace {

std::string IdentityOf(const SyntheticShape& shape, uint64_t seed, int threads) {
  TempDir dir;
  ThreadPool pool(threads);
  const absl::Status written = WriteSynthetic(shape, seed, dir.path(), pool);
  EXPECT_TRUE(written.ok()) << written;
  const auto checkpoint = Checkpoint::Open(dir.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return checkpoint.ok() ? Hex((*checkpoint)->IdentityDigest()) : "";
}

// A change here changes every recorded result on these shapes.
TEST(Synthetic, SmallShapesHaveTheirRecordedIdentities) {
  EXPECT_EQ(IdentityOf(*FindSyntheticShape("tiny"), 1, 1),
            "55c6fe9a3b2cc904f4eb5ddf038fd3f91f9712810b6dd81ae956744f90ef883d");
  EXPECT_EQ(IdentityOf(*FindSyntheticShape("tiny-v4"), 1, 1),
            "466e5c5de1f9a7b1c394732800153c6d4ce843c50bd63f498bf1e5ea64309018");
  EXPECT_EQ(IdentityOf(*FindSyntheticShape("tiny-mixed"), 1, 1),
            "dcb2b6b0345b83438e15b5d5ea7714729bfb9a2a24e9d15a19ff00ea5b98019e");
}

TEST(Synthetic, MediumHasItsRecordedIdentityForAnyNumberOfThreads) {
  const SyntheticShape& shape = *FindSyntheticShape("medium");
  const char kIdentity[] = "4cb7a582f03c34eea483e86d961987a65be05fbca5daa161a78c24dae5d5a8c5";
  EXPECT_EQ(IdentityOf(shape, 1, 1), kIdentity);
  EXPECT_EQ(IdentityOf(shape, 1, 3), kIdentity);
}

TEST(Synthetic, AnotherSeedGivesOtherBytesInEveryRandomTensor) {
  EditableCheckpoint first(MicroShape(), 1);
  EditableCheckpoint second(MicroShape(), 2);
  for (auto& [name, tensor] : first.tensors()) {
    if (name.ends_with(".mul1") || name.ends_with(".scale")) continue;
    EXPECT_NE(tensor.bytes, second.at(name).bytes) << name;
  }
}

TEST(Synthetic, NoTwoTensorsOfOneShapeAreEqual) {
  EditableCheckpoint pack;
  std::set<std::string> contents;
  for (auto& [name, tensor] : pack.tensors()) {
    if (name.ends_with(".mul1") || name.ends_with(".scale") || tensor.bytes.size() < 64) continue;
    EXPECT_TRUE(contents.insert(tensor.bytes).second) << name;
  }
}

TEST(Synthetic, AnyPieceCanBeMadeWithoutTheRest) {
  for (const auto& [kind, dtype] :
       std::initializer_list<std::pair<FillKind, DType>>{{FillKind::kBits, DType::kI16},
                                                         {FillKind::kSigned, DType::kF16},
                                                         {FillKind::kBell, DType::kF32},
                                                         {FillKind::kFp8Bell, DType::kFp8E4m3}}) {
    const Fill fill = {.kind = kind, .center = 1, .spread = 1};
    const auto element_bytes = static_cast<size_t>(DTypeBytes(dtype));
    std::vector<std::byte> whole(64 * element_bytes);
    FillElements(fill, dtype, 7, 0, whole);
    std::vector<std::byte> part(32 * element_bytes);
    FillElements(fill, dtype, 7, 32, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 32 * element_bytes));
  }
}

TEST(Synthetic, BellHasMeanZeroAndVarianceOne) {
  std::vector<float> values(1 << 20);
  FillElements({.kind = FillKind::kBell, .spread = 1}, DType::kF32, 3, 0,
               std::as_writable_bytes(std::span(values)));
  double sum = 0;
  double squares = 0;
  float largest = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
    largest = std::max(largest, std::fabs(value));
  }
  const double count = static_cast<double>(values.size());
  // Five standard errors of the mean and of the variance (kurtosis of four uniforms: 2.7).
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(1.7 / count));
  EXPECT_LT(largest, 3.47f);
}

TEST(Synthetic, Fp8CodesAreTheNearestToTheirValues) {
  std::vector<std::byte> codes(1 << 16);
  std::vector<float> values(1 << 16);
  FillElements({.kind = FillKind::kFp8Bell, .spread = 100}, DType::kFp8E4m3, 5, 0, codes);
  FillElements({.kind = FillKind::kBell, .spread = 100}, DType::kF32, 5, 0,
               std::as_writable_bytes(std::span(values)));
  for (size_t i = 0; i < codes.size(); ++i) {
    const Fp8E4m3 code{static_cast<uint8_t>(codes[i])};
    ASSERT_EQ(ToFloat(code), RoundToFp8E4m3(values[i])) << i;
  }
}

// Inputs of magnitude 1 give outputs of magnitude gain: the scales of 1 / sqrt(k) are right.
TEST(Synthetic, DecodedMatricesHaveTheirGain) {
  TempDir dir;
  ThreadPool pool(2);
  ASSERT_TRUE(WriteSynthetic(*FindSyntheticShape("tiny-mixed"), 1, dir.path(), pool).ok());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const DrafterWeights& weights = (*checkpoint)->weights();
  const auto gain = [](const exl3::MatrixView& matrix) {
    double squares = 0;
    for (const double value : exl3::DenseWeights(matrix, exl3::WeightForm::kFp16)) {
      squares += value * value;
    }
    return std::sqrt(squares / matrix.n);
  };
  // Both scales vary uniformly by 40 %: their root mean square is 2.7 % above the center each.
  EXPECT_NEAR(gain(weights.head), 2.5 * 1.053, 0.15);
  EXPECT_NEAR(gain(weights.main_proj), 0.6 * 1.053, 0.04);
  EXPECT_NEAR(gain(weights.stages[0].experts[0].w1), 4.5 * 1.053, 0.3);
  EXPECT_NEAR(gain(weights.stages[2].experts[5].w2), 0.135 * 1.053, 0.01);
}

TEST(Synthetic, FullSizeMatchesTheSpecificationsMemoryTable) {
  const SyntheticShape& shape = *FindSyntheticShape("v41-flash");
  std::vector<TensorView> views;
  for (const TensorSpec& spec : SyntheticSpecs(shape)) {
    TensorView view = {
        .name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .bytes = {}, .file = ""};
    // Only the count of the bytes is read.
    view.bytes = {static_cast<const std::byte*>(nullptr), static_cast<size_t>(spec.byte_count())};
    views.push_back(view);
  }
  std::map<std::string, double> mib;
  for (const PartTotal& total : PartTotals(BuildInventory(views))) {
    mib[total.part] = static_cast<double>(total.stored_bytes) / (1 << 20);
  }
  EXPECT_NEAR(mib["embedding"], 1262.5, 0.05);
  EXPECT_NEAR(mib["head"], 473.7, 0.05);
  EXPECT_NEAR(mib["experts"], 3256.3, 0.05);
  EXPECT_NEAR(mib["dense"], 230.2, 0.06);
  EXPECT_NEAR(mib["main_proj"], 46.9, 0.05);
  EXPECT_NEAR(mib["wo_a"], 96.4, 0.05);
  EXPECT_NEAR(mib["markov"], 2 * 63.1, 0.06);
}

}  // namespace
}  // namespace tp2
