// SPDX-License-Identifier: Apache-2.0
// What other programs call things (assets/knowledge/words.json): the advice for who types their words here.
#pragma once

#include <functional>
#include <string>

namespace apus {

// "--learning_rate" of "lr"; empty: nothing is known, or what is known are options that are none here.
std::string option_of_foreign_word(const std::string& typed, const std::function<bool(const std::string&)>& is_option);
// "--tuner_type lora --quant_method bnb --quant_bits 4" of tuner_type and "qlora".
std::string option_of_foreign_value(const std::string& option, const std::string& value);
// "sft" of "train".
std::string command_of_foreign_word(const std::string& typed);

}  // namespace apus
