// SPDX-License-Identifier: Apache-2.0
// apus infer from row files to result files: the same answers whatever the batch, gone on with after a cut, bad rows.
#include "cli/infer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/lines.h"
#include "run/runner.h"
#include "tests/golden.h"
#include "tests/refusal.h"
#include "tests/run/tiny_model.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class Infer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir() = fs::temp_directory_path() / str("apus-infer-", ::getpid());
    ASSERT_EQ(test::init_tiny_model(dir() / "model"), 0);
    std::ofstream rows(dir() / "rows.jsonl");
    for (int i = 0; i < 20; ++i)
      rows << Json{{"id", i},
                   {"messages",
                    Json::array({{{"role", "user"},
                                  {"content", std::string(static_cast<size_t>(i * 3), 'x') + str(" question ", i)}},
                                 {{"role", "assistant"}, {"content", str("label ", i)}}})}}
                  .dump()
           << "\n";
  }
  static void TearDownTestSuite() { fs::remove_all(dir()); }
  static fs::path& dir() {
    static fs::path path;
    return path;
  }
  static InferOptions options(const std::string& name) {
    InferOptions o;
    o.model.model = (dir() / "model").string();
    o.model.device = golden::device_named();
    if (o.model.device != "cpu") o.engine.kv_cache_gb = 0.05;  // a device's cache takes all that is free
    o.val_dataset = {(dir() / "rows.jsonl").string()};
    o.result_path = (dir() / name).string();
    o.answers.max_new_tokens = 12;
    o.answers.temperature = 1;  // draws: equal only if they do not depend on the batch
    o.answers.top_k = 50;
    return o;
  }
  static std::vector<Json> run(const InferOptions& o) {
    EXPECT_EQ(apus_run_command("infer", &o), 0);
    return lines(o.result_path);
  }
  static std::vector<Json> lines(const std::string& path) {
    std::vector<Json> out;
    LineReader reader(path);
    for (std::string line; reader.next(line);) out.push_back(Json::parse(line));
    return out;
  }
};

TEST_F(Infer, RecordsInOrderAndTheSameInAnyBatch) {
  const auto all = run(options("all.jsonl"));
  ASSERT_EQ(all.size(), 20u);
  for (int i = 0; i < 20; ++i) {
    const Json& r = all[static_cast<size_t>(i)];
    EXPECT_EQ(r["id"], i);
    EXPECT_EQ(r["labels"], str("label ", i));
    EXPECT_TRUE(r["logprobs"].is_null());
    EXPECT_EQ(r["messages"].size(), 2u);
    EXPECT_EQ(r["messages"][1]["content"], r["response"]);
    EXPECT_EQ(r.begin().key(), "response");
  }
  EXPECT_NE(all[0]["response"], all[1]["response"]);
  InferOptions o = options("one.jsonl");
  o.infer_backend = "pt";
  EXPECT_EQ(run(o), all);
  o = options("few.jsonl");
  o.engine.spec.max_sequences = 3;
  o.engine.spec.max_step_tokens = 7;
  o.engine.spec.prefix_caching = false;
  EXPECT_EQ(run(o), all);
  o = options("other.jsonl");
  o.common.seed = 43;
  EXPECT_NE(run(o), all);
}

TEST_F(Infer, GoesOnAfterACut) {
  const auto all = run(options("whole.jsonl"));
  const std::string path = (dir() / "cut.jsonl").string();
  {
    std::ofstream out(path);
    for (size_t i = 0; i < 5; ++i) out << json_text(all[i]) << "\n";
    out << "{\"respon";
    std::ofstream journal(path + ".unfinished");
    Json kept = all[8];
    kept["response"] = "kept from before";
    journal << json_text({{"row", 8}, {"record", kept}}) << "\n";
  }
  fs::copy_file(dir() / "whole.jsonl.made_by.json", path + ".made_by.json");
  const auto again = run(options("cut.jsonl"));
  ASSERT_EQ(again.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(again[i]["response"], i == 8 ? Json("kept from before") : all[i]["response"]) << i;
  EXPECT_EQ(run(options("cut.jsonl")), again) << "finished: nothing is made again";
  InferOptions anew = options("cut.jsonl");
  anew.resume = false;
  EXPECT_EQ(run(anew), all);
  InferOptions other = options("cut.jsonl");
  other.common.seed = 43;
  test::expect_says(test::refusal(Fault::Usage, [&] { apus_run_command("infer", &other); }), "seed: 42 there, 43 here");
  InferOptions model = options("cut.jsonl");
  model.model.model = (dir() / "another").string();
  InitOptions init;
  init.preset = "tiny", init.output_dir = model.model.model, init.torch_dtype = "float32",
  init.common.seed = 4;  // 3 is the first's
  ASSERT_EQ(apus_run_command("init", &init), 0);
  test::expect_says(test::refusal(Fault::Usage, [&] { apus_run_command("infer", &model); }),
                    "holds answers that were made otherwise: model: ");
}

TEST_F(Infer, LogProbsAndStopWords) {
  InferOptions o = options("logprobs.jsonl");
  o.answers.logprobs = true;
  o.answers.top_logprobs = 2;
  o.answers.temperature = 0;
  o.val_dataset_sample = 2;
  const auto rows = run(o);
  ASSERT_EQ(rows.size(), 2u);
  const Json& content = rows[0]["logprobs"]["content"];
  std::string text;
  for (const auto& t : content) {
    for (const auto& byte : t["bytes"]) text += static_cast<char>(byte.get<int>());
    EXPECT_EQ(t["top_logprobs"].size(), 2u);
    EXPECT_EQ(t["top_logprobs"][0]["logprob"], t["logprob"]) << "greedy takes the best";
  }
  EXPECT_TRUE(text.starts_with(rows[0]["response"].get<std::string>().substr(0, 1)));
  o = options("stop.jsonl");
  o.answers.temperature = 0;
  o.val_dataset_sample = 1;
  const std::string whole = run(o)[0]["response"];
  ASSERT_GT(whole.size(), 4u);
  o.answers.stop_words = {whole.substr(1, 2)};
  o.resume = false;
  EXPECT_EQ(run(o)[0]["response"], whole.substr(0, whole.find(o.answers.stop_words[0]) + 2)) << "kept in the text";
}

TEST_F(Infer, BadRowsAreLeftOutOrStopTheRun) {
  const fs::path rows = dir() / "bad.jsonl";
  write_file_atomic(rows, "{\"query\": \"good\"}\nbroken\n{\"messages\": []}\n{\"query\": \"" +
                              std::string(20000, 'y') + "\"}\n{\"query\": \"good too\"}\n");
  InferOptions o = options("bad_out.jsonl");
  o.val_dataset = {rows.string()};
  EXPECT_EQ(run(o).size(), 2u);
  o.strict = true;
  o.resume = false;
  EXPECT_THROW(apus_run_command("infer", &o), Error);
  o = options("none.jsonl");
  write_file_atomic(rows, "broken\n");
  o.val_dataset = {rows.string()};
  EXPECT_THROW(apus_run_command("infer", &o), Error) << "nothing could be used";
  o.val_dataset = {(dir() / "absent.jsonl").string()};
  EXPECT_THROW(apus_run_command("infer", &o), Error);
  o = options("x.jsonl");
  o.result_path = "/proc/nowhere/x.jsonl";
  EXPECT_THROW(apus_run_command("infer", &o), Error);
}

}  // namespace
}  // namespace apus
