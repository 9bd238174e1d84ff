// A copy of the fake libnvidia-ml with a script of its own (tests/support/fake_nvml). The test's
// target needs add_dependencies(... fake_nvml).
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tp2::testing {

class FakeLibrary {
 public:
  explicit FakeLibrary(const std::string& script) {
    std::string pattern = (std::filesystem::temp_directory_path() / "fake-nvml.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::filesystem::copy_file(std::string(TP2_BIN_DIR) + "/fake_nvml.so", path());
    SetScript(script);
  }
  ~FakeLibrary() { std::filesystem::remove_all(folder_); }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeLibrary& operator=(const FakeLibrary&) = delete;

  std::string path() const { return folder_ + "/libnvidia-ml.so.1"; }
  // What the cards say from the next call on.
  void SetScript(const std::string& script) const {
    std::ofstream(path() + ".new") << script;
    std::filesystem::rename(path() + ".new", path() + ".script");
  }

 private:
  std::string folder_;
};

}  // namespace tp2::testing
