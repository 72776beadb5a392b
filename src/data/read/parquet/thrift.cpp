// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/thrift.h"

#include <cstring>

#include "base/error.h"

namespace apus {

namespace {

enum Type {
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12
};

class Parser {
 public:
  Parser(std::span<const std::byte> memory, std::string_view where) : memory_(memory), where_(where) {}
  size_t used() const { return at_; }

  ThriftValue structure(int depth) {
    require(depth < 64, Fault::Data, where_, ": damaged header (nested too deep)");
    ThriftValue value;
    int field = 0;
    while (true) {
      const int head = byte();
      if (head == 0) return value;
      const int delta = head >> 4, type = head & 15;
      field = delta ? field + delta : static_cast<int>(zigzag());
      value.fields[field] = any(type, depth, false);
    }
  }

 private:
  int byte() {
    require(at_ < memory_.size(), Fault::Data, where_, ": damaged header (it ends too early)");
    return static_cast<int>(memory_[at_++]);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto b = static_cast<uint64_t>(byte());
      value |= (b & 127) << (shift & 63);
      if (b < 128) return value;
    }
    fail(Fault::Data, where_, ": damaged header (a number without an end)");
  }
  int64_t zigzag() {
    const uint64_t v = varint();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  }
  // Every item of a list takes at least a byte, so a size beyond the rest of the memory is damage.
  size_t size(uint64_t stated) {
    require(stated <= memory_.size() - at_, Fault::Data, where_, ": damaged header (a size beyond its end)");
    return static_cast<size_t>(stated);
  }
  ThriftValue any(int type, int depth, bool in_list) {
    ThriftValue value;
    switch (type) {
      case kTrue:
      case kFalse:
        value.number = in_list ? byte() == 1 : type == kTrue;
        break;
      case kByte:
        value.number = static_cast<int8_t>(byte());
        break;
      case kI16:
      case kI32:
      case kI64:
        value.number = zigzag();
        break;
      case kDouble: {
        char raw[8];
        for (char& c : raw) c = static_cast<char>(byte());
        std::memcpy(&value.real, raw, 8);
        break;
      }
      case kBinary: {
        const size_t count = size(varint());
        value.bytes = {reinterpret_cast<const char*>(memory_.data()) + at_, count};
        at_ += count;
        break;
      }
      case kList:
      case kSet:
        list(value, depth);
        break;
      case kMap:
        map(value, depth);
        break;
      case kStruct:
        value = structure(depth + 1);
        break;
      default:
        fail(Fault::Data, where_, ": damaged header (unknown type ", type, ")");
    }
    return value;
  }
  void list(ThriftValue& value, int depth) {
    require(depth < 64, Fault::Data, where_, ": damaged header (nested too deep)");
    const int head = byte();
    const size_t count = size(head >> 4 == 15 ? varint() : static_cast<uint64_t>(head >> 4));
    value.items.reserve(std::min<size_t>(count, 4096));
    for (size_t i = 0; i < count; ++i) value.items.push_back(any(head & 15, depth + 1, true));
  }
  // No map in Parquet's headers matters here: it is read over.
  void map(ThriftValue&, int depth) {
    const size_t count = size(varint());
    if (count == 0) return;
    const int types = byte();
    for (size_t i = 0; i < count; ++i) {
      any(types >> 4, depth + 1, true);
      any(types & 15, depth + 1, true);
    }
  }

  std::span<const std::byte> memory_;
  std::string_view where_;
  size_t at_ = 0;
};

}  // namespace

const ThriftValue& ThriftValue::operator[](int field) const {
  static const ThriftValue none;
  const auto it = fields.find(field);
  return it == fields.end() ? none : it->second;
}

ThriftValue parse_thrift(std::span<const std::byte> memory, size_t& used, std::string_view where) {
  Parser parser(memory, where);
  ThriftValue value = parser.structure(0);
  used = parser.used();
  return value;
}

}  // namespace apus
