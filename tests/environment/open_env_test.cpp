// SPDX-License-Identifier: Apache-2.0
// An environment of OpenEnv over a real socket: what its server is sent, and what the model is told of what it sends.
#include "environment/open_env.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/base64.h"
#include "base/error.h"
#include "tests/loopback.h"
#include "tests/refusal.h"

namespace apus {
namespace {

// A server of one environment, as OpenEnv writes it: `reply` makes of a message {"type", "data"} what is sent back.
class EnvServer {
 public:
  using Reply = std::function<Json(const Json& message)>;
  EnvServer(Json action, Reply reply)
      : schema_(json_text(Json{{"action", std::move(action)}})),
        reply_(std::move(reply)),
        thread_([this] { serve(); }) {}
  ~EnvServer() {
    listener_.close();
    thread_.join();
    for (std::thread& worker : workers_) worker.join();
  }
  std::string url() const { return str("http://127.0.0.1:", listener_.port(), "/"); }

 private:
  void serve() {
    for (int socket = listener_.accept(); socket >= 0; socket = listener_.accept())
      workers_.emplace_back([this, socket] { answer(socket); });
  }
  static bool read(int socket, std::string& bytes) {
    char piece[4096];
    const ssize_t count = ::recv(socket, piece, sizeof piece, 0);
    if (count > 0) bytes.append(piece, static_cast<size_t>(count));
    return count > 0;
  }
  static void send(int socket, const std::string& bytes) { ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void answer(int socket) {
    std::string bytes;
    while (bytes.find("\r\n\r\n") == std::string::npos)
      if (!read(socket, bytes)) break;
    if (bytes.rfind("GET /schema ", 0) == 0)
      send(socket,
           str("HTTP/1.1 200 OK\r\nContent-Length: ", schema_.size(), "\r\nConnection: close\r\n\r\n", schema_));
    if (bytes.rfind("GET /ws ", 0) == 0) {
      send(socket, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
      bytes.clear();
      talk(socket, bytes);
    }
    ::close(socket);
  }
  // Each answer is preceded by a ping, and cut into two frames.
  void talk(int socket, std::string& bytes) {
    for (std::string text; next(socket, bytes, text);) {
      const Json reply = reply_(parse_json(text, "a message", Fault::Data));
      if (reply.is_null()) return;
      const std::string whole = json_text(reply), half = whole.substr(0, whole.size() / 2);
      std::string first = web_socket_frame(1, half, "");
      first[0] = static_cast<char>(first[0] & 0x7f);
      send(socket, web_socket_frame(9, "there?", "") + first + web_socket_frame(0, whole.substr(half.size()), ""));
    }
  }
  // The next text; pongs are passed over.
  static bool next(int socket, std::string& bytes, std::string& text) {
    for (;;) {
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
      while (bytes.size() < 14)
        if (!read(socket, bytes)) break;
      if (bytes.size() < 6) return false;
      size_t size = byte(1) & 0x7f, head = 6;
      if (size == 126) size = byte(2) << 8 | byte(3), head = 8;
      while (bytes.size() < head + size)
        if (!read(socket, bytes)) return false;
      const std::string mask = bytes.substr(head - 4, 4);
      text = bytes.substr(head, size);
      for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(text[i] ^ mask[i % 4]);
      const int kind = byte(0) & 0x0f;
      bytes.erase(0, head + size);
      if (kind == 1) return true;
    }
  }
  const std::string schema_;
  const Reply reply_;
  test::Loopback listener_{16};
  std::vector<std::thread> workers_;
  std::thread thread_;
};

Json action_of(const Json& field) {
  return {{"properties", {{"metadata", Json::object()}, field}}, {"required", {field[0]}}};
}
Json observation(const Json& of, double reward = 0, bool done = false) {
  return {{"type", "observation"}, {"data", {{"observation", of}, {"reward", reward}, {"done", done}}}};
}

struct OpenTalk {
  OpenTalk(const EnvServer& server, const Json& row, double timeout = 30, const char* failure = "stop") {
    EnvironmentOptions o;
    o.environment = "openenv:" + server.url(), o.environment_timeout = timeout, o.environment_failure = failure;
    environment = make_environment(o);
    first = environment->reset({{.episode = 3, .row = &row, .seed = uint64_t{7} << 33}}).at(0);
  }
  EpisodeReply says(const std::string& text) {
    return environment->step({{.episode = 3, .turn = turn++, .text = text, .tokens = {4, 5}}}).at(0);
  }
  std::unique_ptr<Environment> environment;
  EpisodeReply first;
  int64_t turn = 0;
};

TEST(OpenEnv, PlaysAnEpisodeOverOneConnection) {
  Json asked = Json::array();
  const EnvServer server(action_of({"message", {{"type", "string"}}}), [&](const Json& message) {
    if (message["type"] == "close") return Json();
    asked.push_back(message);
    if (message["type"] == "reset") return observation({{"prompt", "Guess."}, {"messages", Json::array()}});
    if (message["data"]["message"] == "crane")
      return observation({{"prompt", "Guess."}, {"messages", {{{"sender_id", -1}, {"content", "G-YG-"}}}}}, 0.25);
    return observation({{"prompt", "Guess."}}, 1, true);
  });
  const Json row = {
      {"messages", {{{"role", "system"}, {"content", "You play."}}, {{"role", "user"}, {"content", "-"}}}},
      {"level", 2}};
  OpenTalk talk(server, row);
  EXPECT_EQ(talk.first.messages,
            Json::parse(R"([{"role":"system","content":"You play."},{"role":"user","content":"Guess."}])"));
  const EpisodeReply next = talk.says(" crane\n");
  EXPECT_EQ(next.messages, user_says("G-YG-"));
  EXPECT_EQ(next.reward, 0.25);
  EXPECT_FALSE(next.done);
  const EpisodeReply last = talk.says("crate");
  EXPECT_TRUE(last.done);
  EXPECT_EQ(last.reward, 1);
  talk.environment->close();
  EXPECT_EQ(asked[0], (Json{{"type", "reset"}, {"data", {{"level", 2}, {"seed", 7}}}}));
  EXPECT_EQ(asked[1], (Json{{"type", "step"}, {"data", {{"message", "crane"}}}}));
}

TEST(OpenEnv, TurnsBecomeActions) {
  std::string told;
  const auto action = [&](const Json& schema, const std::string& text) {
    return open_env_action(schema, {.text = text, .tokens = {4, 5}}, told);
  };
  const Json code = action_of({"code", {{"type", "string"}}}), move = action_of({"action_id", {{"type", "integer"}}});
  EXPECT_EQ(action(code, "print(1)"), (Json{{"code", "print(1)"}}));
  EXPECT_EQ(action(code, "{\"code\": \"x\"}"), (Json{{"code", "x"}})) << "the object itself";
  EXPECT_EQ(action(code, "{\"a\": 1}"), (Json{{"code", "{\"a\": 1}"}})) << "an object of something else is a text";
  EXPECT_EQ(action(move, "I go 3, no, 12."), (Json{{"action_id", 12}}));
  EXPECT_EQ(action(action_of({"x", {{"type", "number"}}}), "-0.5"), (Json{{"x", -0.5}}));
  EXPECT_EQ(action(action_of({"tokens", {{"type", "array"}}}), "a"), (Json{{"tokens", {4, 5}}}));
  const Json word = {{"properties", {{"action", {{"$ref", "#/$defs/Move"}}}}},
                     {"required", {"action"}},
                     {"$defs", {{"Move", {{"type", "string"}, {"enum", {"UP", "DOWN"}}}}}}};
  EXPECT_EQ(action(word, "UP"), (Json{{"action", "UP"}}));
  EXPECT_TRUE(told.empty());
  EXPECT_TRUE(action(move, "nowhere").is_null());
  EXPECT_EQ(told, "Answer with a number (action_id).");
  const Json two = {{"properties", {{"x", {{"type", "integer"}}}, {"y", {{"type", "integer"}}}}},
                    {"required", {"x", "y"}}};
  EXPECT_TRUE(action(two, "1 2").is_null());
  EXPECT_EQ(
      told,
      R"(Answer with one JSON object and nothing else. Its fields: {"x":{"type":"integer"},"y":{"type":"integer"}})");
  EXPECT_EQ(action(two, "{\"x\": 1, \"y\": 2}"), (Json{{"x", 1}, {"y", 2}}));
}

TEST(OpenEnv, ObservationsBecomeMessages) {
  const Json talk = {{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}};
  EXPECT_EQ(open_env_messages({{"messages", talk}, {"tokens", {1}}}), talk);
  EXPECT_EQ(open_env_messages({{"question", "why?"}, {"score", nullptr}}), user_says("why?"));
  EXPECT_EQ(open_env_messages({{"stdout", "4\n"}, {"stderr", ""}, {"exit_code", 0}}),
            user_says(R"({"stdout":"4\n","exit_code":0})"));
  EXPECT_EQ(open_env_messages({{"echoed", "hello"}, {"more", nullptr}}), user_says("hello"));
  EXPECT_TRUE(open_env_messages({{"score", nullptr}}).empty());
}

// An environment whose actions are calls of MCP tools, with one tool that adds.
struct Adding {
  static Json action() {
    return {{"properties",
             {{"type", {{"const", "call_tool"}}},
              {"tool_name", {{"type", "string"}}},
              {"arguments", {{"type", "object"}}},
              {"metadata", Json::object()}}},
            {"required", {"tool_name"}}};
  }
  static Json tool(const char* schema) {
    return {{"name", "add"},
            {"description", "Adds."},
            {schema,
             {{"type", "object"},
              {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "integer"}}}}},
              {"required", {"a", "b"}}}}};
  }
  // As FastMCP gives a value.
  static Json result(const Json& value) {
    return {{"content", {{{"type", "text"}, {"text", column_text(value)}}}}, {"data", value}, {"is_error", false}};
  }
  Json reply(const Json& message) {
    if (message["type"] == "close") return nullptr;
    asked.push_back(message);
    const Json& data = message["data"];
    if (message["type"] == "reset") return observation(Json::object());
    if (message["type"] == "mcp")
      return {{"type", "mcp"},
              {"data", {{"jsonrpc", "2.0"}, {"id", 1}, {"result", {{"tools", {tool("inputSchema")}}}}}}};
    if (data["type"] == "list_tools")
      return lists ? observation({{"tools", {tool("input_schema")}}})
                   : Json{{"type", "error"}, {"data", {{"message", "no"}, {"code", "VALIDATION_ERROR"}}}};
    const int64_t sum = data["arguments"]["a"].get<int64_t>() + data["arguments"]["b"].get<int64_t>();
    if (sum < 0)
      return observation({{"tool_name", "add"}, {"result", nullptr}, {"error", {{"message", "below zero"}}}});
    return observation({{"tool_name", "add"}, {"result", result(sum)}, {"error", nullptr}}, 0.25, sum == 9);
  }
  bool lists = true;
  Json asked = Json::array();
};

constexpr const char* kAdds = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": %}}\n</tool_call>";
std::string adds(const std::string& b) {
  std::string text = kAdds;
  return text.replace(text.find('%'), 1, b);
}

TEST(OpenEnv, ToolsAreToldAndCalled) {
  for (const bool lists : {true, false}) {
    Adding adding;
    adding.lists = lists;
    const EnvServer server(Adding::action(), [&](const Json& message) { return adding.reply(message); });
    EnvironmentOptions o;
    o.environment = "openenv:" + server.url();
    const Json tools = make_environment(o)->tools();
    ASSERT_EQ(tools.size(), 1u) << lists;
    EXPECT_EQ(tools[0]["function"]["name"], "add");
    EXPECT_EQ(tools[0]["function"]["description"], "Adds.");
    EXPECT_EQ(tools[0]["function"]["parameters"]["required"], Json({"a", "b"})) << "as chat templates know it";
    adding.asked.clear();
    const Json row = Json::object();
    OpenTalk talk(server, row);
    EXPECT_TRUE(talk.first.messages.empty()) << "the row's own question";
    EpisodeReply reply = talk.says("I add. " + adds("3"));
    EXPECT_EQ(reply.messages, tool_says("add", "5"));
    EXPECT_EQ(reply.reward, 0.25);
    EXPECT_FALSE(reply.done);
    const Json action = {{"type", "call_tool"}, {"tool_name", "add"}, {"arguments", {{"a", 2}, {"b", 3}}}};
    EXPECT_EQ(adding.asked.back(), (Json{{"type", "step"}, {"data", action}}));
    const size_t before = adding.asked.size();
    EXPECT_NE(json_text(talk.says(adds("\"x\"")).messages).find("no integer"), std::string::npos);
    EXPECT_EQ(adding.asked.size(), before) << "a wrong call is told here";
    EXPECT_EQ(talk.says(adds("-5")).messages, tool_says("add", "error: below zero"));
    EXPECT_EQ(talk.says(json_text(action)).messages.size(), 1u) << "the action itself is one, too";
    reply = talk.says(adds("7") + adds("1"));
    EXPECT_TRUE(reply.done);
    EXPECT_EQ(reply.messages, tool_says("add", "9")) << "nothing is called behind the end";
    EXPECT_TRUE(OpenTalk(server, row).says("It is 5.").done) << "a turn without a call is the answer";
  }
}

TEST(OpenEnv, ResultsOfToolsBecomeTexts) {
  EXPECT_EQ(open_env_result({{"tool_name", "t"}, {"result", "a"}}), "a");
  EXPECT_EQ(open_env_result({{"tool_name", "t"}, {"result", Adding::result({{"length", 2}})}}), R"({"length":2})");
  EXPECT_EQ(open_env_result({{"result", {{"content", {{{"type", "text"}, {"text", "b"}}}}, {"isError", true}}}}),
            "error: b");
  EXPECT_EQ(open_env_result({{"result", nullptr}, {"error", {{"error_type", "timeout"}, {"message", "late"}}}}),
            "error: late");
  EXPECT_TRUE(open_env_tools(Json::array()).is_null());
  EXPECT_TRUE(open_env_tools({{{"description", "has no name"}}}).is_null());
}

TEST(OpenEnv, WithoutToolsTellsNone) {
  const EnvServer server(action_of({"message", {{"type", "string"}}}), [&](const Json&) { return Json(); });
  EnvironmentOptions o;
  o.environment = "openenv:" + server.url();
  EXPECT_TRUE(make_environment(o)->tools().is_null());
  o.environment = "openenv:http://127.0.0.1:1";
  test::expect_says(test::refusal(Fault::Data, [&] { make_environment(o)->tools(); }), "cannot be reached");
}

TEST(OpenEnv, AWrongActionIsToldAndAnErrorIsNamed) {
  const Json action = action_of({"message", {{"type", "string"}}}), row = Json::object();
  const auto error = [](const char* code, const char* text) -> Json {
    return {{"type", "error"}, {"data", {{"message", text}, {"code", code}, {"errors", {"too long"}}}}};
  };
  const EnvServer server(action, [&](const Json& message) -> Json {
    if (message["type"] == "close") return nullptr;
    if (message["type"] == "reset") return observation({{"text", "go"}});
    if (message["data"]["message"] == "wrong") return error("VALIDATION_ERROR", "Invalid message");
    if (message["data"]["message"] == "leave") return nullptr;
    return error("EXECUTION_ERROR", "it broke");
  });
  OpenTalk talk(server, row);
  EXPECT_NE(json_text(talk.says("wrong").messages).find("too long"), std::string::npos);
  test::expect_says(test::refusal(Fault::Data, [&] { talk.says("break"); }), "says: it broke");
  test::expect_says(test::refusal(Fault::Data, [&] { talk.says("leave"); }), "is gone");
  OpenTalk skips(server, row, 30, "skip");
  const EpisodeReply broken = skips.says("break");
  EXPECT_TRUE(broken.done);
  EXPECT_NE(broken.failure.find("it broke"), std::string::npos);

  const EnvServer full(action, [&](const Json&) { return error("CAPACITY_REACHED", "no room"); });
  test::expect_says(test::refusal(Fault::Data, [&] { OpenTalk none(full, row); }), "max_concurrent_envs");
  EnvironmentOptions nowhere;
  nowhere.environment = "openenv:localhost:8000";
  test::expect_says(test::refusal(Fault::Usage, [&] { nowhere.check(); }), "is no address");
}

}  // namespace
}  // namespace apus
