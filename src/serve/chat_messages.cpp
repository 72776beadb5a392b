// SPDX-License-Identifier: Apache-2.0
// Messages and tools of a chat request, as chat templates want them.
#include <algorithm>
#include <set>

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/media_parts.h"
#include "serve/openai_request.h"

namespace apus {

namespace {

std::string text_of_parts(const Json& parts, const std::string& where, Json* media) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Fields part(parts[i], str(where, "[", i, "]."));
    const std::string type = part.text("type").value_or("text");
    if (type == "refusal") {
      text += part.needed_text("refusal");
      continue;
    }
    if (const std::string tag = media ? media_tag(part, type, *media) : ""; !tag.empty()) {
      text += tag;
      continue;
    }
    if (type != "text" && type != "input_text" && type != "output_text")
      refuse(part.name("type"), "'", part.name("type"), "' is '", type.substr(0, 64),
             "', and here only text is taken" + std::string(media ? ", images, videos and sounds" : ""));
    text += part.needed_text("text");
  }
  return text;
}

// {"id", "type", "function": {"name", "arguments"}}: templates want the arguments as an object.
Json tool_call(const Json& call, const std::string& where) {
  const Fields f(call, where + ".");
  const Json* function = f.object("function");
  if (!function) refuse(f.name("function"), "'", f.name("function"), "' is missing");
  const Fields inner(*function, where + ".function.");
  Json out = call;
  out["type"] = "function";
  out["function"]["name"] = inner.needed_text("name");
  const Json* arguments = inner.find("arguments");
  if (!arguments) {
    out["function"]["arguments"] = Json::object();
  } else if (arguments->is_string()) {
    const std::string& text = arguments->get_ref<const std::string&>();
    try {
      Json parsed = text.empty() ? Json::object() : parse_foreign(text, inner.name("arguments"));
      if (parsed.is_object()) out["function"]["arguments"] = std::move(parsed);
    } catch (const ApiError&) {
      // What a model wrote may be broken; the template gets it as it is.
    }
  }
  return out;
}

}  // namespace

Json chat_message(const Json& message, const std::string& where, Json* media) {
  const Fields f(message, where + ".");
  Json out = message;
  const std::string role = f.needed_text("role");
  static const std::set<std::string> known = {"system",   "developer", "user",      "assistant",     "tool",
                                              "function", "ipython",   "tool_call", "tool_response", "latest_reminder"};
  if (!known.count(role))
    refuse(f.name("role"), "'", f.name("role"), "' is '", role.substr(0, 64),
           "', it must be system, developer, user, assistant, tool or function");
  out["role"] = role == "developer" ? "system" : role == "function" ? "tool" : role;
  const Json* content = f.find("content");
  if (!content) {
    out["content"] = f.text("refusal").value_or("");
    if (role != "assistant") refuse(f.name("content"), "'", f.name("content"), "' is missing");
  } else if (content->is_array()) {
    out["content"] = text_of_parts(*content, f.name("content"), media);
  } else if (!content->is_string()) {
    refuse(f.name("content"), "'", f.name("content"), "' must be a text or a list of parts");
  }
  if (const Json* calls = f.list("tool_calls")) {
    out["tool_calls"] = Json::array();
    for (size_t i = 0; i < calls->size(); ++i)
      out["tool_calls"].push_back(tool_call((*calls)[i], str(f.name("tool_calls"), "[", i, "]")));
    if (calls->empty()) out.erase("tool_calls");
  } else {
    out.erase("tool_calls");
  }
  if (const Json* old = f.object("function_call")) {  // as it was before there were tools
    const std::string name = Fields(*old, f.name("function_call") + ".").needed_text("name");
    out["tool_calls"] = Json::array({tool_call({{"id", "call_" + name}, {"function", *old}}, where)});
  }
  if (role == "function") out["tool_call_id"] = "call_" + f.needed_text("name");
  f.cannot("audio", nullptr, "this model takes text only");
  // Null or empty in what OpenAI's clients send back.
  for (const char* key : {"refusal", "audio", "function_call", "annotations"})
    if (out.contains(key)) out.erase(key);
  return out;
}

Json chat_messages(const Json& messages, Json* media) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i)
    out.push_back(chat_message(messages[i], str("messages[", i, "]"), media));
  return out;
}

namespace {

// Which tools may be called, and whether one must be.
struct ToolChoice {
  std::string mode = "none";       // none, auto, required
  std::vector<std::string> names;  // empty: all of them
  bool one = false;                // a single call
};

std::string function_name(const Fields& f) {
  const Json* function = f.object("function");
  if (!function) refuse(f.name("function"), "'", f.name("function"), "' is missing: only functions can be called");
  return Fields(*function, f.name("function") + ".").needed_text("name");
}

ToolChoice read_choice(const Json* choice, bool has_tools) {
  ToolChoice out{.mode = has_tools ? "auto" : "none"};
  if (choice && choice->is_string()) {
    out.mode = choice->get<std::string>();
  } else if (choice) {
    const Fields f(*choice, "tool_choice.");
    if (const Json* allowed = f.object("allowed_tools")) {
      const Fields in(*allowed, f.name("allowed_tools") + ".");
      const Json* list = in.list("tools");
      if (!list || list->empty())
        refuse(in.name("tools"), "'", in.name("tools"), "' must list tools that may be called");
      for (const Json& tool : *list) out.names.push_back(function_name(Fields(tool, in.name("tools") + ".")));
      out.mode = in.text("mode").value_or("auto");
    } else if (f.find("function")) {
      out = {.mode = "required", .names = {function_name(f)}, .one = true};
    } else {
      refuse("tool_choice", "'tool_choice' must be none, auto, required, name a function, or give allowed_tools");
    }
  }
  if (out.mode != "none" && out.mode != "auto" && out.mode != "required")
    refuse("tool_choice", "'tool_choice' is '", out.mode.substr(0, 64),
           "', it must be none, auto, required, or name a function");
  if (out.mode == "required" && !has_tools)
    refuse("tool_choice", "'tool_choice' asks for a call, but there are no 'tools'");
  return out;
}

}  // namespace

void read_tools(const Json* tools, const Json* choice, ChatCall& call) {
  const bool has_tools = tools && !tools->empty();
  const ToolChoice chosen = read_choice(choice, has_tools);
  if (chosen.mode == "none" || !has_tools) return;
  call.tools = Json::array();
  std::set<std::string> known;
  for (size_t i = 0; i < tools->size(); ++i) {
    const Fields f((*tools)[i], str("tools[", i, "]."));
    if (f.text("type").value_or("function") != "function")
      refuse(f.name("type"), "'", f.name("type"), "' must be function: only functions can be called");
    const std::string name = function_name(f);
    const Fields function(*f.object("function"), f.name("function") + ".");
    function.object("parameters");
    function.boolean("strict");
    if (name.empty() || !known.insert(name).second)
      refuse(function.name("name"), "'", function.name("name"), "' must not be ",
             name.empty() ? "empty" : "there twice");
    const auto& names = chosen.names;
    if (names.empty() || std::find(names.begin(), names.end(), name) != names.end()) call.tools.push_back((*tools)[i]);
  }
  for (const auto& name : chosen.names)
    if (!known.count(name)) refuse("tool_choice", "'tool_choice' names '", name, "', which is none of the 'tools'");
  if (chosen.mode != "required") return;
  if (call.guide.kind != Guide::Kind::None)
    refuse("tool_choice", "an answer can have one form only: a forced call and a response_format exclude each other");
  call.guide = {.kind = Guide::Kind::ToolCalls,
                .schema = call.tools,
                .several = call.parallel_calls && !chosen.one,
                .param = "tools"};
}

}  // namespace apus
