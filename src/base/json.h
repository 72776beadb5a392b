// SPDX-License-Identifier: Apache-2.0
// JSON that keeps the order of keys (args.json, results and templates depend on it), read with bounds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

// Compiled once, in json.cpp, instead of in every file that uses JSON.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace apus {
using Json = nlohmann::ordered_json;

// Nesting is limited, so that nothing that walks the result can run out of stack.
// `where` begins the message of an error.
Json parse_json(std::string_view text, std::string_view where, Fault fault = Fault::Data, int max_depth = 256);

// What people type for JSON: single quotes, unquoted keys, trailing commas, Python's True, False and None.
// Gives strict JSON text back; what it does not understand is left as it is.
std::string repaired_json(std::string_view text);

// One line (indent < 0) or indented. Bytes that are not UTF-8 become U+FFFD instead of an exception.
std::string json_text(const Json& value, int indent = -1);
}  // namespace apus
