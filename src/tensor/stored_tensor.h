// SPDX-License-Identifier: Apache-2.0
// A tensor as the bytes that a file holds. No tensor library here.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "tensor/disk_type.h"

namespace apus {

struct StoredTensor {
  DiskType type = DiskType::U8;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // of any alignment
  int64_t bytes = 0;
  std::shared_ptr<const void> keep = {};  // what owns the bytes: a mapped file, a vector

  int64_t count() const { return bytes / disk_size(type); }
  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
};

// With memory of its own.
template <class T>
StoredTensor stored(DiskType type, std::vector<int64_t> shape, std::vector<T> values) {
  auto own = std::make_shared<const std::vector<T>>(std::move(values));
  return {type, std::move(shape), reinterpret_cast<const std::byte*>(own->data()),
          static_cast<int64_t>(own->size() * sizeof(T)), own};
}

}  // namespace apus
