// SPDX-License-Identifier: Apache-2.0
// apus score on the golden checkpoints: logits, hidden states and losses, packed and row by row.
#include "cli/score.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/lines.h"
#include "run/runner.h"
#include "tests/models/golden_batch.h"
#include "tests/run/tiny_model.h"

namespace apus {
namespace {
namespace fs = std::filesystem;
using golden::max_abs;

class GoldenScore : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenScore() : dir(fs::temp_directory_path() / str("apus-score-", ::getpid())) { fs::create_directories(dir); }
  ~GoldenScore() override { fs::remove_all(dir); }

  std::vector<Json> score(const std::string& dataset, bool packed, const std::string& device_map) {
    ScoreOptions o;
    o.model.model = (golden::models() / GetParam() / "checkpoint").string();
    o.model.torch_dtype = "float32";
    o.model.device = kind_of(golden::device()).name();
    o.placement.device_map = device_map;
    o.dataset = {dataset};
    o.result_path = (dir / "scores.jsonl").string();
    o.dump_logits = (dir / "dump.safetensors").string();
    o.packed = packed;
    EXPECT_EQ(apus_run_command("score", &o), 0);
    std::vector<Json> rows;
    LineReader reader(o.result_path);
    for (std::string line; reader.next(line);) rows.push_back(Json::parse(line));
    return rows;
  }
  fs::path dir;
};

TEST_P(GoldenScore, LogitsHiddenStatesAndLoss) {
  const golden::Case c(GetParam());
  const auto p = golden::unpad(c, "right");
  const fs::path dataset = dir / "rows.jsonl";
  {
    std::ofstream out(dataset);
    size_t at = 0;
    for (const auto& ids : p.ids) {
      Json labels = Json::array({-100});  // p.labels are shifted: the label of token t stands at t - 1
      for (size_t t = 0; t + 1 < ids.size(); ++t) labels.push_back(p.labels[at + t]);
      at += ids.size();
      out << Json{{"input_ids", ids}, {"labels", labels}}.dump() << "\n";
    }
    out << R"({"input_ids": [1, 99999999]})"
        << "\n"
        << R"({"input_ids": []})"
        << "\n"
        << "nonsense\n"
        << R"({"input_ids": [1, 2], "labels": [1]})"
        << "\n";
  }
  // On one device, row by row, and over several: every border there is, and the head away from the weight it may share.
  const bool host = golden::device().is_cpu();
  const std::string map = host ? R"({"": "cpu"})" : R"({"": 0, "model.layers.1": 1, "model.norm": 2, "lm_head": 3})";
  for (const auto& [packed, device_map] : {std::pair{true, ""}, std::pair{false, ""}, std::pair{true, map.c_str()}}) {
    const auto rows = score(dataset.string(), packed, device_map);
    ASSERT_EQ(rows.size(), p.ids.size() + 4);
    for (size_t r = p.ids.size(); r < rows.size(); ++r) EXPECT_TRUE(rows[r].contains("error")) << r;
    const auto dump = SafetensorsFile::open(dir / "dump.safetensors");
    EXPECT_EQ(dump->entries().size(), 2 * p.ids.size());
    double loss = 0;
    int64_t labels = 0, at = 0;
    for (size_t r = 0; r < p.ids.size(); ++r) {
      const auto length = static_cast<int64_t>(p.ids[r].size());
      const at::Tensor place =
          golden::ids_tensor(std::vector<int64_t>(p.place.begin() + at, p.place.begin() + at + length), at::kCPU);
      at += length;
      const auto expected = [&](const char* name) {
        const at::Tensor t = c.tensor(name);
        return at::index_select(t.reshape({-1, t.size(-1)}), 0, place);
      };
      const at::Tensor logits = dump->tensor(str("logits.", r)), hidden = dump->tensor(str("hidden.", r));
      EXPECT_LT(max_abs(logits, expected("right/logits")), 3e-4);
      EXPECT_LT(max_abs(hidden, expected("right/last_hidden_state")), 1e-4);
      const at::Tensor logprob = logits.log_softmax(-1);
      EXPECT_TRUE(rows[r]["logprobs"][0].is_null());
      for (int64_t t = 1; t < length; ++t) {
        const auto& given = rows[r]["logprobs"][static_cast<size_t>(t)];
        const int64_t label = p.labels[static_cast<size_t>(at - length + t - 1)];
        ASSERT_EQ(given.is_null(), label < 0);
        if (label < 0) continue;
        EXPECT_NEAR(given.get<double>(), logprob[t - 1][label].item<double>(), 1e-5);
        loss -= given.get<double>();
        ++labels;
      }
    }
    EXPECT_EQ(labels, c.json.at("cases").at("right").at("n_label_tokens").get<int64_t>());
    EXPECT_NEAR(loss / static_cast<double>(labels), c.json.at("cases").at("right").at("loss").get<double>(), 2e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Text, GoldenScore,
                         ::testing::Values("qwen2", "qwen2_untied_sharded", "qwen3_moe_norm", "llama3", "llama_dynamic",
                                           "llama_longrope"),
                         [](const auto& info) { return std::string(info.param); });

// What a row says to the template counts here as in the other commands.
TEST(Score, ARowsOwnVariablesReachTheTemplate) {
  const fs::path dir = fs::temp_directory_path() / str("apus-score-rows-", ::getpid());
  ASSERT_EQ(test::init_tiny_model(dir / "model"), 0);
  ScoreOptions o;
  o.model.model = (dir / "model").string();
  o.model.device = golden::device_named();
  o.prompt.chat_template = "{{ messages[0].content }}{{ more }}{% for d in documents or [] %}{{ d.text }}{% endfor %}";
  o.result_path = (dir / "scores.jsonl").string();
  o.dataset = {(dir / "rows.jsonl").string()};
  const Json talk = Json::array({{{"role", "user"}, {"content", "one two"}}});
  std::ofstream(o.dataset[0])
      << Json{{"messages", talk}, {"documents", nullptr}} << "\n"
      << Json{{"messages", talk}, {"chat_template_kwargs", {{"more", " three four"}}}} << "\n"
      << Json{{"messages", talk}, {"documents", {{{"text", " five six"}}}}} << "\n"
      << Json{{"messages", talk}, {"chat_template_kwargs", "more"}} << "\n"
      << Json{{"messages", nullptr}, {"text", "one"}, {"input_ids", nullptr}, {"labels", nullptr}} << "\n"
      << Json{{"messages", talk}, {"images", {"a.png"}}} << "\n"
      << Json{{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}, {"image", "a.png"}}}}}}}} << "\n";
  EXPECT_EQ(apus_run_command("score", &o), 0);
  std::vector<Json> rows;
  LineReader reader(o.result_path);
  for (std::string line; reader.next(line);) rows.push_back(Json::parse(line));
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_GT(rows[1]["num_tokens"], rows[0]["num_tokens"]);
  EXPECT_GT(rows[2]["num_tokens"], rows[0]["num_tokens"]);
  EXPECT_TRUE(rows[3].contains("error"));
  EXPECT_FALSE(rows[4].contains("error")) << rows[4];
  for (const size_t seen : {5, 6}) {  // a picture is not left out in silence
    ASSERT_TRUE(rows[seen].contains("error")) << rows[seen];
    EXPECT_NE(rows[seen]["error"].get<std::string>().find("--dump_media"), std::string::npos) << rows[seen];
  }
  fs::remove_all(dir);
}

}  // namespace
}  // namespace apus
