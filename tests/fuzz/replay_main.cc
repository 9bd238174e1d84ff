// Runs a fuzz target over the files of its corpus folders: the part of fuzzing that every build
// does.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t byte_count);

int main(int argc, char** argv) {
  int file_count = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      std::fprintf(stderr, "%s\n", path.c_str());
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++file_count;
    }
  }
  std::fprintf(stderr, "replayed %d inputs\n", file_count);
  return file_count > 0 ? 0 : 1;  // an empty corpus proves nothing
}
