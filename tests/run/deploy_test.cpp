// SPDX-License-Identifier: Apache-2.0
// What the server answers is what `apus infer` answers, alone and under load.
#include "run/deploy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/lines.h"
#include "cli/infer.h"
#include "run/runner.h"
#include "tests/run/tiny_model.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class Deploy : public ::testing::Test {
 protected:
  static constexpr int kRows = 12;
  static void SetUpTestSuite() {
    dir() = fs::temp_directory_path() / str("apus-deploy-", ::getpid());
    ASSERT_EQ(test::init_tiny_model(dir() / "model"), 0);
    std::ofstream rows(dir() / "rows.jsonl");
    for (int i = 0; i < kRows; ++i) rows << json_text({{"messages", messages(i)}}) << "\n";
  }
  static void TearDownTestSuite() { fs::remove_all(dir()); }
  static fs::path& dir() {
    static fs::path path;
    return path;
  }
  static Json messages(int i) {
    return Json::array(
        {{{"role", "user"}, {"content", std::string(static_cast<size_t>(i * 5), 'x') + str(" question ", i)}}});
  }
  static std::vector<std::string> inferred(double temperature) {
    InferOptions o;
    o.model.model = (dir() / "model").string();
    o.model.device = "cpu";
    o.val_dataset = {(dir() / "rows.jsonl").string()};
    o.result_path = (dir() / str("answers-", temperature, ".jsonl")).string();
    o.answers.max_new_tokens = 16;
    o.answers.temperature = temperature;
    EXPECT_EQ(apus_run_command("infer", &o), 0);
    std::vector<std::string> out;
    LineReader reader(o.result_path);
    for (std::string line; reader.next(line);) out.push_back(Json::parse(line)["response"]);
    return out;
  }
};

TEST_F(Deploy, AnswersAsInferDoes) {
  DeployOptions o;
  o.model.model = (dir() / "model").string();
  o.model.device = "cpu";
  const Inference in = open_inference(o.model, o.placement, "", o.prompt, o.engine);
  const auto workers = std::make_shared<Workers>(2);
  const auto api = std::make_shared<Api>(ApiSpec{.verbose = false}, service_spec(o, in), workers);
  for (const double temperature : {0.0, 1.0}) {
    const auto expected = inferred(temperature);
    std::vector<std::shared_ptr<test::Waiting>> replies;
    for (int i = 0; i < kRows; ++i) {
      auto call = std::make_shared<HttpCall>();
      call->method = "POST";
      call->path = "/v1/chat/completions";
      call->body =
          json_text({{"messages", messages(i)}, {"max_tokens", 16}, {"temperature", temperature}, {"seed", 42 + i}});
      replies.push_back(std::make_shared<test::Waiting>());
      api->serve(call, replies.back());
    }
    for (int i = 0; i < kRows; ++i)
      EXPECT_EQ(Json::parse(replies[static_cast<size_t>(i)]->wait().body)["choices"][0]["message"]["content"],
                expected[static_cast<size_t>(i)])
          << "row " << i;
  }
  const Json form = test::post(
      *api, "/v1/chat/completions",
      {{"messages", messages(0)},
       {"max_tokens", 100},
       {"guided_json", {{"type", "object"}, {"properties", {{"a", {{"type", "boolean"}}}}}, {"required", {"a"}}}}});
  EXPECT_TRUE(Json::parse(form["choices"][0]["message"]["content"].get<std::string>())["a"].is_boolean());
  workers->stop();
}

}  // namespace
}  // namespace apus
