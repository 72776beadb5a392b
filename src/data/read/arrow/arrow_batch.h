// SPDX-License-Identifier: Apache-2.0
// Arrow's schema and record batches: typed columns over the bytes of a message.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/read/arrow/flatbuffer.h"

namespace apus {

enum class ArrowType {
  None,
  Null,
  Int,
  Float,
  Binary,
  Utf8,
  Bool,
  Decimal,
  Date,
  Time,
  Timestamp,
  Interval,
  List,
  Struct,
  Union,
  FixedBinary,
  FixedList,
  Map,
  Duration,
  LargeBinary,
  LargeUtf8,
  LargeList  // in the order of Arrow's own numbers
};

struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::Null;
  int bits = 0;  // of integers, floats, times
  bool is_signed = true;
  int64_t per_second = 1;  // of times
  int width = 0;           // of fixed-size types
  int scale = 0;
  // The id of the field's dictionary: type and the rest then describe its values...
  std::optional<int64_t> dictionary;
  int index_bits = 32;  // ...and these the indices
  bool index_signed = true;
  std::vector<ArrowField> children;
};

std::vector<ArrowField> arrow_schema(const FlatTable& schema, std::string_view where);

struct ArrowColumn {
  const ArrowField* field = nullptr;
  int64_t length = 0;
  bool indices = false;                   // `data` points into the field's dictionary
  std::string_view valid, data, offsets;  // valid: empty when nothing is null
  std::vector<ArrowColumn> children;
};

struct ArrowBatch {
  int64_t rows = 0;
  std::vector<ArrowColumn> columns;
  std::deque<std::string> owned;  // buffers that were compressed
};

using ArrowDictionaries = std::map<int64_t, ArrowBatch>;  // each with one column

// `body` must outlive the batch. With `values_of` the batch is a dictionary's: one column of that field's values.
ArrowBatch arrow_batch(const FlatTable& record, std::string_view body, const std::vector<ArrowField>& fields,
                       const ArrowField* values_of, std::string_view where);
// The dictionary-encoded fields of a schema by id.
void arrow_dictionary_fields(const std::vector<ArrowField>& fields, std::map<int64_t, const ArrowField*>& found);

Json arrow_cell(const ArrowColumn& column, int64_t index, const ArrowDictionaries& dictionaries,
                std::string_view where);

}  // namespace apus
