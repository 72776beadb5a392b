// SPDX-License-Identifier: Apache-2.0
#include "data/rows/messages.h"

#include <map>

#include "data/rows/media_refs.h"
#include "text/jinja.h"

namespace apus {

namespace {

const std::map<std::string, std::string>& roles() {
  static const std::map<std::string, std::string> known = {{"user", "user"},
                                                           {"human", "user"},
                                                           {"assistant", "assistant"},
                                                           {"gpt", "assistant"},
                                                           {"bot", "assistant"},
                                                           {"system", "system"},
                                                           {"developer", "system"},
                                                           {"tool", "tool"},
                                                           {"tool_call", "tool_call"},
                                                           {"function_call", "tool_call"},
                                                           {"tool_response", "tool_response"},
                                                           {"function_response", "tool_response"},
                                                           {"observation", "tool_response"},
                                                           {"observations", "tool_response"}};
  return known;
}

const Json* member(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto it = object.find(name); it != object.end() && !it->is_null()) return &*it;
  return nullptr;
}

// As Python's json.dumps has it, with blanks behind : and , as models know it from their training.
std::string dumped(const Json& value) {
  static const JinjaTemplate dumps = JinjaTemplate::parse("{{ value | tojson }}", "a tool's answer");
  return dumps.render({{"value", value}}).text;
}

class Conversation {
 public:
  Conversation(Json& media, const Origin& origin, const std::string& key) : media_(media), origin_(origin), key_(key) {}

  void add_all(const Json& list) {
    if (list.is_string()) return add_all(parsed_cell(list.get<std::string>(), origin_, key_));
    if (!list.is_array() || list.empty())
      bad(str("must be a list of messages, is ", list.is_array() ? "an empty list" : list.type_name()));
    for (const auto& item : list) {
      if (!item.is_object())
        bad(str("message ", at(), " must be an object with role and content, is ", item.type_name()));
      item.contains("role") || item.contains("from") ? add(item) : add_pair(item);
      ++index_;
    }
  }
  Json take() { return std::move(out_); }

 private:
  [[noreturn]] void bad(const std::string& reason, const std::string& inner = "") const {
    throw RowError(origin_, key_ + inner, reason);
  }
  std::string at() const { return std::to_string(index_); }
  [[noreturn]] void bad_here(const std::string& reason, const std::string& inner = "") const {
    bad(reason, "[" + at() + "]" + inner);
  }

  // {"human": ..., "assistant": ...}: two turns in one object.
  void add_pair(const Json& item) {
    const Json* asked = member(item, {"human", "user"});
    const Json* answered = member(item, {"assistant", "gpt", "bot"});
    if (const Json* system = member(item, {"system"})) push("system", text_of(*system, ".system"));
    if (!asked && !answered) bad_here("has no role (wanted: role and content, from and value, or human and assistant)");
    if (asked) push("user", text_of(*asked, ".human"));
    if (answered) push("assistant", text_of(*answered, ".assistant"));
  }

  void add(const Json& item) {
    const Json* role_value = member(item, {"role", "from"});
    if (!role_value || !role_value->is_string()) bad_here("role must be a text", ".role");
    const auto role = roles().find(role_value->get<std::string>());
    if (role == roles().end())
      bad_here(str("unknown role '", role_value->get<std::string>(),
                   "'; known are system, user (human), assistant (gpt, bot), tool, tool_call (function_call) and "
                   "tool_response (observation)"),
               ".role");
    for (const char* misplaced : {"image", "images", "video", "videos", "audio", "audios", "image_path", "path"})
      if (member(item, {misplaced}))
        bad_here(str("the path of a medium stands inside the message, where it would be lost; move it out of the "
                     "message into the row's own list: {\"messages\": [...], \"images\": [\"...\"]}, with <image> in "
                     "the text where it belongs"),
                 std::string(".") + misplaced);
    const Json* calls = member(item, {"tool_calls"});
    const Json* content = member(item, {"content", "value"});
    if (!content && !calls) bad_here("content is missing or null", ".content");
    const Json extras = extras_of(item);
    if (content) add_content(role->second, *content, item, extras, calls);
    if (calls) add_calls(*calls, extras);
  }
  void add_content(const std::string& role, const Json& content, const Json& item, const Json& extras,
                   const Json* calls) {
    std::string text;
    if (content.is_array()) {
      text = from_parts(role, content, extras);
      if (text.empty() && parts_became_messages_) return;
    } else if (content.is_object() && (role == "tool_call" || role == "tool" || role == "tool_response")) {
      text = dumped(content);
    } else {
      text = text_of(content, ".content");
    }
    if (const Json* thought = member(item, {"reasoning_content"});
        thought && thought->is_string() && text.find("<think>") == std::string::npos)
      text = "<think>\n" + thought->get<std::string>() + "\n</think>\n\n" + text;
    if (!calls || !text.empty()) push(role, text, extras);
  }
  Json extras_of(const Json& item) const {
    Json extras = Json::object();
    if (const Json* loss = member(item, {"loss"})) {
      if (!loss->is_boolean() && !loss->is_number()) bad_here("must be true or false", ".loss");
      extras["loss"] = loss->is_boolean() ? loss->get<bool>() : loss->get<double>() != 0;
    }
    if (const Json* scale = member(item, {"loss_scale"})) {
      if (!scale->is_number()) bad_here("must be a number", ".loss_scale");
      extras["loss_scale"] = *scale;
    }
    return extras;
  }
  void add_calls(const Json& calls, const Json& extras) {
    if (!calls.is_array()) bad_here("must be a list", ".tool_calls");
    for (const auto& call : calls) {
      const Json& function = call.is_object() && call.contains("function") ? call["function"] : call;
      if (!function.is_object() || !function.contains("name"))
        bad_here("a call needs function.name and function.arguments", ".tool_calls");
      push_call(function["name"], function.contains("arguments") ? function["arguments"] : Json::object(), extras);
    }
  }
  void push_call(const Json& name, Json arguments, const Json& extras) {
    if (!name.is_string()) bad_here("a tool's name must be a text", ".tool_calls");
    if (arguments.is_string()) {
      const std::string text = arguments.get<std::string>();
      arguments = text.empty() ? Json::object() : parsed_cell(text, origin_, key_ + "[" + at() + "].tool_calls");
    }
    push("tool_call", json_text(Json{{"name", name}, {"arguments", std::move(arguments)}}), extras);
  }

  // A list of content parts as one text: media become tags and entries of the media lists. Anthropic's tool blocks
  // become messages of their own, in their order; the text before one is then a message too.
  std::string from_parts(const std::string& role, const Json& parts, const Json& extras) {
    std::string text;
    parts_became_messages_ = false;
    const auto flush = [&] {
      if (!text.empty()) push(role, text, extras);
      text.clear();
      parts_became_messages_ = true;
    };
    for (const auto& part : parts) {
      if (part.is_string()) {
        text += part.get<std::string>();
        continue;
      }
      const Json* type_value = part.is_object() ? member(part, {"type"}) : nullptr;
      if (!type_value || !type_value->is_string()) bad_here("a content part needs a type", ".content");
      const std::string type = type_value->get<std::string>();
      if (type == "text") {
        text += text_of(part.contains("text") ? part["text"] : Json(), ".content.text");
      } else if (type == "thinking") {
        text += "<think>\n" + text_of(part.contains("thinking") ? part["thinking"] : Json(), ".content.thinking") +
                "\n</think>\n\n";
      } else if (type == "tool_use") {
        flush();
        push_call(part.contains("name") ? part["name"] : Json(),
                  part.contains("input") ? part["input"] : Json::object(), extras);
      } else if (type == "tool_result") {
        flush();
        const Json* result = member(part, {"content"});
        push("tool", !result ? "" : result->is_array() ? plain_text(*result) : text_of(*result, ".content.content"));
      } else if (const MediaKind* kind = media_kind(type)) {
        text += kind->tag;
        add_medium(*kind, type, part);
      } else {
        bad_here(str("unknown type of content part '", type,
                     "'; known are text, image, image_url, video, audio, thinking, tool_use and tool_result"),
                 ".content");
      }
    }
    return text;
  }
  std::string plain_text(const Json& parts) {
    std::string text;
    for (const auto& part : parts)
      if (part.is_object() && part.value("type", "") == "text" && part.contains("text"))
        text += text_of(part["text"], ".content.text");
    return text;
  }
  // {"type": "image"} alone refers to the next entry of the row's own list.
  void add_medium(const MediaKind& kind, const std::string& type, const Json& part) {
    for (const char* setting : kMediaSettings)
      if (member(part, {setting}))
        bad_here(
            "one medium has no settings of its own: --model_kwargs and --max_pixels set sizes and frames of all of "
            "them, and a piece of a video is a list of its frames",
            std::string(".content.") + setting);
    const Json* entry = member(part, {type.c_str(), kind.name, "source", "url", "path"});
    if (!entry) return;
    media_[kind.column].push_back(entry->is_array()
                                      ? media_list(Json::array({*entry}), origin_, key_ + ".content")[0]
                                      : Json(media_entry(*entry, origin_, key_ + "[" + at() + "].content")));
  }
  std::string text_of(const Json& value, const std::string& inner) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number() || value.is_boolean()) return json_text(value);
    bad_here(str("must be a text, is ", value.is_null() ? "null" : value.type_name()), inner);
  }
  // Neighbouring turns of the assistant are one turn.
  void push(const std::string& role, const std::string& text, const Json& extras = Json::object()) {
    Json message = {{"role", role}, {"content", text}};
    for (const auto& [name, value] : extras.items()) message[name] = value;
    if (role == "assistant" && !out_.empty() && out_.back()["role"] == "assistant") {
      Json& last = out_.back();
      if (last.value("loss", Json()) != message.value("loss", Json()) ||
          last.value("loss_scale", Json()) != message.value("loss_scale", Json()))
        bad_here("two assistant messages in a row are one turn, but their loss differs", ".loss");
      last["content"] = last["content"].get<std::string>() + text;
      return;
    }
    out_.push_back(std::move(message));
  }

  Json& media_;
  const Origin& origin_;
  const std::string& key_;
  Json out_ = Json::array();
  size_t index_ = 0;
  bool parts_became_messages_ = false;
};

}  // namespace

Json normalize_messages(const Json& value, Json& media, const Origin& origin, const std::string& key) {
  Conversation conversation(media, origin, key);
  conversation.add_all(value);
  return conversation.take();
}

Json normalize_tools(const Json& value, const Origin& origin, const std::string& key) {
  if (value.is_null()) return Json();
  if (value.is_string())
    return value.get_ref<const std::string&>().empty()
               ? Json()
               : normalize_tools(parsed_cell(value.get<std::string>(), origin, key), origin, key);
  if (value.is_object()) return normalize_tools(Json::array({value}), origin, key);
  if (!value.is_array()) throw RowError(origin, key, str("must be a list of tools, is ", value.type_name()));
  Json tools = Json::array();
  for (const auto& item : value) {
    const Json tool = item.is_string() ? parsed_cell(item.get<std::string>(), origin, key) : item;
    if (!tool.is_object()) throw RowError(origin, key, "a tool must be an object with a function");
    tools.push_back(
        tool.contains("function") || !tool.contains("name") ? tool : Json{{"type", "function"}, {"function", tool}});
  }
  return tools.empty() ? Json() : tools;
}

Json with_other_answer(const Json& messages, const Json& answer, Json& media, const Origin& origin,
                       const std::string& key) {
  Json other = Json::array();
  size_t keep = messages.size();
  while (keep > 0 && (messages[keep - 1]["role"] == "assistant" || messages[keep - 1]["role"] == "tool_call")) --keep;
  for (size_t i = 0; i < keep; ++i) other.push_back(messages[i]);
  Json tail;
  if (answer.is_string()) {
    tail = Json::array({Json{{"role", "assistant"}, {"content", answer}}});
  } else {
    tail = normalize_messages(answer, media, origin, key);
    for (const auto& message : tail)
      if (message["role"] == "user")
        throw RowError(origin, key,
                       "an answer cannot hold a user's message; give the whole conversation as rejected_messages");
  }
  for (auto& message : tail) other.push_back(message);
  if (other == messages) throw RowError(origin, key, "the rejected answer is the same as the chosen one");
  return other;
}

}  // namespace apus
