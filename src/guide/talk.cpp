// SPDX-License-Identifier: Apache-2.0
// Text in which tool calls may stand, each begun where text/chat_parser would see one: from there on the grammar of
// calls holds, before and behind it anything may be said.
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"
#include "guide/tool_forms.h"

namespace apus::guide {

namespace {

const CharSet kBlank = normal({{' ', ' '}, {'\n', '\n'}, {'\t', '\t'}, {'\r', '\r'}});

CharSet none_of(CharSet set) { return inverse(normal(std::move(set))); }

// What begins a call, and the forms in which it may go on.
struct Opening {
  std::string mark;
  std::vector<ToolForm> forms;
};

Opening opening_of(ToolFormat format, const Vocabulary& words) {
  ToolForm form = tool_form(format, words);
  const auto without = [](std::string& text, const std::string& mark) { text.erase(0, mark.size()); };
  std::string mark = "<tool_call>";
  bool parallel = false;  // several calls in one section
  std::vector<ToolForm> forms;
  switch (format) {
    case ToolFormat::SeedOss:
    case ToolFormat::QwenCoder:  // a call is one without <tool_call> around it, too
      mark = "<function=";
      form.begin.clear();
      form.end = "</function>";
      break;
    case ToolFormat::DeepSeek: {
      mark = form.begin;
      ToolForm fenced = form;  // V3's
      fenced.begin = "function" + form.middle;
      fenced.middle = "\n```json\n";
      fenced.end = "\n```" + form.end;
      form.begin.clear();
      forms.push_back(fenced);
      break;
    }
    case ToolFormat::Kimi:
      mark = "<|tool_call_begin|>";
      without(form.begin, mark);
      break;
    case ToolFormat::ToolList:
    case ToolFormat::ToolCalls:
      mark = form.open.substr(0, form.open.find('>') + 1);
      parallel = true;
      without(form.open, mark);
      break;
    case ToolFormat::Plugin:
      mark = "<|action_start|>";
      without(form.begin, mark);
      break;
    case ToolFormat::Harmony: {
      // The recipient stands behind the channel, or before it.
      mark = " to=functions.";
      form.begin.clear();
      ToolForm before = form;
      before.middle = "<|channel|>commentary json<|message|>";
      forms.push_back(before);
      before.middle = "<|channel|>commentary <|constrain|>json<|message|>";
      forms.push_back(before);
      break;
    }
    case ToolFormat::Mistral:
      mark = "[TOOL_CALLS]";
      parallel = !form.open.empty();
      without(parallel ? form.open : form.begin, mark);
      break;
    case ToolFormat::Llama3:
      mark = "<|python_tag|>";
      break;
    case ToolFormat::React:
      mark = "Action:";
      without(form.begin, mark);
      break;
    case ToolFormat::Flower:
      fail(Fault::Usage, "tools with 'strict' are not possible with calls of this form; tool_choice 'required' is");
    default:
      without(form.begin, mark);
  }
  forms.push_back(form);
  for (ToolForm& f : forms) {
    if (!parallel) f.open.clear(), f.close.clear();
    f.parallel = parallel;
  }
  return {mark, forms};
}

// Llama 3 has no mark that is always there: where its answer begins, behind <|python_tag|> and behind a call, a brace
// begins a call, or another object, which must not look like one.
Node llama_begin(Grammar& g, const Vocabulary& words, const GuideTools& tools, const Opening& opening) {
  const int32_t tag = words.special(opening.mark);
  const Node begin = g.reserve();
  TextUntil text{.mark = opening.mark, .after = begin, .may_end = true};
  if (tag >= 0) text.tokens.emplace_back(tag, begin);
  const std::vector<Node> said = text_until(g, text);
  const Json other = {{"type", "object"},
                      {"properties", {{"parameters", false}, {"arguments", false}}},
                      {"additionalProperties", true}};
  const auto on = [&](CharSet no) {  // any text from here, but for these first characters
    no.push_back({'<', '<'});
    return g.either(g.chars(none_of(std::move(no)), said[0]), g.literal("<", said[1]));
  };
  CharSet in_object = kBlank, at_begin = kBlank;
  in_object.insert(in_object.end(), {{'"', '"'}, {'}', '}'}});
  at_begin.insert(at_begin.end(), {{'{', '{'}, {';', ';'}});
  std::vector<Node> ways = {tool_section(g, words, tools, opening.forms[0], begin),
                            SchemaGrammar(g, other).value(other, "#", said[0]),
                            g.literal("{", on(in_object)),
                            g.chars(kBlank, begin),
                            g.literal(";", begin),
                            on(at_begin),
                            Grammar::kReturn};
  if (tag >= 0) ways.push_back(g.token(tag, begin));
  g.define(begin, g.either(ways));
  return begin;
}

Node text_begin(Grammar& g, const Vocabulary& words, const GuideTools& tools, const Opening& opening) {
  const Node begin = g.reserve();
  std::vector<Node> ways;
  for (const ToolForm& form : opening.forms) ways.push_back(tool_section(g, words, tools, form, begin));
  TextUntil text{.mark = opening.mark, .after = g.either(ways), .may_end = true};
  if (const int32_t id = words.special(opening.mark); id >= 0) text.tokens.emplace_back(id, text.after);
  g.define(begin, text_until(g, text)[0]);
  return begin;
}

}  // namespace

Node talk(Grammar& g, const Vocabulary& words, const GuideTools& tools, bool reasoning, bool in_reasoning) {
  const Opening opening = opening_of(tools.format, words);
  const Node begin =
      tools.format == ToolFormat::Llama3 ? llama_begin(g, words, tools, opening) : text_begin(g, words, tools, opening);
  if (!reasoning) return begin;
  // Thoughts are no answer yet: what looks like a call there is none.
  TextUntil text{.mark = "</think>", .after = begin, .may_end = true};
  if (const int32_t id = words.special(text.mark); id >= 0) text.tokens.emplace_back(id, begin);
  const Node thoughts = text_until(g, text)[0];
  if (in_reasoning) return thoughts;
  const Node lead = g.reserve();
  g.define(lead, g.either(g.chars(kBlank, lead), wrapper(g, words, "<think>", thoughts)));
  return g.either(lead, begin);
}

}  // namespace apus::guide
