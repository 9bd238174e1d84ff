// A small synthetic checkpoint in memory that a test damages and writes out.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/file.h"
#include "libcore/checkpoint/loader.h"
#include "libcore/checkpoint/safetensors.h"
#include "libcore/checkpoint/safetensors_writer.h"
#include "libcore/checkpoint/synthetic.h"

namespace tp2 {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tp2.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The smallest legal sizes: 150 kB, written in milliseconds.
inline SyntheticShape MicroShape(Arch arch = Arch::kV41) {
  SyntheticShape shape = *FindSyntheticShape(arch == Arch::kV41 ? "tiny" : "tiny-v4");
  shape.name = "micro";
  DrafterConfig& config = shape.config;
  config.dim = 128;
  config.vocab = 128;
  config.heads = 2;
  config.experts = 2;
  config.experts_per_token = 1;
  config.stages = 2;
  config.noise_token = 127;
  return shape;
}

class EditableCheckpoint {
 public:
  struct Tensor {
    TensorSpec spec;
    std::string bytes;
  };

  explicit EditableCheckpoint(const SyntheticShape& shape = MicroShape(), uint64_t seed = 1) {
    ThreadPool pool(1);
    const absl::Status written = WriteSynthetic(shape, seed, dir_.path(), pool);
    EXPECT_TRUE(written.ok()) << written;
    const auto file = MappedFile::Open(dir_.File("model.safetensors"));
    EXPECT_TRUE(file.ok()) << file.status();
    const auto views = ParseSafetensors(file->bytes(), "micro");
    EXPECT_TRUE(views.ok()) << views.status();
    for (const TensorView& view : *views) {
      tensors_[view.name] = {{view.name, view.dtype, view.shape},
                             std::string(view.As<char>(), view.bytes.size())};
    }
    config_text_ = SyntheticConfigText(shape, seed);
  }

  std::map<std::string, Tensor>& tensors() { return tensors_; }
  std::string& config_text() { return config_text_; }
  const TempDir& dir() const { return dir_; }

  Tensor& at(const std::string& name) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end())
      ADD_FAILURE() << "the test edits a tensor that is not there: " << name;
    return it == tensors_.end() ? tensors_[name] : it->second;
  }

  // A tensor of zero bytes, or of the given ones.
  void Put(const std::string& name, DType dtype, std::vector<int64_t> shape,
           std::string bytes = {}) {
    const TensorSpec spec = {name, dtype, std::move(shape)};
    bytes.resize(static_cast<size_t>(spec.byte_count()), '\0');
    tensors_[name] = {spec, std::move(bytes)};
  }

  // Overwrites one element.
  template <class T>
  void Poke(const std::string& name, size_t index, T value) {
    std::string& bytes = at(name).bytes;
    ASSERT_LE((index + 1) * sizeof(T), bytes.size());
    std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
  }

  // Writes everything into the folder and opens it.
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open(int64_t max_shard_bytes = kMaxShardBytes) {
    Write(max_shard_bytes);
    return Checkpoint::Open(dir_.path());
  }

  void Write(int64_t max_shard_bytes = kMaxShardBytes) {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::filesystem::remove_all(entry.path());
    }
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors_) specs.push_back(tensor.spec);
    absl::Status status =
        WriteFileAtomically(dir_.File("config.json"), config_text_, IfExists::kRefuse);
    EXPECT_TRUE(status.ok()) << status;
    status = WriteShards(dir_.path(), specs, max_shard_bytes,
                         [this](const TensorSpec& spec, const ByteSink& sink) {
                           const std::string& bytes = tensors_.at(spec.name).bytes;
                           return sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
                         });
    EXPECT_TRUE(status.ok()) << status;
  }

 private:
  TempDir dir_;
  std::map<std::string, Tensor> tensors_;
  std::string config_text_;
};

// The refusal is one line and holds every one of `parts`.
inline void ExpectRefusal(const absl::Status& status, absl::StatusCode code,
                          const std::vector<std::string>& parts) {
  ASSERT_FALSE(status.ok()) << "was accepted";
  const std::string message(status.message());
  EXPECT_EQ(status.code(), code) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no next step: " << message;
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "lacks \"" << part << "\": " << message;
  }
}

}  // namespace tp2
