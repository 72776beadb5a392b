// SPDX-License-Identifier: Apache-2.0
// From messages to the ids that the model sees, and which tokens end its answer. No tensor library.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/answer/chat_spec.h"
#include "text/chat_template.h"
#include "text/marked_text.h"
#include "text/tokenizer.h"

namespace apus {

struct ChatRequest {
  const Json* messages = nullptr;
  const Json* tools = nullptr;
  const Json* documents = nullptr;
  const Json* kwargs = nullptr;         // over those of the spec
  bool continue_final_message = false;  // the answer goes on with the last message
  bool whole = false;                   // the conversation as it is: no answer is asked for
  size_t second = 0;                    // of text_ids: the message that the second text begins with; 0: an answer
};

// Cut to max_length as `truncation_strategy` says; Fault::Data when that is "delete".
std::vector<int32_t> limited(std::vector<int32_t> ids, const ChatSpec& spec);

class Chat {
 public:
  Chat(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer, ChatSpec spec);

  std::string text(const ChatRequest& request) const;
  std::vector<int32_t> prompt(const ChatRequest& request) const;  // Fault::Data when it is longer than max_length
  std::vector<int32_t> encode(const std::string& text) const;     // prompt() is encode(text())
  // A conversation for a model that gives numbers: as prompt(), and without a template its texts and an end mark.
  MarkedText text_ids(const ChatRequest& request) const;
  std::string template_text(bool with_tools) const;  // Jinja; "" without a template
  bool shows_tools() const;                          // would the model hear of them?
  ToolFormat tool_format() const;                    // of calls in answers
  // The tokens that end a turn in this template, beside the checkpoint's eos: what stands behind an assistant's text.
  const std::vector<int32_t>& turn_ends() const { return turn_ends_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatSpec& spec() const { return spec_; }

 private:
  std::string render(const ChatRequest& request, const Json& messages, bool generation_prompt) const;
  std::string plain_text(const Json& messages) const;
  std::vector<int32_t> find_turn_ends() const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatSpec spec_;
  std::optional<ChatTemplate> template_;
  std::vector<int32_t> turn_ends_;
};

}  // namespace apus
