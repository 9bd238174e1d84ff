// The vector kernels of the streams against math/mixing.h, bit for bit.
#include "libcore/ops/cpu/stream_kernels.h"

#include <bit>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "libcore/base/rng.h"

namespace tp2 {
namespace {

class StreamKernels : public testing::TestWithParam<int> {  // columns
 protected:
  StreamKernels()
      : columns_(GetParam()), streams_(static_cast<size_t>(kStreams) * columns_), y_(columns_) {
    for (float& value : streams_) value = random_.Signed();
    for (float& value : y_) value = random_.Signed();
  }
  void StreamsAt(int column, float* h) const {
    for (int s = 0; s < kStreams; ++s) h[s] = streams_[s * columns_ + column];
  }

  Rng random_{11};
  int columns_;
  std::vector<float> streams_, y_;
};

TEST_P(StreamKernels, CollapseHasTheBitsOfOneElementAfterTheOther) {
  const float weights[kStreams] = {0.3f, -1.7f, 0.9f, 1e-3f};
  std::vector<float> x(static_cast<size_t>(columns_));
  CollapseStreams(weights, streams_.data(), columns_, x.data());
  for (int i = 0; i < columns_; ++i) {
    float h[kStreams];
    StreamsAt(i, h);
    EXPECT_EQ(std::bit_cast<uint32_t>(CollapseElement(weights, h)), std::bit_cast<uint32_t>(x[i]));
  }
}

TEST_P(StreamKernels, UpdateHasTheBitsOfOneElementAfterTheOther) {
  MixCoefficients mix;
  for (int j = 0; j < kStreams; ++j) {
    mix.post[j] = random_.Signed();
    for (int s = 0; s < kStreams; ++s) mix.comb[s][j] = random_.Signed();
  }
  std::vector<float> updated = streams_;
  UpdateStreams(mix, y_.data(), columns_, updated.data());
  for (int i = 0; i < columns_; ++i) {
    float h[kStreams];
    StreamsAt(i, h);
    for (int j = 0; j < kStreams; ++j) {
      EXPECT_EQ(std::bit_cast<uint32_t>(UpdateElement(mix, j, y_[i], h)),
                std::bit_cast<uint32_t>(updated[j * columns_ + i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, StreamKernels, testing::Values(3, 16, 128, 1021));

}  // namespace
}  // namespace tp2
