// SPDX-License-Identifier: Apache-2.0
// A conversation as the text a model reads, and where in it the assistant speaks. Each turn of the assistant stands as
// the model will write it: after the prompt that the template makes of what was said before, with the end-of-turn mark.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"

namespace apus {

struct DialogueTurn {
  size_t begin, end;              // bytes of the text
  size_t said;                    // where its words end and its end mark begins
  std::optional<bool> loss = {};  // as the row says
  std::optional<float> scale = {};
  bool last_round = false;    // after the last message of the user or of a tool
  std::string question = {};  // the message before it
};

struct Dialogue {
  std::string text;
  std::vector<DialogueTurn> turns;
  std::vector<std::string> remarks;  // about what looks wrong in the row
};

struct DialogueOptions {
  // With templates that can think or not, an answer without thoughts begins with an empty thought.
  bool add_non_thinking_prefix = true;
  std::optional<bool> preserve_thinking;            // of earlier rounds; absent: where they are learnt
  bool every_turn = false;                          // `last_only`, but the row chooses among all turns: list them
  Json kwargs;                                      // chat_template_kwargs
  std::string eos;                                  // put behind turns that the template leaves open
  std::function<bool(const std::string&)> is_mark;  // does a text hold an end-of-turn mark (a special token)?
};

// Canonical messages for a template: tool calls join their assistant's turn, tools' answers have the role "tool". Calls
// that are not JSON are Fault::Data.
Json template_messages(const Json& canonical);

// `last_only`: earlier rounds stand as the template shows them later on; only turns of the last round are listed.
Dialogue compose_dialogue(const ChatTemplate& chat, const Json& messages, const Json* tools, bool last_only,
                          const DialogueOptions& options);

// For templates with `generation` blocks: one rendering, the blocks are the turns.
Dialogue rendered_dialogue(const ChatTemplate& chat, const Json& messages, const Json* tools,
                           const DialogueOptions& options);

}  // namespace apus
