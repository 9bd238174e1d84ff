// Products: the CUDA op set gives the bits of the CPU's for every width, codebook and row count.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/exl3/test_matrix.h"
#include "tests/gpu/gpu_twin.h"
#include "tests/gpu/op_pair.h"

namespace tp2 {
namespace {

// A random matrix on both sides.
struct MatrixTwin {
  exl3::TestMatrix matrix;
  device::Arena arena;
  exl3::MatrixView host, card;

  MatrixTwin(int k, int n, int bits, exl3::Codebook codebook)
      : matrix(exl3::RandomMatrix(k, n, bits, codebook, 100 * k + n + bits)) {
    host = matrix.view();
    cuda::RepackStaging staging;
    card = *cuda::PlaceMatrix(host, arena, staging);
  }
};

void ExpectSameProduct(const MatrixTwin& matrix, std::vector<float> x_values, int rows) {
  OpPair& ops = GetOpPair("tiny", 1, 0);
  const Twin<float> x = MakeTwin(std::move(x_values));
  Twin<float> y = OutputTwin<float>(int64_t{rows} * matrix.host.n);
  const int k = matrix.host.k;
  const LinearOpArgs host = {&matrix.host, x.host.data(), k, rows, y.host.data()};
  const LinearOpArgs card = {&matrix.card, x.card.data(), k, rows, y.card.data()};
  ops.cpu->Linear(0, {&host, 1});
  ops.cuda->Linear(0, {&card, 1});
  EXPECT_TRUE(SameBits(y)) << "k " << k << " n " << matrix.host.n << " bits " << matrix.host.bits
                           << " rows " << rows;
}

class LinearGpuTest : public testing::TestWithParam<std::tuple<int, exl3::Codebook>> {};

TEST_P(LinearGpuTest, HasTheBitsOfTheCpuForEveryRowCount) {
  TP2_NEEDS_GPU();
  const auto [bits, codebook] = GetParam();
  Rng rng(static_cast<uint64_t>(bits));
  const std::pair<int, int> sizes[] = {{128, 128}, {256, 384}, {640, 128}, {768, 1280}};
  for (const auto& [k, n] : sizes) {
    const MatrixTwin matrix(k, n, bits, codebook);
    for (const int rows : {1, 3, 4, 5, 8, 11, 16, 20, 24, 25, 53}) {
      ExpectSameProduct(matrix, RandomFloats(rng, int64_t{rows} * k), rows);
    }
  }
}

std::vector<std::tuple<int, exl3::Codebook>> AllWidthsAndCodebooks() {
  std::vector<std::tuple<int, exl3::Codebook>> all;
  for (int bits = 1; bits <= exl3::kMaxBits; ++bits) all.push_back({bits, exl3::Codebook::kMul1});
  for (const int bits : {1, 3, 5, 8}) {
    all.push_back({bits, exl3::Codebook::kMcg});
    all.push_back({bits, exl3::Codebook::k3Inst});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Widths, LinearGpuTest, testing::ValuesIn(AllWidthsAndCodebooks()));

// One row of each kind: zeros, a single spike, below the smallest maximum, near fp32's largest,
// an infinity, a NaN, and an ordinary one that must not notice its neighbours.
TEST(LinearGpuTest, AgreesOnRowsAtTheEdgesOfTheRange) {
  TP2_NEEDS_GPU();
  const int k = 384;
  Rng rng(3);
  std::vector<float> x(static_cast<size_t>(7) * k, 0.0f);
  x[k + 17] = 3.0f;
  for (int i = 0; i < k; ++i) {
    x[2 * k + i] = rng.Signed() * 0x1p-120f;
    x[3 * k + i] = rng.Signed() * 0x1p127f;
    x[4 * k + i] = x[5 * k + i] = x[6 * k + i] = rng.Signed();
  }
  x[4 * k + 200] = std::numeric_limits<float>::infinity();
  x[5 * k + 5] = std::numeric_limits<float>::quiet_NaN();
  for (const exl3::Codebook codebook : {exl3::Codebook::kMul1, exl3::Codebook::kMcg}) {
    ExpectSameProduct(MatrixTwin(k, 256, 4, codebook), x, 7);
  }
}

// Products that share a launch, and such that cannot: other widths, codebooks, numbers of outputs,
// k.
TEST(LinearGpuTest, GivesSeveralProductsTheirOwnBits) {
  TP2_NEEDS_GPU();
  OpPair& ops = GetOpPair("tiny", 1, 0);
  const MatrixTwin matrices[] = {
      {1280, 384, 5, exl3::Codebook::kMul1}, {1280, 128, 5, exl3::Codebook::kMul1},
      {1280, 256, 2, exl3::Codebook::kMul1}, {1280, 256, 3, exl3::Codebook::kMcg},
      {256, 640, 5, exl3::Codebook::kMul1},  {256, 128, 6, exl3::Codebook::kMul1}};
  Rng rng(11);
  for (const int rows : {1, 5, 20, 29}) {
    const Twin<float> x = MakeTwin(RandomFloats(rng, int64_t{rows} * 1280 + 64));
    std::vector<Twin<float>> y;
    std::vector<LinearOpArgs> host, card;
    for (const MatrixTwin& matrix : matrices) {
      Twin<float>& out = y.emplace_back(OutputTwin<float>(int64_t{rows} * matrix.host.n));
      const int64_t offset = 4 * static_cast<int64_t>(y.size());
      const int stride = matrix.host.k;
      host.push_back({&matrix.host, x.host.data() + offset, stride, rows, out.host.data()});
      card.push_back({&matrix.card, x.card.data() + offset, stride, rows, out.card.data()});
    }
    ops.cpu->Linear(0, host);
    ops.cuda->Linear(0, card);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_TRUE(SameBits(y[i])) << "product " << i;
  }
}

// Adversarial sums: every activation at the largest quantum of one sign.
TEST(LinearGpuTest, DoesNotOverflowAtTheLongestInput) {
  TP2_NEEDS_GPU();
  const int k = 15360;
  std::vector<float> x(static_cast<size_t>(2) * k, 0.0f);
  // The transform of a spike is flat: |r| is the same everywhere.
  for (int i = 0; i < k; i += 128) x[i] = 1.0f;
  for (int i = 0; i < k; i += 128) x[k + i] = -1.0f;
  ExpectSameProduct(MatrixTwin(k, 128, 8, exl3::Codebook::kMul1), x, 2);
  ExpectSameProduct(MatrixTwin(k, 128, 1, exl3::Codebook::kMul1), x, 2);
}

}  // namespace
}  // namespace tp2
