// SPDX-License-Identifier: Apache-2.0
#include "environment/called_tools.h"

#include <algorithm>

#include "base/error.h"

namespace apus {
namespace {

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "null") return value.is_null();
  return true;
}

std::string fault_of_argument(const std::string& name, const Json& value, const Json& schema) {
  if (!schema.is_object()) return "";
  if (const auto type = schema.find("type"); type != schema.end()) {
    std::vector<std::string> types;
    for (const Json& one : type->is_array() ? *type : Json::array({*type}))
      if (one.is_string()) types.push_back(one.get<std::string>());
    if (!types.empty() && std::none_of(types.begin(), types.end(), [&](const auto& t) { return is_of_type(value, t); }))
      return str("argument '", name, "' is ", value.dump().substr(0, 100), ", and no ", types[0]);
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
    if (std::find(values->begin(), values->end(), value) == values->end())
      return str("argument '", name, "' is ", value.dump().substr(0, 100), ", and none of ",
                 values->dump().substr(0, 300));
  return "";
}

}  // namespace

std::vector<ToolCall> called_tools(const std::string& text, const Json& tools) {
  for (const ToolFormat format :
       {ToolFormat::Hermes, ToolFormat::QwenCoder, ToolFormat::Glm, ToolFormat::SeedOss, ToolFormat::DeepSeek,
        ToolFormat::Mistral, ToolFormat::Kimi, ToolFormat::ToolList, ToolFormat::ToolCalls, ToolFormat::Plugin,
        ToolFormat::Harmony, ToolFormat::React, ToolFormat::Flower, ToolFormat::Llama3}) {
    ChatParserOptions options;
    options.format = format, options.tools = &tools;
    if (std::vector<ToolCall> calls = parse_chat(text, options).calls; !calls.empty()) return calls;
  }
  return {};
}

std::string fault_of_call(const ToolCall& call, const Json& tools) {
  const Json* function = nullptr;
  std::string names;
  for (const Json& tool : tools) {
    const Json& about = tool.contains("function") ? tool["function"] : tool;
    const std::string name = about.value("name", "");
    names += (names.empty() ? "" : ", ") + name;
    if (name == call.name) function = &about;
  }
  if (!function) return str("there is no tool '", call.name.substr(0, 100), "'; there are: ", names);
  Json arguments;
  try {
    arguments = parse_json(call.arguments, "the arguments");
  } catch (const Error& error) {
    return error.what();
  }
  if (!arguments.is_object()) return "the arguments must be an object";
  const Json parameters = function->value("parameters", Json::object());
  const Json properties = parameters.value("properties", Json::object());
  for (const Json& name : parameters.value("required", Json::array()))
    if (name.is_string() && !arguments.contains(name.get<std::string>()))
      return str("argument '", name.get<std::string>(), "' is missing");
  for (const auto& [name, value] : arguments.items()) {
    if (!properties.contains(name)) return str("there is no argument '", name.substr(0, 100), "'");
    if (const std::string fault = fault_of_argument(name, value, properties[name]); !fault.empty()) return fault;
  }
  return "";
}

EpisodeReply replies_to(const std::vector<ToolCall>& calls, size_t most, const Json& tools,
                        const std::function<std::string(const Json& arguments)>& said) {
  const auto name = tools.at(0).at("function").at("name").get<std::string>();
  EpisodeReply reply;
  for (size_t i = 0; i < std::min(calls.size(), most); ++i) {
    const std::string fault = fault_of_call(calls[i], tools);
    const std::string text = fault.empty() ? said(parse_json(calls[i].arguments, "the arguments")) : "error: " + fault;
    for (const Json& message : tool_says(name, text)) reply.messages.push_back(message);
  }
  return reply;
}

}  // namespace apus
