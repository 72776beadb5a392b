// SPDX-License-Identifier: Apache-2.0
// What a trainer asks of a server that rolls out for it: weights in pieces, ids to ids by version, conversations with
// an environment; and the trainer's side of it, over real sockets.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/files.h"
#include "serve/http_server.h"
#include "serve/rollout_door.h"
#include "tests/folder.h"
#include "tests/json_server.h"
#include "tests/serve/test_server.h"
#include "train/options/rollout_options.h"
#include "train/rollout_servers.h"

namespace apus {
namespace {
using test::ask;
using test::post;
using test::Served;

struct RolledOut : Served {
  explicit RolledOut(const std::string& environment = "") {
    RolloutDoor::Spec spec{.folder = folder.path / "weights",
                           .most_bytes = 1000,
                           .engine = &engine,
                           .read_model =
                               [this](const std::filesystem::path& from) {
                                 models.push_back(read_file(from / "model.safetensors", 1000));
                               },
                           .parameters = {"model.norm.weight"},
                           .environment = {}};
    if (!environment.empty()) spec.environment.environment = environment;
    door = std::make_unique<RolloutDoor>(std::move(spec));
    ServiceSpec of_trainer = service();
    of_trainer.door = door.get();
    api = std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(of_trainer), workers);
  }
  ~RolledOut() { api->stop(); }
  int receive(const std::string& query, const std::string& bytes) {
    return ask(*api, "POST", "/update_flattened_params/", bytes, {{"content-type", "application/octet-stream"}}, query)
        .status;
  }
  test::Folder folder;
  std::vector<std::string> models;
  std::unique_ptr<RolloutDoor> door;
  std::shared_ptr<Api> api;
};

Json order(int64_t version, std::vector<std::vector<int32_t>> prompts) {
  AnswerOrder out{.prompts = std::move(prompts), .sampling = {}, .version = version};
  out.sampling.temperature = 0.5, out.sampling.max_new_tokens = 7, out.sampling.stop_ids = {3};
  for (size_t i = 0; i < out.prompts.size(); ++i) out.seeds.push_back(UINT64_MAX - i);
  return to_wire(out);
}

TEST(RolloutServer, TakesWeightsInPieces) {
  RolledOut s;
  EXPECT_EQ(ask(*s.api, "GET", "/get_world_size/").status, 200);
  EXPECT_EQ(Json::parse(ask(*s.api, "GET", "/get_model_state_keys/").body)["state_keys"][0], "model.norm.weight");
  EXPECT_EQ(s.receive("version=1&file=model.safetensors&begin=0", "ab"), 200);
  EXPECT_EQ(s.receive("version=1&file=model.safetensors&begin=1", "c"), 400) << "a piece is missing, or there already";
  EXPECT_EQ(s.receive("version=1&file=model.safetensors&begin=2", "cd"), 200);
  EXPECT_EQ(s.receive("version=1&file=../model.safetensors&begin=0", "x"), 400);
  EXPECT_EQ(s.receive("version=1&begin=0", "x"), 400);
  EXPECT_EQ(s.receive("version=1&file=huge&begin=0", std::string(2000, 'x')), 400) << "more than the model has";
  post(*s.api, "/process_weights_after_loading/", {{"version", 2}}, 400);
  EXPECT_EQ(post(*s.api, "/process_weights_after_loading/", {{"version", 1}})["version"], 1);
  EXPECT_EQ(s.models, (std::vector<std::string>{"abcd"}));
}

TEST(RolloutServer, AnswersByTheNewestAdapter) {
  RolledOut s;
  for (const int version : {1, 2}) {
    s.receive(str("version=", version, "&file=adapter_config.json&begin=0"), "{}");
    post(*s.api, "/process_weights_after_loading/", {{"version", version}});
    EXPECT_EQ(s.engine.adapters(), (std::vector<std::string>{str("policy-", version)}));
    post(*s.api, "/v1/chat/completions", test::question());
    EXPECT_EQ(s.engine.seen().back().adapter, str("policy-", version)) << "whoever speaks OpenAI's API gets it too";
  }
  const Json answers = post(*s.api, "/generate_ids/", order(2, {{5, 6}, {7}}))["answers"];
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["finish_reason"], "length") << "none of its stop tokens was said";
  EXPECT_EQ(answers[0]["versions"][0], 2);
  const EngineRequest asked = s.engine.seen().back();
  EXPECT_EQ(asked.sampling.temperature, 0.5);
  EXPECT_EQ(asked.sampling.max_new_tokens, 7);
  EXPECT_EQ(asked.sampling.seed, UINT64_MAX - 1);
  EXPECT_EQ(post(*s.api, "/generate_ids/", order(3, {{5}}), 409).is_object(), true);
  post(*s.api, "/generate_ids/", {{"version", 2}, {"prompts", "x"}}, 400);
}

TEST(RolloutServer, TellsOfExpertsWhereItIsAsked) {
  RolledOut s;
  Json asked = order(0, {{5, 6}});
  post(*s.api, "/generate_ids/", asked);
  EXPECT_FALSE(s.engine.seen().back().tells_experts);
  asked["routed_experts"] = true;
  post(*s.api, "/generate_ids/", asked);
  EXPECT_TRUE(s.engine.seen().back().tells_experts);

  const FinishedAnswer answer{
      .tokens = {{.id = 4}}, .finish = Finish::Stop, .experts = {0, 1, 127, 128, 255, 256, -1, 32767, -32768}};
  EXPECT_EQ(answers_of_wire(parse_json(json_text(to_wire({answer})), "answers", Fault::Data)).at(0).experts,
            answer.experts);
  EXPECT_FALSE(to_wire({FinishedAnswer{.tokens = {{.id = 4}}}})["answers"][0].contains("routed_experts"));
  EXPECT_THROW(experts_of_text("AAAA"), Error) << "a number and a half";
  EXPECT_THROW(experts_of_text("?"), Error);
}

TEST(RolloutServer, PlaysWithAnEnvironment) {
  RolledOut s("guess_number");
  s.answer = "I guess 4";
  const Json rows = Json::array(
      {{{"messages", Json::array({{{"role", "user"}, {"content", "which?"}}})}, {"number", 4}},
       {{"messages", Json::array({{{"role", "user"}, {"content", "which?"}}})}, {"number", 6}, {"high", 9}}});
  const Json out = post(*s.api, "/infer/", {{"infer_requests", rows}, {"request_config", {{"max_tokens", 30}}}});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0]["rollout_infos"]["num_turns"], 1);
  EXPECT_EQ(out[0]["rollout_infos"]["gym_reward"], 1.0);
  EXPECT_EQ(out[1]["rollout_infos"]["num_turns"], 10);
  EXPECT_EQ(out[1]["messages"][2]["content"], "higher");
  const auto mask = out[1]["response_loss_mask"].get<std::vector<int>>();
  EXPECT_EQ(mask.size(), out[1]["response_token_ids"].size());
  const auto ids = out[1]["response_token_ids"].get<std::vector<int32_t>>();
  EXPECT_NE(
      s.tokenizer->decode(ids, false).find("<|im_end|>\n<|im_start|>user\nhigher<|im_end|>\n<|im_start|>assistant\n"),
      std::string::npos);
}

TEST(RolloutServer, IsNotWhatDeployIs) {
  Served s;
  const auto api = s.api();
  EXPECT_EQ(ask(*api, "GET", "/get_world_size/").status, 404);
  api->stop();
}

TEST(RolloutServers, AreSentWeightsAndAsked) {
  RolledOut one, two;
  HttpServer first({.host = "127.0.0.1", .port = 0}, one.api), second({.host = "127.0.0.1", .port = 0}, two.api);
  int saved = 0;
  const auto save = [&](const std::filesystem::path& dir) {
    write_file_atomic(dir / "model.safetensors", str("weights ", ++saved));
  };
  RolloutServers servers({str("http://127.0.0.1:", first.port()), str("http://127.0.0.1:", second.port())}, 1, true,
                         save);
  AnswerOrder asked{.prompts = {{5}, {6}, {7}}, .seeds = {1, 2, 3}, .sampling = {}, .version = 1};
  EXPECT_EQ(servers.answers(asked).at(2).finish, Finish::Length) << "no stop token is asked for";
  EXPECT_EQ(servers.answers(asked).size(), 3u);
  EXPECT_EQ(one.models, (std::vector<std::string>{"weights 1"})) << "once a version";
  EXPECT_EQ(two.models, one.models);
  // Whoever is free takes the next question: sooner or later that is the other one.
  const auto is_asked = [&](const RolledOut& server, size_t before) {
    for (int tries = 0; tries < 100 && server.engine.seen().size() == before; ++tries) servers.answers(asked);
    return server.engine.seen().size() > before;
  };
  EXPECT_TRUE(is_asked(two, 0));
  asked.version = 2;
  servers.answers(asked);
  EXPECT_EQ(two.models.back(), "weights 2");
  const int port = second.port();
  second.stop();
  asked.version = 3;  // which it cannot be sent
  EXPECT_EQ(servers.answers(asked).size(), 3u) << "the other one takes over";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const size_t before = two.engine.seen().size(), sent = two.models.size();
  HttpServer again({.host = "127.0.0.1", .port = port}, two.api);
  asked.prompts.assign(40, {}), asked.seeds.assign(40, 1);
  for (int32_t i = 0; i < 40; ++i) asked.prompts[static_cast<size_t>(i)] = {i + 1};
  EXPECT_EQ(servers.answers(asked).size(), 40u);
  EXPECT_EQ(two.models.size(), sent + 1) << "it is asked again, and sent the weights";
  EXPECT_TRUE(is_asked(two, before));
  again.stop(), first.stop();
  EXPECT_THROW(servers.answers(asked), Error);
}

// The same answers to every order, some time later.
struct SlowServer {
  explicit SlowServer(int milliseconds)
      : server([this, milliseconds](const Json& body) -> std::pair<int, std::string> {
          if (!body.is_object() || !body.contains("prompts")) return {200, body.is_object() ? body.dump() : "{}"};
          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
          answered += body["prompts"].size();
          std::vector<FinishedAnswer> answers(body["prompts"].size());
          for (size_t i = 0; i < answers.size(); ++i)
            answers[i].finish = Finish::Stop, answers[i].tokens = {{.id = body["prompts"][i][0].get<int32_t>()}};
          return {200, json_text(to_wire(answers))};
        }) {}
  std::string url() const { return server.url().substr(0, server.url().size() - 4); }
  std::atomic<size_t> answered{0};
  test::JsonServer server;
};

TEST(RolloutServers, TakeFurtherQuestionsAsTheyGetDone) {
  SlowServer slow(400), quick(10);
  RolloutServers servers({slow.url(), quick.url()}, 1, true, [](const std::filesystem::path&) {});
  AnswerOrder asked{.prompts = {}, .seeds = {}, .sampling = {}, .version = 1};
  for (int32_t i = 0; i < 64; ++i) asked.prompts.push_back({i}), asked.seeds.push_back(1);
  const auto answers = servers.answers(asked);
  for (int32_t i = 0; i < 64; ++i) EXPECT_EQ(answers.at(static_cast<size_t>(i)).ids(), (std::vector<int32_t>{i}));
  EXPECT_EQ(slow.answered + quick.answered, 64u);
  EXPECT_GT(quick.answered, 40u) << "the slow one has no half of them";
}

TEST(RolloutServers, AreNamedByFlags) {
  RolloutServerOptions o;
  EXPECT_TRUE(o.server_urls().empty());
  o.vllm_mode = "server";
  EXPECT_THROW(o.check(), Error);
  o.vllm_server_host = {"a", "b"}, o.vllm_server_port = {"1", "2"};
  o.check();
  EXPECT_EQ(o.server_urls(), (std::vector<std::string>{"http://a:1", "http://b:2"}));
  o.vllm_server_port = {"1", "2", "3"};
  EXPECT_THROW(o.check(), Error);
  o.vllm_server_port = {}, o.vllm_mode = "colocate";
  EXPECT_THROW(o.check(), Error);
}

}  // namespace
}  // namespace apus
