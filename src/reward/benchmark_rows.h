// SPDX-License-Identifier: Apache-2.0
// What the readers of known sets have in common: fields of their rows, and judging what answers them.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "reward/benchmark.h"

namespace apus {

// The first of these columns that the row has; Fault::Data where it has none.
const Json& row_field(const Json& row, std::initializer_list<const char*> names);
std::string row_text(const Json& row, std::initializer_list<const char*> names);
std::string row_text_or(const Json& row, std::initializer_list<const char*> names);  // "" where it has none

std::vector<std::string> choice_texts(const Json& list);
// "B", 1, "1" (from `first` on), or the words of a choice.
size_t right_choice(const Json& answer, const std::vector<std::string>& choices, int64_t first);
BenchmarkItem listed_item(const Json& row);    // {"question", "choices": [...], "answer": 0..., "subject"}
BenchmarkItem lettered_item(const Json& row);  // {"question", "A", "B", "C", "D", "answer": "A"}

std::string without_thoughts(const std::string& answer);
// Letters and digits in lower case, words parted by one space.
std::string bare_words(const std::string& text);
double judge_choice(const BenchmarkItem& item, const Json& row, const std::string& answer);

}  // namespace apus
