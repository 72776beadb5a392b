// SPDX-License-Identifier: Apache-2.0
// A model in GGUF files, as its tensors are in a HuggingFace checkpoint: their names, one for each expert, and the
// order of rows.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "gguf/names.h"

namespace apus {

// In the folder that stands for a GGUF file, which no file of a user's is called.
inline constexpr const char* kGgufFile = ".apus.gguf";

struct GgufSlice {
  GgmlType type;
  std::vector<int64_t> shape;
  const std::byte* data;  // in the mapped file
  int64_t bytes;
  // Above 0: a matrix of that many heads whose rows are in the order of neighbours.
  int64_t heads = 0;
  int shift = 0;  // every number is larger by this than HuggingFace's

  int64_t rows() const { return shape.size() > 1 ? shape[0] : heads > 0 ? shape[0] : 1; }
  int64_t width() const;
  // Can be used as it lies in the file, by who knows its type.
  bool plain() const { return heads == 0 && shift == 0 && !ggml_form(type).quantised(); }
  // A row, by its place in HuggingFace's order.
  const std::byte* row(int64_t i) const;
  void read_rows(int64_t first, int64_t count, float* out) const;
};

class GgufModel {
 public:
  // A file, or the first of several parts (name-00001-of-00003.gguf), which lie beside it. Fault::Model for what is not
  // read, in one message.
  static std::shared_ptr<const GgufModel> open(const std::filesystem::path& path);
  // That of a folder that stands for a GGUF file; null for any other folder.
  static std::shared_ptr<const GgufModel> in_folder(const std::filesystem::path& dir);

  const GgufHeader& header() const { return parts_[0].header; }  // of the first part, which has all settings
  const GgufFamily& family() const { return *family_; }
  // A setting of the architecture: "qwen2.context_length".
  std::string key(const std::string& name) const { return std::string(family_->architecture) + "." + name; }
  const std::map<std::string, GgufSlice>& tensors() const { return tensors_; }
  const GgufSlice* find(const std::string& name) const;
  // What each period of the rotary embedding is multiplied by; empty: nothing is said.
  std::vector<float> rope_factors() const { return factors(kRopeFrequencies); }
  // Of a tensor of such factors, by its name in the file.
  std::vector<float> factors(const char* name) const;
  bool maps(const void* address) const;  // lies it in one of the files?
  void forget(const std::string& name) const;
  int64_t bytes() const;  // of the files
  size_t files() const { return parts_.size(); }

 private:
  struct Part {
    std::unique_ptr<MappedFile> file;
    GgufHeader header;
  };
  explicit GgufModel(const std::filesystem::path& path);
  void add(const Part& part, const GgufTensor& tensor, std::vector<std::string>& unknown);
  int64_t heads_of(const std::string& gguf) const;

  std::vector<Part> parts_;
  const GgufFamily* family_ = nullptr;
  std::map<std::string, GgufSlice> tensors_;
  std::map<std::string, std::vector<float>> factors_;
};

}  // namespace apus
