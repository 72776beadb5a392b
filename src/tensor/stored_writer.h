// SPDX-License-Identifier: Apache-2.0
// A safetensors file whose tensors come one at a time, and are not known before: the header stands in a space that was
// left for it. No tensor library here.
#pragma once

#include <filesystem>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "tensor/stored_tensor.h"

namespace apus {

class StoredWriter {
 public:
  // header_space: bytes that the header takes at most.
  StoredWriter(const std::filesystem::path& path, int64_t header_space);
  static int64_t header_space_for(const std::string& tensor) { return static_cast<int64_t>(tensor.size()) + 160; }

  void add(const std::string& name, const StoredTensor& tensor);
  void commit();                          // visible only now
  int64_t bytes() const { return end_; }  // of tensors so far

 private:
  AtomicFile file_;
  int64_t space_, end_ = 0;
  Json header_;
};

}  // namespace apus
