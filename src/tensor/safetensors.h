// SPDX-License-Identifier: Apache-2.0
// safetensors files: read by mapping (no copy), written atomically.
// A checkpoint folder with an index is one TensorFolder.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "tensor/dtype.h"
#include "tensor/safetensors_header.h"

namespace apus {

class SafetensorsFile : public std::enable_shared_from_this<SafetensorsFile> {
 public:
  static std::shared_ptr<SafetensorsFile> open(const std::filesystem::path& path);
  const std::map<std::string, TensorEntry>& entries() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const std::filesystem::path& path() const { return file_.path(); }

  // A read-only view of the mapped file that keeps it open; f8 and misaligned tensors are copies.
  // Fault::Model if absent.
  at::Tensor tensor(const std::string& name) const;
  bool maps(const void* address) const;
  void forget(const std::string& name) const;  // give the tensor's pages back to the system

 private:
  explicit SafetensorsFile(const std::filesystem::path& path);
  MappedFile file_;
  SafetensorsHeader header_;
};

class GgufModel;  // gguf/model.h

// All tensors of a model folder: model.safetensors, or the shards of model.safetensors.index.json; or of the GGUF file
// that the folder stands for.
class TensorFolder {
 public:
  explicit TensorFolder(const std::filesystem::path& dir, const std::string& stem = "model");
  const TensorEntry* find(const std::string& name) const;
  std::vector<std::string> names() const;
  // Quantised ones become `wide`; others are as they lie there, whatever it says.
  at::Tensor tensor(const std::string& name, at::ScalarType wide = at::kFloat) const;
  bool maps(const at::Tensor& tensor) const;  // lies it in one of the files?
  void forget(const std::string& name) const;
  int64_t bytes() const;  // of all tensors

 private:
  std::shared_ptr<const GgufModel> gguf_;  // then its tensors are all there are
  std::map<std::string, TensorEntry> of_gguf_;
  std::map<std::string, std::shared_ptr<SafetensorsFile>> file_of_;
};

// A file whose tensors arrive one at a time, in any order: memory is one tensor. Visible only after commit().
class SafetensorsWriter {
 public:
  struct Spec {
    std::string name;
    at::ScalarType type;
    std::vector<int64_t> shape;
  };
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Spec>& specs,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
  void add(const std::string& name, const at::Tensor& tensor);  // shape and type must be as announced
  void commit();                                                // Fault::Bug when a tensor is missing

 private:
  AtomicFile file_;
  SafetensorsHeader header_;
  std::map<std::string, bool> written_;
};

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace apus
