// SPDX-License-Identifier: Apache-2.0
// One row of a dataset and where it came from.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace apus {

struct Origin {
  std::shared_ptr<const std::string> file;
  int64_t line = 0;     // of a text file, from 1; of a binary table the row, from 1
  bool is_row = false;  // `line` counts rows, not lines
  std::string text() const { return str(file ? *file : "?", is_row ? ", row " : ", line ", line); }
};

struct Row {
  Json value;
  Origin origin;
};

// A row that cannot be used. A reader that threw this can go on with the row after it.
class RowError : public Error {
 public:
  RowError(const Origin& origin, std::string key, std::string reason, std::string raw = {})
      : Error(Fault::Data, str(origin.text(), key.empty() ? "" : ", key '" + key + "'", ": ", reason)),
        origin(origin),
        key(std::move(key)),
        reason(std::move(reason)),
        raw(std::move(raw)) {}
  const Origin origin;
  const std::string key, reason;
  const std::string raw;  // the row as it was read, where there is no Json of it
};

// JSON (or what Python prints for a list or dict) that stands as text in a cell; what is neither is a RowError.
Json parsed_cell(const std::string& text, const Origin& origin, const std::string& key);

// The row with the JSON that a table's cells hold as text: messages, tools, ids and their kin.
Json with_parsed_cells(const Row& row);

}  // namespace apus
