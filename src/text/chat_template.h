// SPDX-License-Identifier: Apache-2.0
// The chat template of a checkpoint: found in its folder, or one of the project's own by name; rendered as
// transformers' apply_chat_template does.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/agent_template.h"
#include "text/jinja.h"

namespace apus {

// What one rendering is about. The pointers are borrowed for the call; null means absent.
struct ChatInput {
  const Json* messages = nullptr;   // [{"role", "content", ...}]
  const Json* tools = nullptr;      // [{"type": "function", "function": {...}}]
  const Json* documents = nullptr;  // [{"title", "text"}]
  const Json* kwargs = nullptr;     // chat_template_kwargs; may also override special tokens
  bool add_generation_prompt = false;
  // The text ends inside the last message, for the model to go on.
  bool continue_final_message = false;
  std::optional<LocalTime> now;  // the clock of strftime_now
  // Which of several named templates; empty: tool_use with tools, else default.
  std::string variant;
  // Contents stay texts where the template reads nothing but lists of parts, or writes a mark of its own for an image:
  // as apply_chat_template has it. Else they become such lists, with an image where its mark stands in the text.
  bool as_given = false;
};

class ChatTemplate {
 public:
  // A checkpoint's folder: chat_template.jinja (and additional_chat_templates/*.jinja), chat_template.json, or
  // chat_template of tokenizer_config.json (a text, or a list of {name, template}). Empty without any.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder);
  static ChatTemplate load(const std::filesystem::path& folder);  // as find, but none is an error naming what there is

  // The text of a template given by the user; special tokens from the folder, if one is given.
  static ChatTemplate from_text(std::string_view text, std::string name, const std::filesystem::path& folder = {});

  // The project's own: "chatml", "llama3", ...
  static ChatTemplate builtin(const std::string& name, const std::filesystem::path& folder = {});
  static std::vector<std::string> builtin_names();

  // Tools, their calls and results in a form of AgentTemplate rather than the template's. Fault::Usage where the
  // form is left to the template and the template does not write it.
  void use_agent(const std::string& name);
  ToolFormat tool_format() const;  // of the calls that answers may hold
  bool shows_tools() const;
  std::string agent_name() const;  // of use_agent, where it changes what is said; else empty

  Rendered render(const ChatInput& input, const RenderLimits& limits = {}) const;

  const std::string& text(const std::string& variant = "") const;
  std::vector<std::string> variants() const;
  const Json& special_tokens() const;                            // {"bos_token": "<s>", ...}: those that are set
  bool marks_generation(const std::string& variant = "") const;  // has `generation` blocks

 private:
  ChatTemplate();
  Rendered rendered(const ChatInput& input, const RenderLimits& limits) const;
  const JinjaTemplate& choose(const std::string& variant, bool with_tools) const;
  std::map<std::string, JinjaTemplate> variants_;
  std::shared_ptr<const Json> special_;
  std::string begin_;  // every conversation begins with it; empty: with whatever the template writes
  std::shared_ptr<const AgentTemplate> agent_;  // null: the template says it all
};

}  // namespace apus
