// SPDX-License-Identifier: Apache-2.0
#include "engine/guide/tool_forms.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/guide/json_schema.h"

namespace apus::guide {

namespace {

// What stands around names and arguments.
struct Form {
  std::string open;     // once, before the first call
  std::string begin;    // before a name
  std::string middle;   // between name and arguments
  std::string end;      // behind the arguments
  std::string between;  // between two calls
  std::string close;    // once, behind the last
  bool parallel = true;
};

Form form_of(ToolFormat format, const Vocabulary& words) {
  switch (format) {
    case ToolFormat::Hermes:
      return {"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", ""};
    case ToolFormat::Llama3:
      return {"", "{\"name\": \"", "\", \"parameters\": ", "}", "", "", false};
    case ToolFormat::QwenCoder:
      return {"", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>", "\n", ""};
    case ToolFormat::DeepSeek:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "",
              "<｜tool▁calls▁end｜>"};
    case ToolFormat::Mistral:
      if (words.special("[ARGS]") >= 0) return {"", "[TOOL_CALLS]", "[ARGS]", "", "", ""};
      return {"[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"};
    case ToolFormat::None:
      break;
  }
  fail(Fault::Usage,
       "this model's template knows no form of tool calls: give one by --tool_format or the agent template");
}

// Text in which special tokens stand for themselves.
Node wrapper(Grammar& g, const Vocabulary& words, std::string_view text, Node next) {
  size_t at = std::string_view::npos;
  std::pair<std::string_view, int32_t> found;
  for (const auto& [special, id] : words.specials()) {
    const size_t where = text.rfind(special);
    if (where == std::string_view::npos ||
        (at != std::string_view::npos && where + special.size() <= at + found.first.size()))
      continue;
    at = where;
    found = {special, id};
  }
  if (at == std::string_view::npos) return g.literal(text, next);
  const Node tail = g.literal(text.substr(at + found.first.size()), next);
  return wrapper(g, words, text.substr(0, at), g.token(found.second, tail));
}

struct Tool {
  std::string name;
  Json parameters;
};

std::vector<Tool> read_tools(const GuideTools& wanted) {
  std::vector<Tool> tools;
  for (const Json& entry : *wanted.tools) {
    const Json& f = entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    require(f.is_object() && f.contains("name") && f["name"].is_string() &&
                !f["name"].get_ref<const std::string&>().empty(),
            Fault::Usage, "tools: every one must be a function with a name");
    const auto name = f["name"].get<std::string>();
    if (!wanted.only.empty() && name != wanted.only) continue;
    const Json none = {{"type", "object"}, {"properties", Json::object()}};
    const bool described = f.contains("parameters") && !f["parameters"].is_null();
    tools.push_back({name, described ? f["parameters"] : none});
  }
  require(!tools.empty(), Fault::Usage, "tool_choice: there is no tool named '", wanted.only, "'");
  return tools;
}

// Anything up to the tag, which is part of it.
Node until(Grammar& g, const std::string& tag, Node next) {
  const auto without = [](const std::string& some) {
    CharSet set;
    for (const char c : some) set.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    return inverse(normal(std::move(set)));
  };
  std::vector<Node> matched;  // so many characters of the tag; its first one stands nowhere else in it
  for (size_t i = 0; i < tag.size(); ++i) matched.push_back(g.reserve());
  for (size_t i = 0; i < tag.size(); ++i) {
    const Node on = g.literal(std::string(1, tag[i]), i + 1 < tag.size() ? matched[i + 1] : next);
    std::vector<Node> ways{on, g.chars(without(std::string{tag[0], tag[i]}), matched[0])};
    if (i > 0) ways.push_back(g.literal(std::string(1, tag[0]), matched[1]));
    g.define(matched[i], g.either(ways));
  }
  return matched[0];
}

// <parameter=key> and bare text for what is a string, JSON for all else.
Node coder_arguments(Grammar& g, const Tool& tool, const std::string& path, Node next) {
  SchemaGrammar schemas(g, tool.parameters);
  const Json& parameters = schemas.resolved(tool.parameters, path);
  require(parameters.is_object(), Fault::Usage, path, ": must be the schema of an object");
  const Json properties = parameters.value("properties", Json::object()),
             required = parameters.value("required", Json::array());
  require(properties.is_object() && required.is_array(), Fault::Usage, path, ": must be the schema of an object");
  const std::string tag = "</parameter>";
  std::vector<std::pair<std::string, const Json*>> list;
  for (auto it = properties.begin(); it != properties.end(); ++it) list.push_back({it.key(), &it.value()});
  for (size_t i = list.size(); i-- > 0;) {
    const auto& [name, schema] = list[i];
    const std::string at = path + "/properties/" + name;
    const Json& kind = schemas.resolved(*schema, at);
    const Node after = g.literal("\n", next), closed = g.literal("\n" + tag, after);
    Node value;
    if (kind.is_object() && kind.value("type", Json()) == "string" && !kind.contains("pattern") &&
        !kind.contains("format")) {
      std::vector<std::string> texts;
      for (const Json& v : kind.value("enum", Json::array()))
        if (v.is_string()) texts.push_back(v.get<std::string>());
      value = texts.empty() ? until(g, tag, after) : g.one_of(texts, closed);
    } else {
      value = schemas.value(*schema, at, closed);
    }
    const Node written = g.literal("<parameter=" + name + ">\n", value);
    const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
    next = needed ? written : g.either(written, next);
  }
  return next;
}

}  // namespace

Node tool_calls(Grammar& g, const Vocabulary& words, const GuideTools& tools) {
  const Form form = form_of(tools.format, words);
  const Node end = Grammar::kReturn;
  std::vector<Node> ways;
  const auto list = read_tools(tools);
  // Their grammars keep references to the schemas while they are built.
  for (const Tool& tool : list) {
    const std::string path = "tools/" + tool.name + "/parameters";
    const Node tail = wrapper(g, words, form.end, end);
    const Node arguments = tools.format == ToolFormat::QwenCoder
                               ? coder_arguments(g, tool, path, tail)
                               : SchemaGrammar(g, tool.parameters).value(tool.parameters, path, tail);
    const std::string quoted = json_text(Json(tool.name));
    ways.push_back(g.literal(quoted.substr(1, quoted.size() - 2), wrapper(g, words, form.middle, arguments)));
  }
  const Node call = wrapper(g, words, form.begin, g.either(ways));
  const Node close = wrapper(g, words, form.close, end);
  if (!tools.parallel || !form.parallel) return wrapper(g, words, form.open, g.call(call, 1, 1, close));
  const Node more = wrapper(g, words, form.between, g.call(call, 1, 1, end));
  return wrapper(g, words, form.open, g.call(call, 1, 1, g.call(more, 0, kUnlimited, close)));
}

}  // namespace apus::guide
