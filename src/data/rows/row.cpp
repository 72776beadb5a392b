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

Json with_parsed_cells(const Row& row) {
  Json out = row.value;
  if (!out.is_object()) return out;
  bool filled = false;
  for (const char* name : {"messages", "tools", "documents", "chat_template_kwargs", "ids", "input_ids", "labels"}) {
    const auto cell = out.find(name);
    if (cell == out.end() || !cell->is_string()) continue;
    const bool empty = cell->get_ref<const std::string&>().empty();
    *cell = empty ? Json() : parsed_cell(cell->get<std::string>(), row.origin, name);
    filled = filled || !empty;
  }
  // An empty cell is nothing, where another says what the row is.
  if (filled && out.contains("text") && out["text"] == "") out["text"] = nullptr;
  return out;
}

}  // namespace apus
