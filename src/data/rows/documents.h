// SPDX-License-Identifier: Apache-2.0
// Rows of a query and documents: {"messages": query, "positive_messages": [...], "negative_messages": [...]}.
#pragma once

#include <string>
#include <vector>

#include "data/rows/row.h"

namespace apus {

// The conversations of a column that holds one or several; none when the row lacks it. RowError for anything else.
std::vector<Json> conversations_of(const Row& row, const char* column);

// At most `count` of them, at random where there are more; with `fill` exactly so many, some repeated at random, and
// the first ones where there are more. The same for the same row.
std::vector<Json> chosen_of(std::vector<Json> all, int64_t count, bool fill, const Row& row);

// A query and a document as one conversation; a system message of the document's goes before the query's.
Json query_and_document(const Json& query, const Json& document);

std::string system_of(const Json& messages);  // "" without one
std::string text_without_system(const Json& messages);

}  // namespace apus
