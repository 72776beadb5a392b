// SPDX-License-Identifier: Apache-2.0
// Is the result of a mathematical text the one that was asked for? It is found in the text (\boxed, <answer>, "####",
// "the answer is", else what stands last) and compared by value: fractions, roots, percent, units, sets, intervals,
// tuples, matrices, relations; and words as words.
#pragma once

#include <string>
#include <string_view>

namespace apus {

// The result within a text; the whole text when none is marked.
std::string math_result(std::string_view text);
// `text` is what a model said, `solution` the right answer: bare, or a worked solution that marks its result.
bool same_math_answer(std::string_view text, std::string_view solution);

}  // namespace apus
