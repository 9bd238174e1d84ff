// One array on the host, read by the CPU op set, and its copy on the card, read by the CUDA op set;
// and the comparison of the two, bit for bit.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/rng.h"
#include "libcore/device/buffer.h"
#include "libcore/math/bf16.h"

namespace tp2 {

template <class T>
struct Twin {
  std::vector<T> host;
  device::Buffer<T> card;
};

template <class T>
void CopyToCard(Twin<T>& twin) {
  TP2_CHECK(cudaMemcpy(twin.card.data(), twin.host.data(), twin.host.size() * sizeof(T),
                       cudaMemcpyHostToDevice) == cudaSuccess);
  TP2_CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

template <class T>
Twin<T> MakeTwin(std::vector<T> values) {
  Twin<T> twin;
  twin.host = std::move(values);
  absl::StatusOr<device::Buffer<T>> card =
      device::Buffer<T>::Create(static_cast<int64_t>(twin.host.size()));
  TP2_CHECK(card.ok());
  twin.card = *std::move(card);
  CopyToCard(twin);
  return twin;
}

// For outputs: different garbage on both sides, so that an element that nobody writes is seen.
template <class T>
Twin<T> OutputTwin(int64_t count) {
  Twin<T> twin = MakeTwin(std::vector<T>(static_cast<size_t>(count)));
  std::memset(static_cast<void*>(twin.host.data()), 0x11, twin.host.size() * sizeof(T));
  TP2_CHECK(cudaMemset(twin.card.data(), 0x22, twin.host.size() * sizeof(T)) == cudaSuccess);
  TP2_CHECK(cudaDeviceSynchronize() == cudaSuccess);
  return twin;
}

// Uniform in [-unit, unit), a tenth of them eight times larger.
inline std::vector<float> RandomFloats(Rng& rng, int64_t count, float unit = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rng.Signed() * (rng.Below(10) == 0 ? 8 * unit : unit);
  return values;
}

inline std::vector<Bf16> RandomBf16s(Rng& rng, int64_t count) {
  std::vector<Bf16> values;
  for (const float value : RandomFloats(rng, count)) values.push_back(ToBf16(value));
  return values;
}

inline bool BothNan(float a, float b) { return std::isnan(a) && std::isnan(b); }
template <class T>
bool BothNan(const T&, const T&) {
  return false;
}

// The first `count` elements (all without it) have equal bits; NaNs are equal to each other.
template <class T>
testing::AssertionResult SameBits(const Twin<T>& twin, int64_t count = -1) {
  const size_t extent = count < 0 ? twin.host.size() : static_cast<size_t>(count);
  std::vector<T> card(extent);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) return testing::AssertionFailure() << cudaGetErrorString(error);
  TP2_CHECK(cudaMemcpy(card.data(), twin.card.data(), extent * sizeof(T), cudaMemcpyDeviceToHost) ==
            cudaSuccess);
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < extent; ++i) {
    if (std::memcmp(&card[i], &twin.host[i], sizeof(T)) == 0) continue;
    if (BothNan(card[i], twin.host[i])) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  testing::AssertionResult failure = testing::AssertionFailure();
  failure << wrong << " of " << extent << " differ, first at " << first << ": card "
          << testing::PrintToString(card[first]) << ", CPU "
          << testing::PrintToString(twin.host[first]);
  return failure;
}

}  // namespace tp2
