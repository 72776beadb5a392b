// SPDX-License-Identifier: Apache-2.0
#include "serve/anthropic_request.h"

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/media_parts.h"
#include "serve/openai_request.h"

namespace apus {

namespace {

std::string text_of(const Json& content, const std::string& where, Json* media = nullptr);

// A document that is text, with its title and what is said of it before it.
std::string document_text(const Fields& block) {
  const Json* source = block.object("source");
  if (!source) refuse(block.name("source"), "'", block.name("source"), "' is missing");
  if (const Json* citations = block.object("citations"))
    Fields(*citations, block.name("citations") + ".").cannot("enabled", false, "this model cites nothing");
  const Fields in(*source, block.name("source") + ".");
  const std::string type = in.needed_text("type");
  std::string text;
  if (type == "text") {
    if (const auto media = in.text("media_type"); media && *media != "text/plain")
      refuse(in.name("media_type"), "'", in.name("media_type"), "' is '", media->substr(0, 64),
             "', it must be text/plain");
    text = in.needed_text("data");
  } else if (type == "content") {
    const Json* content = in.find("content");
    if (!content) refuse(in.name("content"), "'", in.name("content"), "' is missing");
    text = text_of(*content, in.name("content"));
  } else {
    refuse(in.name("type"), "'", in.name("type"), "' is '", type.substr(0, 64),
           "': documents must be text here, with a source of the type text or content");
  }
  std::string head;
  if (const auto title = block.text("title")) head += "Title: " + *title + "\n";
  if (const auto context = block.text("context")) head += "Context: " + *context + "\n";
  return "<document>\n" + head + text + "\n</document>\n";
}

// A text, or blocks of text and, where `media` takes them, images.
std::string text_of(const Json& content, const std::string& where, Json* media) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse(where, "'", where, "' must be a text or a list of blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Fields block(content[i], str(where, "[", i, "]."));
    const std::string type = block.needed_text("type");
    if (type == "document") {
      text += document_text(block);
      continue;
    }
    if (const std::string tag = media ? media_tag(block, type, *media) : ""; !tag.empty()) {
      text += tag;
      continue;
    }
    if (type != "text")
      refuse(block.name("type"), "'", block.name("type"), "' is '", type.substr(0, 64), "', and here only text",
             media ? ", documents of text and images are" : " is", " taken");
    text += block.needed_text("text");
  }
  return text;
}

Json tool_use(const Fields& block) {
  const Json* input = block.object("input");
  return {{"id", block.needed_text("id")},
          {"type", "function"},
          {"function", {{"name", block.needed_text("name")}, {"arguments", input ? *input : Json::object()}}}};
}

Json assistant_message(const Json& blocks, const std::string& where) {
  std::string text, thoughts;
  Json calls = Json::array();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Fields block(blocks[i], str(where, "[", i, "]."));
    const std::string type = block.needed_text("type");
    if (type == "text")
      text += block.needed_text("text");
    else if (type == "thinking")
      thoughts += block.needed_text("thinking");
    else if (type == "tool_use")
      calls.push_back(tool_use(block));
    else if (type != "redacted_thinking")
      refuse(block.name("type"), "'", block.name("type"), "' is '", type.substr(0, 64),
             "': an assistant's blocks are text, thinking and tool_use");
  }
  Json message = {{"role", "assistant"}, {"content", text}};
  if (!thoughts.empty()) message["reasoning_content"] = thoughts;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

// The results of tools become messages of their own, before what the user says.
void add_user_messages(const Json& blocks, const std::string& where, Json& out, Json& media) {
  std::string text;
  bool spoke = false;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string name = str(where, "[", i, "]");
    const Fields block(blocks[i], name + ".");
    const std::string type = block.needed_text("type");
    if (type == "tool_result") {
      const Json* content = block.find("content");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", block.needed_text("tool_use_id")},
                     {"content", content ? text_of(*content, block.name("content"), &media) : ""}});
    } else {
      text += text_of(Json::array({blocks[i]}), where, &media);
      spoke = true;
    }
  }
  if (spoke || blocks.empty()) out.push_back({{"role", "user"}, {"content", text}});
}

Json openai_messages(const Fields& f, Json& media) {
  Json out = Json::array();
  if (const Json* system = f.find("system"))
    out.push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  const Json* messages = f.list("messages");
  if (!messages || messages->empty()) return f.missing("messages", "a list with at least one message"), out;
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string where = str("messages[", i, "]");
    const Fields m((*messages)[i], where + ".");
    const std::string role = m.needed_text("role");
    const Json* content = m.find("content");
    if (!content) refuse(m.name("content"), "'", m.name("content"), "' is missing");
    if (role != "user" && role != "assistant")
      refuse(m.name("role"), "'", m.name("role"), "' must be user or assistant");
    if (content->is_string())
      out.push_back({{"role", role}, {"content", *content}});
    else if (!content->is_array())
      refuse(m.name("content"), "'", m.name("content"), "' must be a text or a list of blocks");
    else if (role == "assistant")
      out.push_back(assistant_message(*content, m.name("content")));
    else
      add_user_messages(*content, m.name("content"), out, media);
  }
  return out;
}

Json openai_tools(const Json& tools) {
  Json out = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Fields f(tools[i], str("tools[", i, "]."));
    if (const auto type = f.text("type"); type && *type != "custom")
      refuse(f.name("type"), "'", f.name("type"), "' is '", type->substr(0, 64),
             "': this server runs no tools of its own, give those with an input_schema");
    Json function = {{"name", f.needed_text("name")}};
    if (const auto description = f.text("description")) function["description"] = *description;
    if (f.boolean("strict").value_or(false)) function["strict"] = true;
    const Json* schema = f.object("input_schema");
    function["parameters"] = schema ? *schema : Json{{"type", "object"}, {"properties", Json::object()}};
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

Json openai_choice(const Json& choice, bool& parallel) {
  const Fields f(choice, "tool_choice.");
  parallel = !f.boolean("disable_parallel_tool_use").value_or(false);
  const std::string type = f.needed_text("type");
  if (type == "tool") return {{"type", "function"}, {"function", {{"name", f.needed_text("name")}}}};
  if (type == "any") return "required";
  if (type != "auto" && type != "none")
    refuse("tool_choice.type", "'tool_choice.type' is '", type.substr(0, 64), "', it must be auto, any, tool or none");
  return type;
}

bool read_thinking(const Json& thinking) {
  const std::string type = Fields(thinking, "thinking.").needed_text("type");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    refuse("thinking.type", "'thinking.type' is '", type.substr(0, 64), "', it must be enabled, adaptive or disabled");
  return type != "disabled";
}

// The form of the answer: output_config.format, or output_format as it was called first.
Guide read_format(const Fields& f) {
  std::string where = "output_format.";
  const Json* format = f.object("output_format");
  if (const Json* config = f.object("output_config"); config && !format) {
    where = "output_config.format.";
    format = Fields(*config, "output_config.").object("format");
  }
  if (!format) return {};
  const Fields in(*format, where);
  if (const std::string type = in.needed_text("type"); type != "json_schema")
    refuse(in.name("type"), "'", in.name("type"), "' is '", type.substr(0, 64), "', it must be json_schema");
  const Json* schema = in.object("schema");
  if (!schema) refuse(in.name("schema"), "'", in.name("schema"), "' is missing");
  return {.kind = Guide::Kind::JsonSchema, .schema = *schema, .param = in.name("schema")};
}

}  // namespace

ChatCall read_messages_request(const Json& body, bool counting, Json* schema) {
  const Fields f(body, "", schema);
  ChatCall call;
  call.model = f.text("model").value_or("");
  const auto most = f.whole("max_tokens", 1, INT32_MAX);
  if (!most && !counting) f.missing("max_tokens", "a whole number");
  call.wishes = f.sampling();
  call.wishes.max_new_tokens = most.value_or(1);
  call.stops = f.texts("stop_sequences", 64);
  std::erase(call.stops, "");
  call.stream = f.boolean("stream").value_or(false);
  call.messages = openai_messages(f, call.media);
  // An answer that is begun already is gone on with.
  call.continue_final_message = !call.messages.empty() && call.messages.back()["role"] == "assistant" &&
                                !call.messages.back().contains("tool_calls");
  call.guide = read_format(f);
  Json tools, choice;
  if (const Json* given = f.list("tools")) tools = openai_tools(*given);
  if (const Json* given = f.object("tool_choice")) choice = openai_choice(*given, call.parallel_calls);
  read_tools(tools.is_null() ? nullptr : &tools, choice.is_null() ? nullptr : &choice, call);
  if (const Json* thinking = f.object("thinking")) call.kwargs["enable_thinking"] = read_thinking(*thinking);
  if (const Json* config = f.object("output_config"))  // for templates that know it: agents send it to every model
    if (const auto effort = Fields(*config, "output_config.").text("effort")) call.kwargs["reasoning_effort"] = *effort;
  f.cannot("container", nullptr, "this server runs no tools of its own");
  f.cannot("mcp_servers", Json::array(), "this server runs no tools of its own");
  f.cannot("context_management", nullptr, "nothing is taken out of a conversation here; shorten it before");
  call.ignored = f.unread({"metadata", "service_tier", "cache_control", "inference_geo"});
  return call;
}

}  // namespace apus
