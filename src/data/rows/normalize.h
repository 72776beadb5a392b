// SPDX-License-Identifier: Apache-2.0
// A row of any known shape as the canonical one: messages, images, videos, audios, tools, objects and the few columns
// that algorithms ask for. Which shape it has is seen from its columns.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/json.h"
#include "data/rows/row.h"
#include "data/rows/self_name.h"

namespace apus {

struct NormalizeOptions {
  std::map<std::string, std::string> columns;  // --columns: from the file's name to ours
  bool auto_mapping = true;                    // common names are understood
  bool keep_unused = false;                    // columns that no one asked for stay (rewards read them)
  // Of a list of responses take a random one instead of the first.
  bool random_response = false;
  uint64_t seed = 42;
  SelfName names;      // put for {{NAME}} and {{AUTHOR}}
  bool media = false;  // a question's images, videos and sounds are read; else rows with them are refused
};

// The options of a --columns value. A bad one is Fault::Usage.
std::map<std::string, std::string> parse_columns(const Json& value);

// Throws RowError for a row that is of no use. `remark` is told what looks wrong in a row that is used.
Json normalize_row(const Row& row, const NormalizeOptions& options,
                   const std::function<void(const std::string&)>& remark = {});

}  // namespace apus
