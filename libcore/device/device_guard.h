// Makes a device current for a scope and the former one afterwards.
#pragma once

#include <cuda_runtime_api.h>

namespace tp2::device {

class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal) {
    is_changed_ = cudaGetDevice(&former_) == cudaSuccess && former_ != ordinal &&
                  cudaSetDevice(ordinal) == cudaSuccess;
  }
  ~DeviceGuard() {
    if (is_changed_) cudaSetDevice(former_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int former_ = 0;
  bool is_changed_ = false;
};

}  // namespace tp2::device
