// SPDX-License-Identifier: Apache-2.0
// apus infer against a server of somebody else: bounded concurrency, patience, order, going on, and clear ends.
#include "cli/infer_client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/lines.h"
#include "tests/loopback.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

struct Answer {
  int status = 200;
  std::string body, headers;
};

// One thread for each connection; one request each.
class Server {
 public:
  explicit Server(std::function<Answer(const std::string& path, const std::string& head, const Json& body)> answer)
      : answer_(std::move(answer)), listener_(64) {
    accepting_ = std::thread([this] {
      for (int client; (client = listener_.accept()) >= 0;) threads_.emplace_back([this, client] { serve(client); });
    });
  }
  ~Server() {
    listener_.close();
    accepting_.join();
    for (auto& t : threads_) t.join();
  }
  std::string url() const { return str("http://127.0.0.1:", listener_.port()); }
  std::atomic<int> most{0};  // requests at once

 private:
  void serve(int client) {
    std::string text;
    char block[4096];
    size_t head = std::string::npos, wanted = 0;
    while (head == std::string::npos || text.size() < head + 4 + wanted) {
      const ssize_t got = ::recv(client, block, sizeof block, 0);
      if (got <= 0) break;
      text.append(block, static_cast<size_t>(got));
      head = text.find("\r\n\r\n");
      const size_t length = text.find("Content-Length: ");
      if (head != std::string::npos && length < head) wanted = std::stoul(text.substr(length + 16));
    }
    if (head == std::string::npos || text.size() < head + 4 + wanted) {  // the client left in the middle
      ::close(client);
      return;
    }
    int now = ++current_, before = most;
    while (now > before && !most.compare_exchange_weak(before, now)) {}
    const size_t space = text.find(' ');
    const Answer a = answer_(text.substr(space + 1, text.find(' ', space + 1) - space - 1), text.substr(0, head),
                             Json::parse(text.substr(std::min(head + 4, text.size())), nullptr, false));
    --current_;
    const std::string reply = str("HTTP/1.1 ", a.status, " X\r\nConnection: close\r\nContent-Length: ", a.body.size(),
                                  "\r\n", a.headers, "\r\n", a.body);
    if (a.status > 0) ::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
    ::close(client);
  }
  const std::function<Answer(const std::string&, const std::string&, const Json&)> answer_;
  test::Loopback listener_;
  std::atomic<int> current_{0};
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

Answer completion(const std::string& text) {
  return {200,
          Json{{"choices", {{{"message", {{"role", "assistant"}, {"content", text}}}, {"finish_reason", "stop"}}}},
               {"usage", {{"prompt_tokens", 5}, {"completion_tokens", 2}}}}
              .dump(),
          ""};
}
const Answer kModels{200, R"({"object":"list","data":[{"id":"stand-in"}]})", ""};
std::string question(const Json& body) { return body["messages"].back()["content"].get<std::string>(); }

class InferClient : public ::testing::Test {
 protected:
  InferClient() : dir_(fs::temp_directory_path() / str("apus-client-", ::getpid())) {
    fs::create_directories(dir_);
    std::ofstream rows(dir_ / "rows.jsonl");
    for (int i = 0; i < 30; ++i)
      rows << Json{{"id", i}, {"query", str("q", i)}, {"response", str("a q", i)}}.dump() << "\n";
  }
  ~InferClient() override { fs::remove_all(dir_); }
  InferOptions options(const Server& server) const {
    InferOptions o;
    o.infer_backend = "client";
    o.base_url = server.url();
    o.val_dataset = {(dir_ / "rows.jsonl").string()};
    o.result_path = (dir_ / "out.jsonl").string();
    o.max_concurrency = 4;
    o.metric = "acc";
    return o;
  }
  std::vector<Json> answers() const {
    std::vector<Json> out;
    LineReader reader((dir_ / "out.jsonl").string());
    for (std::string line; reader.next(line);) out.push_back(Json::parse(line));
    return out;
  }
  const fs::path dir_;
};

TEST_F(InferClient, PatientAndInOrder) {
  std::atomic<int> asked{0};
  std::mutex mutex;
  std::set<std::string> bodies;
  Server server([&](const std::string& path, const std::string& head, const Json& body) -> Answer {
    if (path == "/v1/models") return kModels;
    EXPECT_EQ(path, "/v1/chat/completions");
    EXPECT_NE(head.find("Authorization: Bearer secret"), std::string::npos);
    EXPECT_EQ(body["model"], "stand-in");
    EXPECT_EQ(body["max_tokens"], 7);
    EXPECT_FALSE(body.contains("temperature"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    switch (asked++ % 5) {
      case 0:
        return {429, R"({"error":{"message":"slow down"}})", "Retry-After: 0\r\n"};
      case 2:
        return {503, "", "Retry-After: 0\r\n"};
      default:
        return completion("a " + question(body));
    }
  });
  InferOptions o = options(server);
  o.api_key = "secret";
  o.answers.max_new_tokens = 7;
  testing::internal::CaptureStdout();
  EXPECT_EQ(infer_client(o), 0);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_NE(shown.find(R"("num_samples":30)"), std::string::npos) << shown;
  EXPECT_NE(shown.find(R"("num_generated_tokens":60)"), std::string::npos) << shown;
  EXPECT_NE(shown.find(R"("acc":1.0)"), std::string::npos) << shown;
  const auto all = answers();
  ASSERT_EQ(all.size(), 30u);
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(all[static_cast<size_t>(i)]["id"], i);
    EXPECT_EQ(all[static_cast<size_t>(i)]["response"], str("a q", i));
  }
  EXPECT_LE(server.most, 4);
  EXPECT_GT(server.most, 1);
}

TEST_F(InferClient, SendsEveryWishAboutSampling) {
  Server server([&](const std::string& path, const std::string&, const Json& body) -> Answer {
    if (path == "/v1/models") return kModels;
    each_sampling_field(
        [&](const auto& field) { EXPECT_EQ(body.value(field.in_requests(), Json()), Json(field.most)) << field.name; });
    return completion("a " + question(body));
  });
  InferOptions o = options(server);
  each_sampling_field([&](const auto& field) { o.answers.*field.wish = field.most; });
  testing::internal::CaptureStdout();
  EXPECT_EQ(infer_client(o), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(answers().size(), 30u);
}

TEST_F(InferClient, SaysWhyNothingMoves) {
  std::atomic<int> asked{0};
  Server server([&](const std::string& path, const std::string&, const Json&) -> Answer {
    if (path == "/v1/models") return kModels;
    return asked++ < 3 ? Answer{503, R"({"error":{"message":"it starts"}})", "Retry-After: 0\r\n"} : completion("x");
  });
  InferOptions o = options(server);
  o.max_concurrency = 1;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(infer_client(o), 0);
  testing::internal::GetCapturedStdout();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("it starts; asking again"), std::string::npos) << log;
}

TEST_F(InferClient, LostConnectionEndsAndGoesOn) {
  std::atomic<bool> dead{false};
  std::atomic<int> asked{0};
  Server server([&](const std::string& path, const std::string&, const Json& body) -> Answer {
    if (path == "/v1/models") return kModels;
    if (asked++ >= 12 && dead) return {0, "", ""};
    return completion("a " + question(body));
  });
  dead = true;
  InferOptions o = options(server);
  o.max_retries = 0;
  EXPECT_THROW(infer_client(o), Error);
  dead = false;
  const int before = asked;
  testing::internal::CaptureStdout();
  EXPECT_EQ(infer_client(o), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(answers().size(), 30u);
  EXPECT_LT(asked - before, 30) << "what was answered is not asked again";
}

TEST_F(InferClient, ARefusedRowIsLeftOut) {
  Server server([&](const std::string& path, const std::string&, const Json& body) -> Answer {
    if (path == "/v1/models") return kModels;
    if (question(body) == "q3") return {400, R"({"error":{"message":"too long"}})", ""};
    return completion("x");
  });
  testing::internal::CaptureStdout();
  EXPECT_EQ(infer_client(options(server)), 0);
  testing::internal::GetCapturedStdout();
  const auto all = answers();
  ASSERT_EQ(all.size(), 29u);
  EXPECT_EQ(all[3]["id"], 4);
}

TEST_F(InferClient, WhatARowSaysToTheTemplateIsSent) {
  Json sent;
  Server server([&](const std::string& path, const std::string&, const Json& body) -> Answer {
    if (path == "/v1/models") return kModels;
    sent = body;
    return completion("x");
  });
  std::ofstream(dir_ / "rows.jsonl") << Json{
      {"messages", {{{"role", "user"}, {"content", "q"}}}},
      {"documents", {{{"text", "d"}}}},
      {"chat_template_kwargs",
       {{"more", 1}}}}.dump();
  testing::internal::CaptureStdout();
  EXPECT_EQ(infer_client(options(server)), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(sent["documents"][0]["text"], "d");
  EXPECT_EQ(sent["chat_template_kwargs"]["more"], 1);
}

TEST_F(InferClient, SaysWhatIsWrong) {
  const auto error = [](const InferOptions& o) {
    try {
      infer_client(o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Server server([&](const std::string&, const std::string&, const Json&) {
    return Answer{401, R"({"error":{"message":"wrong key"}})", ""};
  });
  EXPECT_NE(error(options(server)).find("wrong key"), std::string::npos);
  InferOptions gone = options(server);
  gone.base_url = "http://127.0.0.1:1";
  gone.max_retries = 0;
  EXPECT_NE(error(gone).find("no server answers"), std::string::npos);
  gone.base_url = "127.0.0.1:8000";
  EXPECT_NE(error(gone).find("no address"), std::string::npos);
  InferOptions chat = options(server);
  chat.val_dataset.clear();
  EXPECT_THROW(chat.check(), Error);
  chat = options(server);
  chat.base_url.clear();
  EXPECT_THROW(chat.check(), Error);
}

TEST(ApiRoot, TakesWhatPeopleType) {
  EXPECT_EQ(api_root("http://a:1/"), "http://a:1/v1");
  EXPECT_EQ(api_root("https://a/api/v3/"), "https://a/api/v3");
}

}  // namespace
}  // namespace apus
