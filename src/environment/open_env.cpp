// SPDX-License-Identifier: Apache-2.0
#include "environment/open_env.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "environment/called_tools.h"
#include "hub/http.h"
#include "reward/reward.h"

namespace apus {
namespace {

constexpr size_t kLettersShown = 300, kLettersTold = 2000, kLettersOfResult = 1 << 20;
constexpr size_t kMostToolCalls = 16;  // of a turn
constexpr int64_t kSchemaBytes = 1 << 20;

std::string bare_address(std::string address) {
  while (!address.empty() && address.back() == '/') address.pop_back();
  return address;
}

// The fields of an action that the model fills: what stands in every action, or has a value of its own, is left out.
std::vector<std::string> asked_fields(const Json& schema) {
  std::vector<std::string> all, required;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, of] : properties.items())
    if (name != "metadata") all.push_back(name);
  for (const Json& name : schema.value("required", Json::array()))
    if (name.is_string() && name != "metadata") required.push_back(name.get<std::string>());
  return required.size() == 1 || all.size() != 1 ? required : all;
}

// A field's own type, or that of the definition that it names.
std::string type_of(const Json& schema, const Json& field) {
  if (const auto ref = field.find("$ref"); ref != field.end() && ref->is_string()) {
    const std::string name = ref->get<std::string>();
    const Json definitions = schema.value("$defs", Json::object());
    const auto found = definitions.find(name.substr(name.rfind('/') + 1));
    return found == definitions.end() ? "" : type_of(Json::object(), *found);
  }
  const auto type = field.find("type");
  return type != field.end() && type->is_string() ? type->get<std::string>() : "";
}

// The number that stands last.
std::optional<double> last_number(const std::string& text) {
  for (size_t end = text.size(); end > 0; --end) {
    if (!std::isdigit(static_cast<unsigned char>(text[end - 1]))) continue;
    size_t begin = end;
    while (begin > 0 && (std::isdigit(static_cast<unsigned char>(text[begin - 1])) || text[begin - 1] == '.')) --begin;
    if (begin > 0 && text[begin - 1] == '-') --begin;
    return std::strtod(text.substr(begin, end - begin).c_str(), nullptr);
  }
  return std::nullopt;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// The object that a text is, or nothing.
Json object_in(const std::string& text) {
  if (text.empty() || text.front() != '{') return nullptr;
  try {
    return parse_json(text, "an action", Fault::Data);
  } catch (const Error&) {
    return nullptr;
  }
}

bool says_something(const Json& value) {
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();  // null, and what holds nothing
}

// Messages that have no role are what somebody said: one after the other.
Json of_messages(const Json& messages) {
  std::string said;
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string()) return nullptr;
    if (message.contains("role") && message["role"].is_string()) return messages;
    said += (said.empty() ? "" : "\n") + message["content"].get<std::string>();
  }
  return said.empty() ? Json(nullptr) : user_says(said);
}

// Whether actions are calls of MCP tools.
bool calls_tools(const Json& schema) {
  const Json properties = schema.value("properties", Json::object());
  return properties.contains("tool_name") && properties.contains("arguments");
}

}  // namespace

Json open_env_tools(const Json& listed) {
  Json out = Json::array();
  if (listed.is_array())
    for (const Json& tool : listed) {
      if (!tool.is_object() || !tool.contains("name") || !tool["name"].is_string()) continue;
      const Json* const schema = column(tool, {"input_schema", "inputSchema"});
      const Json* const about = column(tool, {"description"});
      out.push_back({{"type", "function"},
                     {"function",
                      {{"name", tool["name"]},
                       {"description", about && about->is_string() ? *about : Json("")},
                       {"parameters", schema ? *schema : Json{{"type", "object"}, {"properties", Json::object()}}}}}});
    }
  return out.empty() ? Json() : out;
}

std::string open_env_result(const Json& observation) {
  if (!observation.is_object()) return column_text(observation);
  if (const Json* error = column(observation, {"error"}))
    return "error: " + column_text(error->is_object() ? error->value("message", *error) : *error);
  const Json result = observation.value("result", Json());
  if (!result.is_object()) return result.is_null() ? "done" : column_text(result);
  // As MCP gives it: the value itself, or texts.
  const bool wrong = result.value("is_error", result.value("isError", false));
  if (const Json* value = column(result, {"data"})) return (wrong ? "error: " : "") + column_text(*value);
  std::string texts;
  if (const Json* content = column(result, {"content"}); content && content->is_array())
    for (const Json& part : *content)
      if (part.is_object() && part.value("type", "") == "text" && part.contains("text"))
        texts += (texts.empty() ? "" : "\n") + column_text(part["text"]);
  return (wrong ? "error: " : "") + (texts.empty() ? json_text(result) : texts);
}

Json open_env_action(const Json& schema, const EpisodeTurn& turn, std::string& told) {
  const std::string text = trimmed(turn.text);
  const Json properties = schema.value("properties", Json::object());
  if (Json object = object_in(text); object.is_object()) {
    bool fits = true;
    for (const auto& [name, value] : object.items()) fits = fits && (properties.empty() || properties.contains(name));
    if (fits) return object;
  }
  const std::vector<std::string> fields = asked_fields(schema);
  if (fields.size() == 1) {
    const std::string type = type_of(schema, properties.value(fields[0], Json::object()));
    if (type == "array" && fields[0] == "tokens") return {{fields[0], turn.tokens}};
    if (type == "string" || type.empty()) return {{fields[0], text}};
    const auto number = type == "integer" || type == "number" ? last_number(text) : std::nullopt;
    if (number && type == "number") return {{fields[0], *number}};
    if (number) return {{fields[0], static_cast<int64_t>(*number)}};
  }
  if (fields.size() == 1) {
    told = str("Answer with a number (", fields[0], ").");
    return nullptr;
  }
  told = "Answer with one JSON object and nothing else";
  Json shown = properties;
  shown.erase("metadata");
  if (!shown.empty()) told += ". Its fields: " + json_text(shown).substr(0, kLettersTold);
  return nullptr;
}

Json open_env_messages(const Json& observation) {
  if (observation.is_string()) return user_says(observation.get<std::string>());
  if (!observation.is_object()) return observation.is_null() ? Json::array() : user_says(json_text(observation));
  if (const auto found = observation.find("messages"); found != observation.end() && found->is_array())
    if (Json messages = of_messages(*found); !messages.is_null()) return messages;
  for (const char* name : {"text", "message", "content", "question", "prompt"})
    if (const auto found = observation.find(name); found != observation.end() && found->is_string())
      if (!found->get_ref<const std::string&>().empty()) return user_says(found->get<std::string>());
  Json rest = Json::object();
  for (const auto& [name, value] : observation.items())
    if (says_something(value)) rest[name] = value;
  if (rest.empty()) return Json::array();
  if (rest.size() == 1 && rest.begin()->is_string()) return user_says(rest.begin()->get<std::string>());
  return user_says(json_text(rest));
}

OpenEnv::OpenEnv(std::string address, const EnvironmentOptions& options)
    : address_(bare_address(std::move(address))),
      timeout_(options.environment_timeout),
      skips_(options.environment_failure == "skip") {}

void OpenEnv::learn_actions() const {
  const std::lock_guard lock(mutex_);
  if (action_) return;
  HttpRequest request{.url = address_ + "/schema"};
  request.body_limit = kSchemaBytes, request.most_seconds = static_cast<int64_t>(std::ceil(timeout_));
  const HttpReply reply = http_request(request);
  require(reply.status != 0, Fault::Data, "the environment ", address_, " cannot be reached: ", reply.error);
  require(reply.status == 200, Fault::Data, "the environment ", address_, " says ", reply.status,
          " to GET /schema, which servers of OpenEnv answer: is this one?");
  const Json schema = parse_json(reply.body, "what " + request.url + " sent", Fault::Data);
  require(schema.is_object() && schema.contains("action") && schema["action"].is_object(), Fault::Data, "what ",
          request.url, " sent has no 'action', the JSON schema of an action");
  if (calls_tools(schema["action"])) tools_ = listed_tools();
  action_ = schema["action"];
}

// Of a session of its own. A server whose actions are of a class of its own lists them by MCP itself.
Json OpenEnv::listed_tools() const {
  WebSocket session(address_ + "/ws", timeout_);
  std::string code;
  Json told =
      asked(session, {{"type", "step"}, {"data", {{"type", "list_tools"}}}}, &code).value("observation", Json());
  if (!code.empty()) {
    const Json call = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", "tools/list"}};
    told = asked(session, {{"type", "mcp"}, {"data", call}}).value("result", Json());
  }
  session.send(json_text(Json{{"type", "close"}}));
  return open_env_tools(told.is_object() ? told.value("tools", Json()) : Json());
}

Json OpenEnv::tools() const {
  learn_actions();
  return tools_;
}

Json OpenEnv::asked(WebSocket& session, const Json& message, std::string* code) const {
  Json reply;
  try {
    session.send(json_text(message));
    reply = parse_json(session.receive(timeout_), "what the environment " + address_ + " sent", Fault::Data);
  } catch (const Error& error) {
    fail(Fault::Data, "the environment ", error.what(), " (--environment_timeout ", timeout_, ")");
  }
  const std::string type = reply.is_object() ? reply.value("type", "") : "";
  const Json data = reply.is_object() ? reply.value("data", Json::object()) : Json::object();
  if ((type == "observation" || type == "mcp") && data.is_object()) return data;
  require(type == "error" && data.is_object(), Fault::Data, "the environment ", address_, " sent ",
          json_text(reply).substr(0, kLettersShown), ", and no observation");
  const std::string named = data.value("code", "");
  if (code) *code = named;
  if (code && named == "VALIDATION_ERROR") return data;
  fail(Fault::Data, "the environment ", address_,
       " says: ", data.value("message", json_text(data)).substr(0, kLettersShown),
       named == "CAPACITY_REACHED" ? ". Start it with room for all answers of a round (max_concurrent_envs)" : "");
}

template <class Of, class Ask>
std::vector<EpisodeReply> OpenEnv::all(const std::vector<Of>& of, const Ask& ask) const {
  std::vector<EpisodeReply> out;
  for (const Of& one : of) try {
      out.push_back(ask(one));
    } catch (const Error& error) {
      if (!skips_ || (error.at.fault != Fault::Data && error.at.fault != Fault::Io)) throw;
      out.push_back({.done = true, .failure = error.what()});
    }
  return out;
}

void OpenEnv::close() {
  std::vector<std::unique_ptr<WebSocket>> open;
  for (auto& [episode, session] : sessions_)
    if (session) open.push_back(std::move(session));
  sessions_.clear();
  in_parallel(open.size(), kAtOnce, [&](size_t i) {
    try {
      open[i]->send(json_text(Json{{"type", "close"}}));
    } catch (const Error&) {  // it is gone
    }
    open[i].reset();
  });
}

std::vector<EpisodeReply> OpenEnv::reset(const std::vector<EpisodeStart>& starts) {
  learn_actions();
  return all(starts, [&](const EpisodeStart& start) {
    std::unique_ptr<WebSocket>& session = session_of(start.episode);
    session = std::make_unique<WebSocket>(address_ + "/ws", timeout_);
    return begin(*session, start);
  });
}

std::vector<EpisodeReply> OpenEnv::step(const std::vector<EpisodeTurn>& turns) {
  return all(turns, [&](const EpisodeTurn& turn) { return after(*session_of(turn.episode), turn); });
}

// Each is one thread's at a time.
std::unique_ptr<WebSocket>& OpenEnv::session_of(int64_t episode) {
  const std::lock_guard lock(mutex_);
  return sessions_[episode];
}

namespace {
EpisodeReply reply_of(const Json& data) {
  EpisodeReply reply;
  reply.messages = open_env_messages(data.value("observation", Json()));
  const Json reward = data.value("reward", Json());
  if (reward.is_number()) reply.reward = reward.get<double>();
  if (reward.is_boolean()) reply.reward = reward.get<bool>();
  require(std::isfinite(reply.reward), Fault::Data, "the environment gave a reward that is no number");
  const Json done = data.value("done", Json());
  reply.done = done.is_boolean() && done.get<bool>();
  return reply;
}
}  // namespace

// The row's columns are arguments of reset(), which the server takes as far as the environment knows them. A row's
// system message stays in front of what the environment says first.
EpisodeReply OpenEnv::begin(WebSocket& session, const EpisodeStart& start) const {
  Json arguments = *start.row;
  for (const char* name : {"messages", "tools"}) arguments.erase(name);
  arguments["seed"] = static_cast<int64_t>(start.seed >> 33);
  EpisodeReply reply = reply_of(asked(session, {{"type", "reset"}, {"data", std::move(arguments)}}));
  require(!reply.done, Fault::Data, "the environment ", address_, " has done before the model has said anything");
  reply.reward = 0;
  const Json* messages = column(*start.row, {"messages"});
  if (!reply.messages.empty() && messages && messages->is_array() && !messages->empty() &&
      messages->front().value("role", "") == "system" && reply.messages.front().value("role", "") != "system")
    reply.messages.insert(reply.messages.begin(), messages->front());
  return reply;
}

EpisodeReply OpenEnv::after(WebSocket& session, const EpisodeTurn& turn) const {
  if (const Json object = object_in(trimmed(turn.text)); !tools_.is_null() && !object.contains("tool_name"))
    return after_calls(session, called_tools(turn.text, tools_));
  std::string told, code;
  const Json action = open_env_action(*action_, turn, told);
  if (action.is_null()) return {.messages = user_says(told)};
  const Json data = asked(session, {{"type", "step"}, {"data", action}}, &code);
  if (code == "VALIDATION_ERROR")
    return {.messages =
                user_says("This is no action: " + json_text(data.value("errors", data)).substr(0, kLettersTold))};
  EpisodeReply reply = reply_of(data);
  if (!reply.done && reply.messages.empty()) reply.messages = user_says("Go on.");
  return reply;
}

// A turn without a call is the answer.
EpisodeReply OpenEnv::after_calls(WebSocket& session, const std::vector<ToolCall>& calls) const {
  EpisodeReply out;
  out.done = calls.empty();
  for (size_t i = 0; i < std::min(calls.size(), kMostToolCalls) && !out.done; ++i) {
    std::string said = fault_of_call(calls[i], tools_), code;
    if (said.empty()) {
      const Json action = {{"type", "call_tool"},
                           {"tool_name", calls[i].name},
                           {"arguments", parse_json(calls[i].arguments, "the arguments")}};
      const Json data = asked(session, {{"type", "step"}, {"data", action}}, &code);
      const EpisodeReply reply = code.empty() ? reply_of(data) : EpisodeReply();
      out.reward += reply.reward, out.done = reply.done;
      said = code.empty() ? open_env_result(data.value("observation", Json()))
                          : "error: " + json_text(data.value("errors", data));
    } else {
      said = "error: " + said;
    }
    for (const Json& message : tool_says(calls[i].name, said.substr(0, kLettersOfResult)))
      out.messages.push_back(message);
  }
  return out;
}

}  // namespace apus
