#include "libcore/checkpoint/manifest.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libcore/base/check.h"

namespace tp2 {

std::vector<uint64_t> ContentDigests(const std::vector<TensorView>& tensors, ThreadPool& pool) {
  std::vector<uint64_t> digests(tensors.size());
  pool.ParallelFor(static_cast<int64_t>(tensors.size()),
                   [&](int64_t index) { digests[index] = Xxh3::Of(tensors[index].bytes); });
  return digests;
}

std::string ManifestText(const std::vector<TensorView>& tensors,
                         const std::vector<uint64_t>& digests) {
  TP2_CHECK(tensors.size() == digests.size());
  std::string text;
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::StrAppend(&text, tensors[i].name, " ", DTypeName(tensors[i].dtype), " [",
                    absl::StrJoin(tensors[i].shape, ","), "] ", Hex64(digests[i]), "\n");
  }
  return text;
}

Sha256Digest IdentityOf(const std::vector<TensorView>& tensors,
                        const std::vector<uint64_t>& digests) {
  return Sha256(ManifestText(tensors, digests));
}

}  // namespace tp2
