// A synthetic checkpoint in a folder of its own, removed at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "libcore/base/thread_pool.h"
#include "libcore/checkpoint/synthetic.h"
#include "libcore/model/synthetic_shape.h"

namespace tp2 {

class TempModel {
 public:
  explicit TempModel(const char* shape, uint64_t seed = 1)
      : TempModel(*FindSyntheticShape(shape), seed) {}
  explicit TempModel(const SyntheticShape& shape, uint64_t seed = 1)
      : root_(::testing::TempDir() + "tp2_model_XXXXXX") {
    EXPECT_NE(::mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directory(dir());
    ThreadPool pool(2);
    EXPECT_TRUE(WriteSynthetic(shape, seed, dir(), pool).ok());
  }
  ~TempModel() { std::filesystem::remove_all(root_); }
  TempModel(const TempModel&) = delete;
  TempModel& operator=(const TempModel&) = delete;

  std::string dir() const { return root_ + "/model"; }
  std::string path(const std::string& name) const { return root_ + "/" + name; }

 private:
  std::string root_;
};

}  // namespace tp2
