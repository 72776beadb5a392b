// SPDX-License-Identifier: Apache-2.0
#include "engine/answer/chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "text/channel_text.h"
#include "text/ended_text.h"
#include "text/harmony_reader.h"

namespace apus {

namespace {

std::optional<ChatTemplate> plain_template(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                           const ChatSpec& spec) {
  if (!spec.use_chat_template) return std::nullopt;
  if (!spec.chat_template.empty()) return ChatTemplate::from_text(spec.chat_template, "--chat_template", folder);
  if (auto found = ChatTemplate::find(folder)) return found;
  // Base models of the Qwen kind know ChatML's marks without bringing a template.
  if (tokenizer.id("<|im_start|>") && tokenizer.id("<|im_end|>")) {
    log_info(folder.string(), " brings no chat template; its tokenizer knows <|im_start|>, so ChatML is used");
    return ChatTemplate::builtin("chatml", folder);
  }
  fail(Fault::Model, folder.string(),
       " brings no chat template: give one by --chat_template FILE.jinja, or --use_chat_template false for plain text");
}

std::optional<ChatTemplate> choose_template(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                            const ChatSpec& spec) {
  auto chosen = plain_template(folder, tokenizer, spec);
  require(chosen || spec.agent_template.empty(), Fault::Usage, "--agent_template ", spec.agent_template,
          " needs a chat template, and --use_chat_template is false");
  if (chosen) chosen->use_agent(spec.agent_template);
  return chosen;
}

// Text of a message: a string, or a list of parts of which the texts count.
std::string content_text(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  require(content->is_array(), Fault::Data, "a message's 'content' must be a text or a list of parts");
  for (const auto& part : *content)
    if (part.is_object() && part.contains("text") && part["text"].is_string()) text += part["text"].get<std::string>();
  return text;
}

}  // namespace

Chat::Chat(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer, ChatSpec spec)
    : tokenizer_(std::move(tokenizer)),
      spec_(std::move(spec)),
      template_(choose_template(folder, *tokenizer_, spec_)),
      turn_ends_(find_turn_ends()) {}

std::string Chat::plain_text(const Json& messages) const {
  std::string text;
  for (const auto& message : messages) text += content_text(message);
  return text;
}

std::string Chat::render(const ChatRequest& request, const Json& messages, bool generation_prompt) const {
  Json kwargs = spec_.chat_template_kwargs.is_object() ? spec_.chat_template_kwargs : Json::object();
  if (spec_.enable_thinking) kwargs["enable_thinking"] = *spec_.enable_thinking;
  if (request.kwargs && !request.kwargs->is_null()) {
    require(request.kwargs->is_object(), Fault::Data, "'chat_template_kwargs' must be an object");
    kwargs.update(*request.kwargs);
  }
  // Harmony's template takes thoughts by a name of its own.
  const Json thinking = tool_format() == ToolFormat::Harmony ? with_thinking(messages) : Json();
  ChatInput input;
  input.messages = thinking.is_null() ? &messages : &thinking;
  input.tools = request.tools && !request.tools->empty() ? request.tools : nullptr;
  input.documents = request.documents;
  input.kwargs = &kwargs;
  input.add_generation_prompt = generation_prompt;
  input.continue_final_message = request.continue_final_message;
  return template_->render(input).text;
}

std::string Chat::text(const ChatRequest& request) const {
  require(request.messages && request.messages->is_array() && !request.messages->empty(), Fault::Data,
          "'messages' must be a list with at least one message");
  Json messages = *request.messages;
  for (const auto& m : messages)
    require(m.is_object() && m.contains("role") && m["role"].is_string(), Fault::Data,
            "every message must be an object with a 'role'");
  if (spec_.system && messages[0]["role"] != "system")
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *spec_.system}});
  const bool asks = !request.continue_final_message && !request.whole;
  const std::string text = template_ ? render(request, messages, asks) : plain_text(messages);
  return asks ? text + spec_.response_prefix : text;
}

std::vector<int32_t> Chat::prompt(const ChatRequest& request) const { return encode(text(request)); }

MarkedText Chat::text_ids(const ChatRequest& request) const {
  if (template_) return {prompt(request)};
  Json messages = *request.messages;
  if (spec_.system && messages[0]["role"] != "system")
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *spec_.system}});
  if (!spec_.encoder) return {limited(ended_text(*tokenizer_, spec_.text_prefix + joined_texts(messages)), spec_)};
  if (!spec_.text_prefix.empty()) messages[0]["content"] = spec_.text_prefix + content_text(messages[0]);
  const bool cuts = spec_.max_length && spec_.truncation_strategy != "delete";
  const size_t second = request.second + messages.size() - request.messages->size();  // behind a system message
  MarkedText text = marked_talk(*tokenizer_, messages, request.second > 0 ? second : 0,
                                {cuts ? *spec_.max_length : 0, spec_.truncation_strategy == "left"});
  text.ids = limited(std::move(text.ids), spec_);
  return text;
}

std::vector<int32_t> Chat::encode(const std::string& text) const {
  // A template writes the special tokens itself; plain text gets those of the tokenizer.
  return limited(tokenizer_->encode(text, !template_), spec_);
}

std::string Chat::template_text(bool with_tools) const {
  if (!template_) return {};
  const auto variants = template_->variants();
  const bool own = with_tools && std::find(variants.begin(), variants.end(), "tool_use") != variants.end();
  return template_->text(own ? "tool_use" : "");
}

bool Chat::shows_tools() const { return template_ && template_->shows_tools(); }

ToolFormat Chat::tool_format() const { return template_ ? template_->tool_format() : ToolFormat::None; }

std::vector<int32_t> limited(std::vector<int32_t> ids, const ChatSpec& spec) {
  const auto length = static_cast<int64_t>(ids.size());
  if (!spec.max_length || length <= *spec.max_length) return ids;
  require(spec.truncation_strategy != "delete", Fault::Data, length, " tokens are more than --max_length ",
          *spec.max_length, "; --truncation_strategy left or right cuts them");
  if (spec.truncation_strategy == "left")
    ids.erase(ids.begin(), ids.end() - *spec.max_length);
  else
    ids.resize(static_cast<size_t>(*spec.max_length));
  return ids;
}

std::vector<int32_t> Chat::find_turn_ends() const {
  if (!template_) return {};
  const std::string mark = "apus-turn-end-probe";
  const Json messages =
      Json::array({Json{{"role", "user"}, {"content", "a"}}, Json{{"role", "assistant"}, {"content", mark}}});
  std::string after;
  try {
    after = render({}, messages, false);
  } catch (const Error&) {
    // A template with needs of its own: the checkpoint's eos must do.
    return {};
  }
  const size_t at = after.rfind(mark);
  if (at == std::string::npos) return {};
  const auto ids = tokenizer_->encode(after.substr(at + mark.size()));
  if (ids.empty() || !tokenizer_->is_added(ids[0])) return {};
  std::vector<int32_t> ends = {ids[0]};
  // A call ends an answer by a token of its own.
  if (template_->tool_format() == ToolFormat::Harmony)
    if (const auto call = tokenizer_->id(kHarmonyCallEnd)) ends.push_back(*call);
  return ends;
}

}  // namespace apus
