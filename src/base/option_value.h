// SPDX-License-Identifier: Apache-2.0
// Values of options: from words and JSON into the member, and back. Internal to base/options.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

// Flag: a bool, its value may be left out. Any: no member, whatever follows.
enum class Arity { One, Flag, Many, Any };
Arity arity(const Option& option);

// Empty: done. Else what is wrong, to stand behind "--name: ".
std::string assign_words(Option& option, const std::vector<std::string>& words);
std::string assign_json(Option& option, const Json& value);
Json value_json(const Option& option);
bool acts(const Option& option);                 // it is neither refused nor without effect
std::string type_text(const Option& option);     // what help shows behind the name: "N", "TEXT", ...
std::string default_text(const Option& option);  // of the member's present value; "" when absent or empty

}  // namespace apus
