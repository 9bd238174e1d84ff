// A named stretch of a thread's time for NVIDIA's profilers (NVTX), in builds with CUDA; nothing in
// others. Costs a look at a null pointer when no profiler listens.
#pragma once

#include <cstdint>

namespace tp2::server {

class ProfileRange {
 public:
  // `name` is a literal; `round` is shown with it.
  explicit ProfileRange(const char* name, uint64_t round = 0);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace tp2::server
