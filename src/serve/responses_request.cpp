// SPDX-License-Identifier: Apache-2.0
#include "serve/responses_request.h"

#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {

namespace {

// What no answer depends on. Encrypted thoughts are not made: they are given in the clear.
constexpr std::initializer_list<const char*> kResponseHints = {
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"};
constexpr size_t kMostItems = 10'000;

// A text, or its parts, as the chat API has them.
Json content_of(const Fields& item) {
  const Json* content = item.find("content");
  if (!content) refuse(item.name("content"), "'", item.name("content"), "' is missing");
  return *content;
}

std::string output_of(const Fields& item) {
  const Json* output = item.find("output");
  if (!output) refuse(item.name("output"), "'", item.name("output"), "' is missing");
  if (output->is_string()) return output->get<std::string>();
  return chat_message({{"role", "user"}, {"content", *output}}, item.name("output"))["content"];
}

// An assistant's words, thoughts and calls stand in items of their own; templates want one message of them.
class Items {
 public:
  void add(const Json& json, const std::string& where) {
    const Fields item(json, where + ".");
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      message(item);
    } else if (type == "function_call") {
      Json call = {{"id", item.needed_text("call_id")},
                   {"type", "function"},
                   {"function", {{"name", item.needed_text("name")}, {"arguments", item.needed_text("arguments")}}}};
      Json& said = assistant();
      if (!said.contains("tool_calls")) said["tool_calls"] = Json::array();
      said["tool_calls"].push_back(std::move(call));
    } else if (type == "function_call_output") {
      out_.push_back({{"role", "tool"}, {"tool_call_id", item.needed_text("call_id")}, {"content", output_of(item)}});
    } else if (type == "reasoning") {
      reasoning(item);
    } else {
      refuse(item.name("type"), "'", item.name("type"), "' is '", type.substr(0, 64),
             "', it must be message, function_call, function_call_output or reasoning");
    }
  }
  Json take() { return std::move(out_); }

 private:
  void message(const Fields& item) {
    const std::string role = item.needed_text("role");
    if (role != "assistant") {
      out_.push_back({{"role", role}, {"content", content_of(item)}});
      return;
    }
    Json& said = assistant();
    if (said["content"] != "") out_.push_back({{"role", "assistant"}, {"content", ""}});
    out_.back()["content"] = content_of(item);
  }
  void reasoning(const Fields& item) {
    std::string thoughts;
    for (const char* key : {"content", "summary"}) {
      const Json* parts = item.list(key);
      if (!thoughts.empty() || !parts) continue;
      for (size_t i = 0; i < parts->size(); ++i)
        thoughts += Fields((*parts)[i], str(item.name(key), "[", i, "].")).needed_text("text");
    }
    if (!thoughts.empty()) assistant()["reasoning_content"] = thoughts;
  }
  Json& assistant() {
    if (out_.empty() || out_.back()["role"] != "assistant") out_.push_back({{"role", "assistant"}, {"content", ""}});
    return out_.back();
  }
  Json out_ = Json::array();
};

Json input_messages(const Fields& f) {
  const Json* input = f.find("input");
  if (!input) return f.missing("input", "a text or a list of items"), Json::array();
  if (input->is_string()) return Json::array({{{"role", "user"}, {"content", *input}}});
  if (!input->is_array() || input->empty()) refuse("input", "'input' must be a text or a list of items");
  if (input->size() > kMostItems)
    refuse("input", "'input' has ", input->size(), " entries, at most ", kMostItems, " are possible");
  Items items;
  for (size_t i = 0; i < input->size(); ++i) items.add((*input)[i], str("input[", i, "]"));
  return items.take();
}

// Tools and their choice as the chat API nests them.
Json nested(const Json& tool, const std::string& where) {
  const Fields f(tool, where + ".");
  if (const std::string type = f.needed_text("type"); type != "function")
    refuse(f.name("type"), "'", f.name("type"), "' is '", type.substr(0, 64),
           "': this server runs no tools of its own, give functions");
  Json function = {{"name", f.needed_text("name")}};
  for (const char* key : {"description", "parameters", "strict"})
    if (const Json* v = f.find(key)) function[key] = *v;
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json nested_choice(const Json& choice) {
  if (!choice.is_object()) return choice;
  const Fields f(choice, "tool_choice.");
  if (f.needed_text("type") != "allowed_tools") return nested(choice, "tool_choice");
  Json list = Json::array();
  if (const Json* tools = f.list("tools"))
    for (size_t i = 0; i < tools->size(); ++i) list.push_back(nested((*tools)[i], str("tool_choice.tools[", i, "]")));
  return {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", f.text("mode").value_or("auto")}, {"tools", list}}}};
}

// text.format as the chat API's response_format.
Json chat_format(const Fields& f) {
  const Json* text = f.object("text");
  if (!text) return nullptr;
  const Fields in(*text, "text.");
  in.cannot("verbosity", "medium", "this model cannot be set to it; ask for long or short answers in the messages");
  const Json* format = in.object("format");
  in.refuse_unread();
  if (!format) return nullptr;
  const Fields form(*format, "text.format.");
  const std::string type = form.needed_text("type");
  if (type != "json_schema") return *format;
  const Json* schema = form.find("schema");
  if (!schema) refuse("text.format.schema", "'text.format.schema' is missing");
  for (const char* key : {"name", "description", "strict"}) form.find(key);
  form.refuse_unread();
  return {{"type", type}, {"json_schema", {{"schema", *schema}}}};
}

// The request as the chat API would have it, so that it is read in one place only.
Json chat_request(const Fields& f, const Json& messages) {
  Json chat = {{"messages", messages}};
  for (const char* key : {"model", "temperature", "top_p", "parallel_tool_calls", "stream", "top_logprobs",
                          "frequency_penalty", "presence_penalty", "seed", "stop", "chat_template_kwargs"})
    if (const Json* v = f.find(key)) chat[key] = *v;
  if (const auto most = f.whole("max_output_tokens", 1, INT32_MAX)) chat["max_completion_tokens"] = *most;
  if (const Json* reasoning = f.object("reasoning"))
    if (const Json* effort = Fields(*reasoning, "reasoning.").find("effort")) chat["reasoning_effort"] = *effort;
  if (const Json format = chat_format(f); !format.is_null()) chat["response_format"] = format;
  if (const Json* tools = f.list("tools"); tools && !tools->empty()) {
    chat["tools"] = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) chat["tools"].push_back(nested((*tools)[i], str("tools[", i, "]")));
  }
  if (const Json* choice = f.find("tool_choice")) chat["tool_choice"] = nested_choice(*choice);
  for (const auto& wanted : f.texts("include", 16))
    if (wanted == "message.output_text.logprobs")
      chat["logprobs"] = true;
    else if (wanted != "reasoning.encrypted_content")
      refuse("include", "'include': '", wanted.substr(0, 64), "' does not exist here");
  if (chat.contains("top_logprobs")) chat["logprobs"] = true;
  return chat;
}

}  // namespace

ResponsesCall read_responses_request(const Json& body, const RequestLimits& limits, const PriorMessages& before,
                                     Json* schema) {
  const Fields f(body, "", schema);
  ResponsesCall out;
  out.previous = f.text("previous_response_id").value_or("");
  out.messages = out.previous.empty() ? Json::array() : before(out.previous);
  for (Json& message : input_messages(f)) out.messages.push_back(std::move(message));
  Json all = Json::array();
  const auto instructions = f.text("instructions");
  if (instructions) all.push_back({{"role", "system"}, {"content", *instructions}});
  for (const Json& message : out.messages) all.push_back(message);
  Json of_chat;
  out.chat = read_chat_request(chat_request(f, all), limits, schema ? &of_chat : nullptr);
  f.as_in(of_chat);
  out.store = f.boolean("store").value_or(true);
  f.cannot("background", false, "answers are made while the client waits");
  f.cannot("conversation", nullptr, "conversations are not kept; give previous_response_id, or all of the input");
  f.cannot("prompt", nullptr, "prompts are not kept here; give the input");
  f.cannot("truncation", "disabled", "a prompt is never cut; shorten it before");
  f.cannot("max_tool_calls", nullptr, "this server runs no tools of its own");
  if (const Json* options = f.object("stream_options"))
    Fields(*options, "stream_options.")
        .cannot("include_obfuscation", false, "events are sent as they are; TLS hides what they say");
  out.chat.ignored = f.unread(kResponseHints);
  const auto said = [&](const char* key, Json otherwise) {
    const Json* v = f.find(key);
    out.shown[key] = v ? *v : std::move(otherwise);
  };
  said("instructions", nullptr);
  said("max_output_tokens", nullptr);
  said("metadata", Json::object());
  said("parallel_tool_calls", true);
  said("previous_response_id", nullptr);
  said("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
  said("temperature", nullptr);
  said("text", {{"format", {{"type", "text"}}}});
  said("tool_choice", "auto");
  said("tools", Json::array());
  said("top_p", nullptr);
  said("truncation", "disabled");
  out.shown["store"] = out.store;
  return out;
}

}  // namespace apus
