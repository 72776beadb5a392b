// SPDX-License-Identifier: Apache-2.0
// Models that give numbers over HTTP: labels, rewards, scores, rankings; what they refuse.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/serve/test_server.h"

namespace apus {
namespace {

using test::ask;
using test::post;

struct NumbersServed : test::Served {
  std::shared_ptr<Api> api_for(ServedTask task) {
    ServiceSpec spec = service();
    spec.task = std::move(task);
    return std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(spec), workers);
  }
  std::string prompt(size_t request) const { return tokenizer->decode(engine.seen().at(request).prompt, false); }
};

TEST(ServeNumbers, AClassifierNamesLabels) {
  NumbersServed s;
  s.engine.numbers = [](const EngineRequest& r) { return std::vector<float>{0, r.prompt.size() > 14 ? 2.0f : -2.0f}; };
  const auto api =
      s.api_for({.name = "seq_cls", .labels = {"bad", "good"}, .problem_type = "single_label_classification"});
  const Json a = post(*api, "/classify", {{"input", Json::array({"x", std::string(40, 'x')})}});
  ASSERT_EQ(a["data"].size(), 2u);
  EXPECT_EQ(a["data"][0]["label"], "bad");
  EXPECT_EQ(a["data"][1]["label"], "good");
  EXPECT_EQ(a["data"][1]["index"], 1);
  EXPECT_EQ(a["data"][1]["num_classes"], 2);
  EXPECT_NEAR(a["data"][1]["probs"][1].get<double>(), 1 / (1 + std::exp(-2)), 1e-6);
  EXPECT_GT(a["usage"]["prompt_tokens"], 20);
  // The chat template, and its call for an answer.
  EXPECT_NE(s.prompt(0).find("user\nx"), std::string::npos) << s.prompt(0);
  EXPECT_NE(s.prompt(0).find("assistant"), std::string::npos) << s.prompt(0);
  EXPECT_EQ(post(*api, "/pooling", {{"input", "x"}})["data"][0]["data"], Json({0.0, -2.0}));
  EXPECT_EQ(post(*api, "/classify", {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}})["data"].size(),
            1u);
  EXPECT_EQ(post(*api, "/classify", {{"input", {1, 2, 3}}})["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(post(*api, "/classify", Json::object(), 400)["error"]["param"], "input");
  const Json both = {{"input", "x"}, {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  EXPECT_EQ(post(*api, "/classify", both, 400)["error"]["param"], "input");
}

TEST(ServeNumbers, SeveralLabelsAndNumbers) {
  NumbersServed s;
  s.engine.numbers = [](const EngineRequest&) { return std::vector<float>{1, -1, 2}; };
  const auto many =
      s.api_for({.name = "seq_cls", .labels = {"a", "b", "c"}, .problem_type = "multi_label_classification"});
  const Json a = post(*many, "/classify", {{"input", "x"}});
  EXPECT_EQ(a["data"][0]["label"], Json({"a", "c"}));
  EXPECT_NEAR(a["data"][0]["probs"][1].get<double>(), 1 / (1 + std::exp(1)), 1e-6);
  const auto numbers = s.api_for({.name = "seq_cls", .labels = {"a", "b", "c"}, .problem_type = "regression"});
  EXPECT_EQ(post(*numbers, "/classify", {{"input", "x"}})["data"][0]["probs"], Json({1.0, -1.0, 2.0}));
}

TEST(ServeNumbers, AHeadPassesOverPadsAtTheEnd) {
  NumbersServed s;
  const auto api = s.api_for(
      {.name = "seq_cls", .labels = {"a", "b", "c"}, .problem_type = "single_label_classification", .pad = 7});
  post(*api, "/classify", {{"input", {5, 7, 6, 7, 7}}});
  EXPECT_EQ(s.engine.seen().back().prompt, (std::vector<int32_t>{5, 7, 6}));
}

TEST(ServeNumbers, ARerankerSortsDocuments) {
  NumbersServed s;
  // The longer the better.
  s.engine.numbers = [](const EngineRequest& r) {
    return std::vector<float>{static_cast<float>(r.prompt.size()) / 100};
  };
  const auto api = s.api_for({.name = "reranker", .labels = {"LABEL_0"}, .problem_type = "regression"});
  const Json documents = Json::array({"b", std::string(30, 'x') + " long", {{"text", "some words"}}});
  const Json a = post(*api, "/v1/rerank", {{"query", "q"}, {"documents", documents}});
  ASSERT_EQ(a["results"].size(), 3u);
  EXPECT_EQ(a["results"][0]["index"], 1);
  EXPECT_EQ(a["results"][1]["document"]["text"], "some words");
  EXPECT_GT(a["results"][0]["relevance_score"], a["results"][1]["relevance_score"]);
  EXPECT_LT(a["results"][0]["relevance_score"], 1);
  EXPECT_GT(a["usage"]["total_tokens"], 30);
  const Json few =
      post(*api, "/rerank", {{"query", "q"}, {"documents", documents}, {"top_n", 1}, {"return_documents", false}});
  ASSERT_EQ(few["results"].size(), 1u);
  EXPECT_FALSE(few["results"][0].contains("document"));
  const Json pairs = post(*api, "/v1/score",
                          {{"text_1", "q"}, {"text_2", Json::array({"b", "some words"})}, {"use_activation", false}});
  EXPECT_NEAR(pairs["data"][1]["score"].get<double>(), static_cast<double>(s.engine.seen().back().prompt.size()) / 100,
              1e-6);
  EXPECT_EQ(post(*api, "/score", {{"text_1", {"a", "b", "c"}}, {"text_2", {"a", "b"}}}, 400)["error"]["param"],
            "text_2");
  EXPECT_EQ(post(*api, "/rerank", {{"query", "q"}}, 400)["error"]["param"], "documents");
  EXPECT_EQ(post(*api, "/rerank", {{"query", "q"}, {"documents", {5}}}, 400)["error"]["param"], "documents");
}

TEST(ServeNumbers, AGenerativeRerankerIsAskedInItsWords) {
  NumbersServed s;
  s.engine.numbers = [](const EngineRequest&) { return std::vector<float>{0}; };
  const auto api = s.api_for({.name = "generative_reranker", .words = {.yes = "oui", .no = "non"}});
  const Json a = post(*api, "/v1/rerank", {{"query", "what"}, {"documents", {"that"}}, {"instruction", "find it"}});
  EXPECT_DOUBLE_EQ(a["results"][0]["relevance_score"].get<double>(), 0.5);
  const std::string asked = s.prompt(0);
  EXPECT_NE(asked.find("<Instruct>: find it\n<Query>: what\n<Document>: that"), std::string::npos) << asked;
  EXPECT_NE(asked.find("\"oui\" or \"non\""), std::string::npos) << asked;
}

TEST(ServeNumbers, VectorsAreComparedByTheirCosine) {
  NumbersServed s;
  s.engine.numbers = [](const EngineRequest& r) { return std::vector<float>{static_cast<float>(r.prompt.size()), 4}; };
  const auto api = s.api_for({.name = "embedding"});
  const Json a = post(*api, "/v1/score", {{"text_1", "a"}, {"text_2", {"a", "a b c d e f"}}});
  EXPECT_NEAR(a["data"][0]["score"].get<double>(), 1, 1e-6);
  EXPECT_LT(a["data"][1]["score"].get<double>(), 1);
  EXPECT_EQ(post(*api, "/v1/rerank", {{"query", "a"}, {"documents", {"a b c d", "a"}}})["results"][0]["index"], 1);
  EXPECT_EQ(post(*api, "/v1/embeddings", {{"input", "a"}})["data"].size(), 1u);
}

TEST(ServeNumbers, SayWhatTheModelGivesInstead) {
  NumbersServed s;
  const auto rates = s.api_for({.name = "reranker", .labels = {"LABEL_0"}, .problem_type = "regression"});
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/infer/"}) {
    const Json error = post(*rates, path, chat, 400)["error"];
    EXPECT_NE(error["message"].get<std::string>().find("cannot chat"), std::string::npos) << path;
    EXPECT_NE(error["message"].get<std::string>().find("/v1/rerank"), std::string::npos) << path;
    EXPECT_EQ(error["code"], "wrong_task") << path;
  }
  EXPECT_EQ(ask(*rates, "POST", "/v1/messages", chat.dump()).status, 400);
  EXPECT_EQ(post(*rates, "/v1/embeddings", {{"input", "a"}}, 400)["error"]["code"], "wrong_task");
  EXPECT_EQ(post(*rates, "/classify", {{"input", "a"}}, 400)["error"]["code"], "wrong_task");
  const auto talks = s.api_for({});
  for (const char* path : {"/classify", "/pooling", "/v1/score", "/v1/rerank"})
    EXPECT_NE(post(*talks, path, chat, 400)["error"]["message"].get<std::string>().find("it chats"), std::string::npos)
        << path;
}

TEST(ServeNumbers, WordsAreLabelled) {
  NumbersServed s;
  // The second of two labels for the first token.
  s.engine.numbers = [](const EngineRequest& r) {
    std::vector<float> all;
    for (size_t i = 0; i < r.prompt.size(); ++i) all.push_back(i == 0 ? -2.0f : 2.0f), all.push_back(0);
    return all;
  };
  const Chat plain{std::filesystem::temp_directory_path(), s.tokenizer, {.use_chat_template = false}};
  ServiceSpec spec = s.service();
  spec.chat = &plain;
  spec.task = {.name = "token_cls", .labels = {"O", "PER"}, .problem_type = "single_label_classification"};
  const auto api = std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(spec), s.workers);
  const Json a = post(*api, "/classify", {{"input", Json::array({"Anna sees Berlin"})}});
  EXPECT_EQ(a["data"][0]["words"], Json({"Anna", "sees", "Berlin"}));
  EXPECT_EQ(a["data"][0]["labels"], Json({"PER", "O", "O"}));
  EXPECT_NEAR(a["data"][0]["probs"][0].get<double>(), 1 / (1 + std::exp(-2)), 1e-6);
  const Json rows = post(*api, "/pooling", {{"input", "Anna"}})["data"][0]["data"];
  ASSERT_EQ(rows.size(), s.engine.seen().back().prompt.size());
  EXPECT_EQ(rows[0], Json({-2.0, 0.0}));
  EXPECT_EQ(post(*api, "/classify", {{"input", {1, 2, 3}}}, 400)["error"]["param"], "input");
}

}  // namespace
}  // namespace apus
