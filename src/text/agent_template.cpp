// SPDX-License-Identifier: Apache-2.0
// Written for this project after the forms in which models were trained to call tools.
#include "text/agent_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

// Three pieces of Jinja: of `tools` and `system` the system message; of `calls` ({"name", "arguments"}) what the
// assistant says; of `results`, texts, what comes back. Without the last two the form is the checkpoint's own.
struct AgentForm {
  const char* name;
  ToolFormat format;
  const char* stop = "";
  std::string tools = {}, calls = {}, results = {};
};

namespace {

const std::string kSystem = "{{ system ~ '\\n\\n' if system }}";
const std::string kNames = "[{{ tools | map(attribute='name') | join(',') }}]";

// Thought, Action, Action Input, Observation.
const std::string kReactCalls =
    "{%- for call in calls -%}"
    "{{- 'Action: ' ~ call.name ~ '\\nAction Input: ' ~ call.arguments | tojson ~ '\\n' -}}"
    "{%- endfor -%}{{- 'Observation:' -}}";
const std::string kReactResults =
    "{%- for result in results -%}"
    "{{- '' if loop.first else 'Observation:' -}}{{- result -}}{{- '' if result.endswith('\\n') else '\\n' -}}"
    "{%- endfor -%}";

std::string react_tools(const std::string& task, const std::string& each, const std::string& steps) {
  return kSystem + task + "\n\n{% for tool in tools %}{{ tool.name }}: {{ tool.description }} " + each +
         " {{ tool.parameters | tojson }}\n\n{% endfor %}" + steps;
}

const std::string kReactSteps =
    "Write in this form:\n\nQuestion: what is asked\nThought: what to do next\n"
    "Action: the tool to use, one of " +
    kNames +
    "\nAction Input: its arguments, a JSON object\n"
    "Observation: what the tool answers\n... (from Thought to Observation as often as it is needed)\n"
    "Thought: the answer is known now\nFinal Answer: the answer to the question\n\nLet's begin.\n";
const std::string kReactStepsChinese =
    "按下面的格式书写：\n\nQuestion: 提出的问题\nThought: 接下来做什么\n"
    "Action: 要用的工具，" +
    kNames +
    " 之一\nAction Input: 工具的参数，一个 JSON 对象\nObservation: 工具返回的内容\n"
    "……（从 Thought 到 Observation 可以按需要重复）\nThought: 已经知道答案\nFinal Answer: 问题的答案\n\n开始。\n";
const std::string kReactStepsThink =
    "Think between <think> and </think>, then write in this form:\n\n"
    "<think>what to do next</think>\nAction: the tool to use, one of " +
    kNames +
    "\nAction Input: its arguments, a JSON object\nObservation: what the tool answers\n"
    "... (as often as it is needed)\nFinal Answer: the answer to the question\n\nLet's begin.\n";
const std::string kToolBench =
    kSystem +
    "Solve the task with the help of functions. At each step write your thought, which may be short, then one call:\n"
    "Thought:\nAction:\nAction Input:\n\nThe result of the call follows, and you decide on the next step. Nothing that "
    "was called can be taken back. End with the function Finish, whose arguments hold the whole answer.\n"
    "The functions: {{ tools | tojson }}";

// The marks of Qwen's first agents.
const std::string kFlowerCalls =
    "{%- for call in calls -%}"
    "{{- '✿FUNCTION✿: ' ~ call.name ~ '\\n✿ARGS✿: ' ~ call.arguments | tojson ~ '\\n' -}}"
    "{%- endfor -%}{{- '✿RESULT✿:' -}}";
const std::string kFlowerResults =
    "{%- for result in results -%}"
    "{{- '' if loop.first else '✿RESULT✿:' -}}{{- result -}}{{- '' if result.endswith('\\n') else '\\n' -}}"
    "{%- endfor -%}";

std::string flower_tools(const std::string& title, const std::string& have, const std::string& arguments,
                         const std::string& how) {
  return kSystem + "# " + title + "\n\n## " + have +
         "\n\n{% for tool in tools %}### {{ tool.name }}\n\n{{ tool.name }}: {{ tool.description }} " + arguments +
         " {{ tool.parameters | tojson }}\n\n{% endfor %}## " + how;
}

const std::string kFlowerOne =
    "A tool is called by these lines, as often as it is needed:\n\n✿FUNCTION✿: the tool, one "
    "of " +
    kNames + "\n✿ARGS✿: its arguments\n✿RESULT✿: what it answers\n✿RETURN✿: the reply made of it";
const std::string kFlowerMany =
    "Several tools are called at once by these lines:\n\n✿FUNCTION✿: the first tool, one of " + kNames +
    "\n✿ARGS✿: its arguments\n✿FUNCTION✿: the next tool\n✿ARGS✿: its arguments\n...\n"
    "✿RESULT✿: what the first answers\n✿RESULT✿: what the next answers\n...\n✿RETURN✿: the reply made of them";
const std::string kFlowerOneChinese = "用下面几行调用工具，次数不限：\n\n✿FUNCTION✿: 工具，" + kNames +
                                      " 之一\n✿ARGS✿: 参数\n✿RESULT✿: 工具返回的内容\n✿RETURN✿: 据此给出的回复";
const std::string kFlowerManyChinese =
    "用下面几行同时调用多个工具：\n\n✿FUNCTION✿: 第一个工具，" + kNames +
    " 之一\n✿ARGS✿: 参数\n✿FUNCTION✿: 下一个工具\n✿ARGS✿: 参数\n……\n✿RESULT✿: 第一个工具返回的内容\n"
    "✿RESULT✿: 下一个工具返回的内容\n……\n✿RETURN✿: 据此给出的回复";

// Tools as JSON lines between tags, results between tags in a message of the user.
std::string tagged_tools(const std::string& how) {
  return kSystem +
         "# Tools\n\nYou may call functions to help the user. These are the functions, one JSON object per line:\n"
         "<tools>\n{% for tool in tools %}{{ {'type': 'function', 'function': tool} | tojson }}\n{% endfor %}</tools>"
         "\n\n" +
         how;
}
const std::string kTaggedResults =
    "{%- for result in results -%}{{- '\\n' if not loop.first -}}"
    "{{- '<tool_response>\\n' ~ result ~ '\\n</tool_response>' -}}{%- endfor -%}";

const std::string kHermesHow =
    "To call a function, write its name and its arguments as JSON between these tags:\n"
    "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>";
const std::string kHermesCalls =
    "{%- for call in calls -%}{{- '\\n' if not loop.first -}}"
    "{{- '<tool_call>\\n{\"name\": ' ~ call.name | tojson ~ ', \"arguments\": ' ~ call.arguments | tojson ~ "
    "'}\\n</tool_call>' -}}{%- endfor -%}";

// One tag for each argument; what is no text is JSON.
std::string coder_how(const std::string& mark) {
  return "To call a function, write:\n<" + mark +
         ">\n<function=name>\n<parameter=argument>\nvalue\n</parameter>\n"
         "</function>\n</" +
         mark + ">";
}
std::string coder_calls(const std::string& mark) {
  return "{%- for call in calls -%}{{- '\\n' if not loop.first -}}{{- '<" + mark +
         ">\\n<function=' ~ call.name ~ '>\\n' -}}"
         "{%- for name, value in call.arguments.items() -%}"
         "{{- '<parameter=' ~ name ~ '>\\n' ~ (value if value is string else value | tojson) ~ '\\n</parameter>\\n' -}}"
         "{%- endfor -%}{{- '</function>\\n</" +
         mark + ">' -}}{%- endfor -%}";
}

const std::string kDeepSeekHow =
    "To call functions, write nothing but this, with one call for each function and its arguments as JSON:\n"
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>name<｜tool▁sep｜>{\"argument\": value}<｜tool▁call▁end｜>"
    "<｜tool▁calls▁end｜>";

std::string glm_how(const std::string& line) {
  return "To call a function, write its name and its arguments between these tags:\n<tool_call>name" + line +
         "<arg_key>argument</arg_key>" + line + "<arg_value>value</arg_value>" + line + "</tool_call>";
}
std::string glm_calls(const std::string& line) {
  return "{%- for call in calls -%}{{- '" + line + "' if not loop.first -}}{{- '<tool_call>' ~ call.name ~ '" + line +
         "' -}}{%- for name, value in call.arguments.items() -%}"
         "{{- '<arg_key>' ~ name ~ '</arg_key>" +
         line + "<arg_value>' ~ (value if value is string else value | tojson) ~ '</arg_value>" + line +
         "' -}}{%- endfor -%}{{- '</tool_call>' -}}{%- endfor -%}";
}

const std::vector<AgentForm>& forms() {
  static const std::string task = "Answer the question as well as you can. These tools are at hand:";
  static const std::string chinese = "尽力回答问题。可以使用这些工具：";
  static const std::string english = "Its parameters:", parameters = "参数：";
  const auto react = [](const char* name, std::string tools) {
    return AgentForm{name, ToolFormat::React, "Observation:", std::move(tools), kReactCalls, kReactResults};
  };
  const auto flower = [](const char* name, bool is_chinese, const std::string& how) {
    return AgentForm{name,
                     ToolFormat::Flower,
                     "✿RESULT✿:",
                     is_chinese ? flower_tools("工具", "可以使用的工具：", parameters, how)
                                : flower_tools("Tools", "These tools are at hand:", english, how),
                     kFlowerCalls,
                     kFlowerResults};
  };
  const auto coder = [](const char* name, ToolFormat format, const std::string& mark) {
    return AgentForm{name, format, "", tagged_tools(coder_how(mark)), coder_calls(mark), kTaggedResults};
  };
  static const std::vector<AgentForm> all = {
      react("react_en", react_tools(task, english, kReactSteps)),
      react("react_zh", react_tools(chinese, parameters, kReactStepsChinese)),
      react("react_grpo", react_tools(task, english, kReactStepsThink)),
      react("toolbench", kToolBench),
      flower("qwen_en", false, kFlowerOne),
      flower("qwen_en_parallel", false, kFlowerMany),
      flower("qwen_zh", true, kFlowerOneChinese),
      flower("qwen_zh_parallel", true, kFlowerManyChinese),
      {"hermes", ToolFormat::Hermes, "", tagged_tools(kHermesHow), kHermesCalls, kTaggedResults},
      coder("qwen3_coder", ToolFormat::QwenCoder, "tool_call"),
      coder("qwen3_5", ToolFormat::QwenCoder, "tool_call"),
      coder("seed_oss", ToolFormat::SeedOss, "seed:tool_call"),
      {"glm4_5", ToolFormat::Glm, "", tagged_tools(glm_how("\n")), glm_calls("\\n"), kTaggedResults},
      {"glm4_7", ToolFormat::Glm, "", tagged_tools(glm_how("")), glm_calls(""), kTaggedResults},
      {"llama3", ToolFormat::Llama3},
      {"llama4", ToolFormat::Llama3},
      {"mistral", ToolFormat::Mistral},
      {"deepseek_v3_1", ToolFormat::DeepSeek, "", tagged_tools(kDeepSeekHow)}};
  return all;
}

std::string text_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const Json& part : *content)
    if (part.is_string())
      text += part.get<std::string>();
    else if (part.is_object() && part.contains("text") && part["text"].is_string())
      text += part["text"].get<std::string>();
  return text;
}

bool is_role(const Json& message, const char* role) {
  return message.is_object() && message.contains("role") && message["role"] == role;
}

// {"name", "description", "parameters"} of each, whatever it is wrapped in.
Json functions_of(const Json& tools) {
  Json out = Json::array();
  if (!tools.is_array()) return out;
  for (const Json& tool : tools) {
    const Json& f = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    require(f.is_object() && f.contains("name") && f["name"].is_string(), Fault::Data,
            "tools: every one must be a function with a name");
    Json one = f;
    if (!one.contains("description") || !one["description"].is_string()) one["description"] = "";
    if (!one.contains("parameters") || !one["parameters"].is_object()) one["parameters"] = Json::object();
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

AgentTemplate::AgentTemplate(const AgentForm& form) : form_(&form) {
  if (of_checkpoint() && !tells_tools()) return;
  for (const auto& [part, text] : {std::pair("tools", &form.tools), {"calls", &form.calls}, {"results", &form.results}})
    parts_.push_back(JinjaTemplate::parse(*text, str("--agent_template ", form.name, ", ", part)));
}

AgentTemplate AgentTemplate::named(const std::string& name) {
  const auto& all = forms();
  const auto it = std::find_if(all.begin(), all.end(), [&](const AgentForm& f) { return name == f.name; });
  require(it != all.end(), Fault::Usage, "--agent_template ", name, " is not possible; there are ", join(names()),
          ". Other models' own chat templates write their calls: leave it out for those");
  return AgentTemplate(*it);
}

std::vector<std::string> AgentTemplate::names() {
  std::vector<std::string> out;
  for (const AgentForm& form : forms()) out.emplace_back(form.name);
  return out;
}

std::string AgentTemplate::stop_of(const std::string& name) { return name.empty() ? "" : named(name).form_->stop; }

std::string AgentTemplate::name() const { return form_->name; }
ToolFormat AgentTemplate::format() const { return form_->format; }
bool AgentTemplate::of_checkpoint() const { return form_->calls.empty(); }
bool AgentTemplate::tells_tools() const { return !form_->tools.empty(); }

// DeepSeek-V3.1's; V3 and R1 fence arguments, and were not taught to be told of tools.
std::string AgentTemplate::untold_in(std::string_view text) {
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  const bool told = has("if tools") || has("in tools") || has("tools is") || has("tools |");
  return has("tool▁call▁begin") && has("tool▁sep") && !has("```json") && !told ? "deepseek_v3_1" : "";
}
bool AgentTemplate::joins_results() const { return *form_->stop != '\0'; }

std::string AgentTemplate::calls_text(const Json& message) const {
  Json calls = Json::array();
  for (const Json& call : message["tool_calls"]) {
    const Json& f = call.is_object() && call.contains("function") ? call["function"] : call;
    require(f.is_object() && f.contains("name") && f["name"].is_string(), Fault::Data,
            "tool_calls: every one must have a name");
    Json arguments = f.contains("arguments") ? f["arguments"] : Json::object();
    if (arguments.is_string()) arguments = Json::parse(arguments.get<std::string>(), nullptr, false);
    require(arguments.is_object(), Fault::Data, "tool_calls: the arguments of ", f["name"].get<std::string>(),
            " must be a JSON object, as this form of calls writes them");
    calls.push_back({{"name", f["name"]}, {"arguments", std::move(arguments)}});
  }
  const std::string said = text_of(message), written = parts_[1].render({{"calls", std::move(calls)}}).text;
  return said.empty() || said.ends_with('\n') ? said + written : said + "\n" + written;
}

std::string AgentTemplate::results_text(const std::vector<std::string>& results) const {
  return parts_[2].render({{"results", results}}).text;
}

Json AgentTemplate::without_tools(const Json& messages, const Json& tools) const {
  const Json functions = functions_of(tools);
  Json out = Json::array();
  size_t next = 0;
  if (functions.empty() && of_checkpoint()) return messages;
  if (!functions.empty()) {
    const bool has_system = !messages.empty() && is_role(messages[0], "system");
    const std::string system = has_system ? text_of(messages[0]) : "";
    out.push_back({{"role", "system"}, {"content", parts_[0].render({{"tools", functions}, {"system", system}}).text}});
    next = has_system ? 1 : 0;
  }
  if (of_checkpoint()) {
    out.insert(out.end(), messages.begin() + static_cast<std::ptrdiff_t>(next), messages.end());
    return out;
  }
  while (next < messages.size()) {
    Json message = messages[next];
    if (is_role(message, "tool")) {
      std::vector<std::string> results;
      for (; next < messages.size() && is_role(messages[next], "tool"); ++next)
        results.push_back(text_of(messages[next]));
      const bool joined = joins_results() && !out.empty() && is_role(out.back(), "assistant");
      if (joined)
        out.back()["content"] = text_of(out.back()) + results_text(results);
      else
        out.push_back({{"role", "user"}, {"content", results_text(results)}});
      continue;
    }
    if (message.is_object() && message.contains("tool_calls") && message["tool_calls"].is_array() &&
        !message["tool_calls"].empty())
      message["content"] = calls_text(message);
    if (message.is_object()) message.erase("tool_calls");
    const bool goes_on = joins_results() && next > 0 && is_role(messages[next - 1], "tool") && !out.empty() &&
                         is_role(out.back(), "assistant") && is_role(message, "assistant");
    if (goes_on)
      out.back()["content"] = text_of(out.back()) + text_of(message);
    else
      out.push_back(std::move(message));
    ++next;
  }
  return out;
}

}  // namespace apus
