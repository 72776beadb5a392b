// SPDX-License-Identifier: Apache-2.0
#include "guide/tool_forms.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "guide/json_schema.h"
#include "text/unicode.h"

namespace apus::guide {

ToolForm tool_form(ToolFormat format, const Vocabulary& words) {
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
    case ToolFormat::SeedOss:
      return {"", "<seed:tool_call>\n<function=", ">\n", "</function>\n</seed:tool_call>", "\n", ""};
    case ToolFormat::React:
      return {"", "Action: ", "\nAction Input: ", "\nObservation:", "", "", false};
    case ToolFormat::Flower:
      return {"", "✿FUNCTION✿: ", "\n✿ARGS✿: ", "\n✿RESULT✿:", "", "", false};
    case ToolFormat::Kimi:  // the number would have to count the calls: one is forced
      return {"<|tool_calls_section_begin|>",
              "<|tool_call_begin|>functions.",
              ":0<|tool_call_argument_begin|>",
              "<|tool_call_end|>",
              "",
              "<|tool_calls_section_end|>",
              false};
    case ToolFormat::ToolList:
      return {"<|tool_call|>[",
              "{\"name\": \"",
              "\", \"arguments\": ",
              "}",
              ", ",
              words.special("<|/tool_call|>") >= 0 ? "]<|/tool_call|>" : "]"};
    case ToolFormat::ToolCalls:
      return {"<tool_calls>\n", "{\"name\": \"", "\", \"arguments\": ", "}", "\n", "\n</tool_calls>"};
    case ToolFormat::Plugin:
      return {"", "<|action_start|><|plugin|>{\"name\": \"", "\", \"parameters\": ", "}<|action_end|>", "", "", false};
    case ToolFormat::Harmony:
      return {"", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>", "", "", false};
    case ToolFormat::Glm:
      return {"", "<tool_call>", "", "</tool_call>", "\n", ""};
    case ToolFormat::None:
      break;
  }
  fail(Fault::Usage, "this model's template knows no form of tool calls: give one by --tool_call_parser");
}

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

std::vector<Node> text_until(Grammar& g, const TextUntil& text) {
  std::vector<char32_t> mark;
  for (const char *p = text.mark.data(), *end = p + text.mark.size(); p < end;) mark.push_back(unicode::next_char(p));
  std::vector<Node> matched;
  for (size_t i = 0; i < mark.size(); ++i) matched.push_back(g.reserve());
  for (size_t i = 0; i < mark.size(); ++i) {
    const CharSet first = {{mark[0], mark[0]}}, expected = {{mark[i], mark[i]}};
    std::vector<Node> ways{g.chars(expected, i + 1 < mark.size() ? matched[i + 1] : text.after),
                           g.chars(inverse(normal({first[0], expected[0]})), matched[0])};
    if (i > 0) ways.push_back(g.chars(first, matched[1]));
    for (const auto& [id, after] : text.tokens) ways.push_back(g.token(id, after));
    if (text.may_end) ways.push_back(Grammar::kReturn);
    g.define(matched[i], g.either(ways));
  }
  return matched;
}

namespace {

struct Tool {
  std::string name;
  Json parameters;
  bool free;  // its arguments may be any object
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
    tools.push_back(
        {name, described ? f["parameters"] : none, wanted.strict_only && f.value("strict", Json()) != true});
  }
  require(!tools.empty(), Fault::Usage, "tool_choice: there is no tool named '", wanted.only, "'");
  return tools;
}

Node arguments_of(Grammar& g, const Vocabulary& words, const Tool& tool, ToolFormat format, Node next) {
  const std::string path = "tools/" + tool.name + "/parameters";
  const auto marked = [&](const ArgumentMarks& marks) {
    return tool.free ? any_marked_arguments(g, words, marks, next)
                     : marked_arguments(g, words, marks, tool.parameters, path, next);
  };
  if (format == ToolFormat::QwenCoder || format == ToolFormat::SeedOss) return marked(kCoderMarks);
  if (format == ToolFormat::Glm) {
    const Node arguments = marked(kGlmMarks);
    return g.either(g.literal("\n", arguments), arguments);
  }
  // The grammar keeps a reference to the schema while it is built.
  const Json parameters = with_local_refs(tool.parameters);
  SchemaGrammar schema(g, parameters);
  if (tool.free) return schema.any_object(next);
  if (parameters.is_object() && parameters.value("type", Json()) == "object")
    return schema.value(parameters, path, next);
  // Whatever it says: arguments are an object.
  const Json object = {{"allOf", Json::array({{{"type", "object"}}, {{"$ref", "#"}}})}};
  return schema.value(object, path, next);
}

}  // namespace

Node tool_section(Grammar& g, const Vocabulary& words, const GuideTools& tools, const ToolForm& form, Node next) {
  const Node end = Grammar::kReturn;
  std::vector<Node> ways;
  for (const Tool& tool : read_tools(tools)) {
    const Node arguments = arguments_of(g, words, tool, tools.format, wrapper(g, words, form.end, end));
    const std::string quoted = json_text(Json(tool.name));
    ways.push_back(g.literal(quoted.substr(1, quoted.size() - 2), wrapper(g, words, form.middle, arguments)));
  }
  const Node call = wrapper(g, words, form.begin, g.either(ways));
  const Node close = wrapper(g, words, form.close, next);
  if (!tools.parallel || !form.parallel) return wrapper(g, words, form.open, g.call(call, 1, 1, close));
  const Node more = wrapper(g, words, form.between, g.call(call, 1, 1, end));
  return wrapper(g, words, form.open, g.call(call, 1, 1, g.call(more, 0, kUnlimited, close)));
}

Node tool_calls(Grammar& g, const Vocabulary& words, const GuideTools& tools) {
  return tool_section(g, words, tools, tool_form(tools.format, words), Grammar::kReturn);
}

}  // namespace apus::guide
