// SPDX-License-Identifier: Apache-2.0
// Thrift's compact protocol as a tree: what Parquet writes its headers in. Bounded in size and nesting.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

struct ThriftValue {
  int64_t number = 0;  // integers, booleans
  double real = 0;
  std::string_view bytes;             // strings, into the parsed memory
  std::vector<ThriftValue> items;     // lists, sets
  std::map<int, ThriftValue> fields;  // structs

  const ThriftValue& operator[](int field) const;  // an empty value where the field is absent
  bool has(int field) const { return fields.count(field) > 0; }
};

// Reads one struct at the start of `memory`; `used` says how many bytes it took.
// `where` begins the message of an error.
ThriftValue parse_thrift(std::span<const std::byte> memory, size_t& used, std::string_view where);

}  // namespace apus
