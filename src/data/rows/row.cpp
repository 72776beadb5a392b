// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row.h"

namespace apus {

Json parsed_cell(const std::string& text, const Origin& origin, const std::string& key) {
  try {
    return parse_json(text, "cell");
  } catch (const Error&) {}
  try {
    Json repaired = parse_json(repaired_json(text), "cell");
    require(!repaired.is_string(), Fault::Data, "plain text");  // which repairing gives back as it is
    return repaired;
  } catch (const Error& error) {
    std::string why = error.what();
    if (why.starts_with("cell: ")) why.erase(0, 6);
    throw RowError(origin, key, "the text in it should be JSON, but is " + why);
  }
}

}  // namespace apus
