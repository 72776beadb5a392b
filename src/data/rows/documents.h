// SPDX-License-Identifier: Apache-2.0
// Rows of a query and documents: {"messages": query, "positive_messages": [...], "negative_messages": [...]}. Each of
// them is a talk: {"messages": [...]} and the media of its own, in columns as a row's ("images", ...).
#pragma once

#include <string>
#include <vector>

#include "data/rows/row.h"

namespace apus {

Json query_of(const Row& row);
// The documents of "positive" or "negative": the column <which>_messages, which holds one or several conversations,
// with <which>_images, ... in the order of their tags; none when the row lacks it. RowError for anything else.
std::vector<Json> documents_of(const Row& row, const std::string& which);

// At most `count` of them, at random where there are more; with `fill` exactly so many, some repeated at random, and
// the first ones where there are more. The same for the same row.
std::vector<Json> chosen_of(std::vector<Json> all, int64_t count, bool fill, const Row& row);

// In a talk of both: the message that the document begins with.
inline constexpr const char* kSecondMessage = "second_message";

// A query and a document as one talk; a system message of the document's goes before the query's.
Json query_and_document(const Json& query, const Json& document);
// These messages with the media of both.
Json with_media_of(Json messages, const Json& query, const Json& document);

std::string system_of(const Json& talk);  // "" without one
std::string text_without_system(const Json& talk);

}  // namespace apus
