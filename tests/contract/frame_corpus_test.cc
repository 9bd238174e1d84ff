// The fuzz target over its corpus, and over seeded mutations of it: a little fuzzing in every
// build.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "libcore/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count);

namespace tp2::contract {
namespace {

using Input = std::vector<uint8_t>;

std::vector<Input> Corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(TP2_SOURCE_DIR "/tests/fuzz/corpus/frame")) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

TEST(FrameCorpus, IsTakenWhole) {
  const std::vector<Input> corpus = Corpus();
  ASSERT_GE(corpus.size(), 19u);
  for (const Input& input : corpus) {
    EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

TEST(FrameCorpus, IsTakenWithAnyBytesChanged) {
  const std::vector<Input> corpus = Corpus();
  Rng rng(1);
  for (int round = 0; round < 50'000; ++round) {
    Input input = corpus[rng.Below(corpus.size())];
    for (uint64_t change = 1 + rng.Below(3); change > 0 && !input.empty(); --change) {
      input[rng.Below(input.size())] = static_cast<uint8_t>(rng.Next());
    }
    if (rng.Below(8) == 0) input.resize(rng.Below(input.size() + 40));
    EXPECT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}

}  // namespace
}  // namespace tp2::contract
