// SPDX-License-Identifier: Apache-2.0
// Reading FlatBuffers without generated code: what Arrow writes its messages in.
// Every access is checked against the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace apus {

class FlatBytes {
 public:
  FlatBytes(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}
  template <class T>
  T at(size_t offset) const {
    require(offset <= bytes_.size() && sizeof(T) <= bytes_.size() - offset, Fault::Data, where_,
            ": damaged Arrow message");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string_view text(size_t offset, size_t count) const {
    require(offset <= bytes_.size() && count <= bytes_.size() - offset, Fault::Data, where_, ": damaged Arrow message");
    return bytes_.substr(offset, count);
  }

 private:
  std::string_view bytes_, where_;
};

class FlatVector;

class FlatTable {
 public:
  FlatTable() = default;
  static FlatTable root(const FlatBytes& bytes) { return {&bytes, bytes.at<uint32_t>(0)}; }
  FlatTable(const FlatBytes* bytes, size_t offset) : bytes_(bytes), offset_(offset) {}

  explicit operator bool() const { return bytes_ != nullptr; }
  template <class T>
  T value(int field, T otherwise = {}) const {
    const size_t where = slot(field);
    return where ? bytes_->at<T>(where) : otherwise;
  }
  FlatTable table(int field) const {
    const size_t where = slot(field);
    return where ? FlatTable(bytes_, where + bytes_->at<uint32_t>(where)) : FlatTable();
  }
  std::string_view text(int field) const {
    const size_t where = slot(field);
    if (!where) return {};
    const size_t start = where + bytes_->at<uint32_t>(where);
    return bytes_->text(start + 4, bytes_->at<uint32_t>(start));
  }
  FlatVector vector(int field) const;

 private:
  size_t slot(int field) const {  // 0: absent
    if (!bytes_) return 0;
    const auto table = static_cast<int64_t>(offset_) - bytes_->at<int32_t>(offset_);
    const auto names = static_cast<size_t>(table);
    const size_t entry = 4 + 2 * static_cast<size_t>(field);
    if (entry >= bytes_->at<uint16_t>(names)) return 0;
    const auto inside = bytes_->at<uint16_t>(names + entry);
    return inside ? offset_ + inside : 0;
  }
  const FlatBytes* bytes_ = nullptr;
  size_t offset_ = 0;
};

class FlatVector {
 public:
  FlatVector() = default;
  FlatVector(const FlatBytes* bytes, size_t offset)
      : bytes_(bytes), offset_(offset + 4), size_(bytes->at<uint32_t>(offset)) {}
  size_t size() const { return size_; }
  FlatTable table(size_t i) const {
    const size_t where = offset_ + 4 * i;
    return {bytes_, where + bytes_->at<uint32_t>(where)};
  }
  int64_t number(size_t i, size_t stride, size_t inside) const {
    return bytes_->at<int64_t>(offset_ + i * stride + inside);
  }

 private:
  const FlatBytes* bytes_ = nullptr;
  size_t offset_ = 0, size_ = 0;
};

inline FlatVector FlatTable::vector(int field) const {
  const size_t where = slot(field);
  return where ? FlatVector(bytes_, where + bytes_->at<uint32_t>(where)) : FlatVector();
}

}  // namespace apus
