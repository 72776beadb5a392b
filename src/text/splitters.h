// SPDX-License-Identifier: Apache-2.0
// Hand-written matchers for the regular expressions that most byte-level vocabularies cut text with.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/unicode.h"

namespace apus {

// End of the piece that begins at `from` (< text.size()); the pieces cover the whole of a valid UTF-8 text.
using Splitter = size_t (*)(const unicode::CharTable& table, std::string_view text, size_t from);

size_t split_gpt2(const unicode::CharTable& table, std::string_view text, size_t from);
size_t split_qwen2(const unicode::CharTable& table, std::string_view text, size_t from);
size_t split_llama3(const unicode::CharTable& table, std::string_view text, size_t from);

extern const char* const kGpt2Regex;
extern const char* const kQwen2Regex;
extern const char* const kLlama3Regex;

// The matcher for a pattern as tokenizer.json spells it; nullptr if there is none.
Splitter find_splitter(const std::string& regex);

// A pattern in tokenizer.json's dialect whose matches are the runs of one script (script_runs.cpp).
std::string script_runs();

}  // namespace apus
