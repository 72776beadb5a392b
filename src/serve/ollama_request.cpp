// SPDX-License-Identifier: Apache-2.0
#include "serve/ollama_request.h"

#include <map>

#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {

namespace {

// What a request says beside its text: how it is answered.
void take_options(const Fields& f, Json& out) {
  static const std::map<std::string, const char*> same = {{"temperature", "temperature"},
                                                          {"top_k", "top_k"},
                                                          {"top_p", "top_p"},
                                                          {"min_p", "min_p"},
                                                          {"seed", "seed"},
                                                          {"stop", "stop"},
                                                          {"repeat_penalty", "repetition_penalty"},
                                                          {"presence_penalty", "presence_penalty"},
                                                          {"frequency_penalty", "frequency_penalty"}};
  if (const Json* options = f.object("options"))
    for (const auto& [name, value] : options->items()) {
      if (const auto it = same.find(name); it != same.end()) out[it->second] = value;
      // Below 0: until the model ends by itself.
      if (name == "num_predict" && value.is_number_integer() && value.get<int64_t>() > 0) out["max_tokens"] = value;
    }
  if (const Json* format = f.find("format")) {
    if (format->is_object())
      out["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", *format}}}};
    else if (*format == "json")
      out["response_format"] = {{"type", "json_object"}};
    else if (*format != "")
      refuse("format", "'format' must be \"json\" or a JSON schema");
  }
  if (const Json* think = f.find("think")) {
    if (think->is_boolean())
      out["chat_template_kwargs"] = {{"enable_thinking", *think}};
    else
      out["reasoning_effort"] = *think;
  }
  out["stream"] = f.boolean("stream").value_or(true);
  if (const auto model = f.text("model")) out["model"] = ollama_name(*model);
}

// Text and pictures, which come as base64 without a type, as parts.
Json parts_of(const std::string& text, const Json* images) {
  if (!images || images->empty()) return text;
  Json parts = Json::array();
  for (const Json& image : *images) {
    if (!image.is_string()) refuse("images", "'images' must list pictures as base64");
    parts.push_back({{"type", "image_url"},
                     {"image_url", {{"url", "data:application/octet-stream;base64," + image.get<std::string>()}}}});
  }
  parts.push_back({{"type", "text"}, {"text", text}});
  return parts;
}

Json message_of(const Json& message, const std::string& where) {
  const Fields f(message, where + ".");
  Json out = {{"role", f.needed_text("role")}, {"content", parts_of(f.text("content").value_or(""), f.list("images"))}};
  if (const auto thoughts = f.text("thinking")) out["reasoning_content"] = *thoughts;
  if (const auto name = f.text("tool_name")) out["name"] = *name;
  if (out["role"] == "tool") out["tool_call_id"] = f.text("tool_call_id").value_or("call_0");
  if (const Json* calls = f.list("tool_calls"); calls && !calls->empty()) {
    out["tool_calls"] = *calls;
    for (size_t i = 0; i < calls->size(); ++i)
      if (Json& call = out["tool_calls"][i]; call.is_object() && !call.contains("id")) call["id"] = str("call_", i);
  }
  return out;
}

}  // namespace

std::string ollama_name(const std::string& model) {
  const std::string tag = ":latest";
  return model.ends_with(tag) ? model.substr(0, model.size() - tag.size()) : model;
}

Json ollama_chat_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  Json out = Json::object();
  take_options(f, out);
  out["messages"] = Json::array();
  const Json* messages = f.list("messages");
  for (size_t i = 0; messages && i < messages->size(); ++i)
    out["messages"].push_back(message_of((*messages)[i], str("messages[", i, "]")));
  if (const Json* tools = f.list("tools"); tools && !tools->empty()) out["tools"] = *tools;
  return out;
}

Json ollama_generate_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  for (const char* key : {"raw", "suffix"}) f.find(key);  // of those who ask for a completion
  f.cannot("template", "", "the model's own chat template is used; --chat_template of the server changes it");
  f.cannot("context", Json::array(), "conversations are told as messages: /api/chat");
  Json out = Json::object();
  take_options(f, out);
  out["messages"] = Json::array();
  if (const auto system = f.text("system"); system && !system->empty())
    out["messages"].push_back({{"role", "system"}, {"content", *system}});
  out["messages"].push_back({{"role", "user"}, {"content", parts_of(f.text("prompt").value_or(""), f.list("images"))}});
  return out;
}

Json ollama_completion_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  Json out = Json::object();
  take_options(f, out);
  out.erase("chat_template_kwargs"), out.erase("reasoning_effort");
  if (!out.contains("max_tokens")) out["max_tokens"] = 128;  // a raw text need not end
  out["prompt"] = f.needed_text("prompt");
  if (const auto suffix = f.text("suffix"); suffix && !suffix->empty()) out["suffix"] = *suffix;
  return out;
}

std::string ollama_show_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  const auto model = f.text("model"), older = f.text("name");
  return ollama_name(model ? *model : older.value_or(""));
}

Json ollama_embedding_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  Json out = Json::object();
  if (const auto model = f.text("model")) out["model"] = ollama_name(*model);
  const Json *input = f.find("input"), *prompt = f.find("prompt");
  if (input || prompt)
    out["input"] = input ? *input : *prompt;
  else
    f.missing("input", "a text, or a list of them");
  if (const auto dimensions = f.whole("dimensions", 1, 1 << 20)) out["dimensions"] = *dimensions;
  return out;
}

}  // namespace apus
