// SPDX-License-Identifier: Apache-2.0
// How messages become a prompt.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

class OptionTable;

struct ChatSpec {
  std::string chat_template;          // Jinja text; empty: the checkpoint's
  bool use_chat_template = true;      // false: the messages' text as it is
  std::optional<std::string> system;  // for messages that bring none
  std::optional<bool> enable_thinking;
  std::string response_prefix;                 // every answer begins with it
  std::string agent_template;                  // how tools are told and called; empty: as the chat template does
  Json chat_template_kwargs;                   // further variables of the template: an object, or null
  std::optional<int64_t> max_length;           // of a prompt in tokens; absent: no limit but the model's
  std::string truncation_strategy = "delete";  // left, right, or delete: a longer prompt is an error

  // The model is an encoder: a text is read as its tokenizer marks it, and a question and its answer as a pair.
  bool encoder = false;
  std::string text_prefix = "";  // stands before a text whose vector is wanted (--prompt_name)

  void fields(OptionTable& v);
};

}  // namespace apus
