// SPDX-License-Identifier: Apache-2.0
// The options of eval and sample, what they ask, and what they make of the answers.
#include "cli/eval.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/lines.h"
#include "cli/sample_prm.h"
#include "tests/folder.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

template <class Options>
std::string wrong_words(const std::vector<std::string>& words) {
  Options options;
  OptionTable table = OptionTable::of(options);
  try {
    table.parse(words);
    options.resolve(table);
    options.check();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void write_mmlu(const fs::path& file) {
  std::ofstream out(file);
  for (int i = 0; i < 4; ++i)
    out << Json({{"question", "q" + std::to_string(i)},
                 {"subject", i < 2 ? "law" : "art"},
                 {"choices", {"a", "b"}},
                 {"answer", i % 2}})
               .dump()
        << "\n";
}

TEST(Eval, AsksAServerWhatTheRowsSay) {
  const test::Folder folder;
  write_mmlu(folder.path / "rows.jsonl");
  EvalOptions o;
  OptionTable table = OptionTable::of(o);
  table.parse({"--eval_url", "http://127.0.0.1:1/v1/chat/completions", "--eval_dataset",
               "mmlu=" + (folder.path / "rows.jsonl").string(), "--eval_output_dir", (folder.path / "out").string(),
               "--eval_limit", "3", "--eval_generation_config", R"({"max_tokens": 7, "do_sample": false})"});
  o.resolve(table);
  o.check();
  o.fetch();
  EXPECT_TRUE(o.infer.client());
  EXPECT_EQ(o.infer.base_url, "http://127.0.0.1:1/v1");
  EXPECT_EQ(o.infer.answers.max_new_tokens, 7);
  EXPECT_EQ(o.infer.answers.temperature, 0);
  ASSERT_EQ(o.questions.size(), 3u);
  const std::string asked = read_file(o.infer.val_dataset[0]);
  EXPECT_NE(asked.find("q2"), std::string::npos);
  EXPECT_EQ(asked.find("q3"), std::string::npos) << "--eval_limit";
  EXPECT_EQ(asked.find("\"answer\""), std::string::npos) << "the right answer stays here";
  const auto scores = eval_scores(o, {1, 0, 1});
  ASSERT_EQ(scores.size(), 3u);  // all, art, law
  EXPECT_NEAR(scores[0].score, 2.0 / 3, 1e-12);
  EXPECT_EQ(scores[1].group, "art");
  EXPECT_EQ(scores[1].score, 1);
  EXPECT_EQ(scores[2].score, 0.5);
}

TEST(Eval, ExamplesStandBeforeTheQuestions) {
  const test::Folder folder;
  const auto roles_and_words = [&](const fs::path& rows) {
    EvalOptions o;
    OptionTable table = OptionTable::of(o);
    table.parse({"--eval_url", "http://127.0.0.1:1/v1", "--eval_dataset", "mmlu=" + rows.string(), "--eval_output_dir",
                 (folder.path / "out").string(), "--eval_dataset_args", R"({"mmlu": {"few_shot_num": 1}})"});
    o.resolve(table);
    o.check();
    o.fetch();
    std::vector<std::string> talks;
    LineReader in(o.infer.val_dataset[0]);
    for (std::string line; in.next(line);) {
      std::string talk;
      const Json row = Json::parse(line);
      for (const Json& message : row["messages"]) {
        const auto content = message["content"].get<std::string>();
        talk += content.substr(0, content.find('\n')) + " ";
      }
      talks.push_back(talk);
    }
    fs::remove_all(folder.path / "out");
    return talks;
  };
  write_mmlu(folder.path / "rows.jsonl");  // the first row of each subject is shown, and not asked
  EXPECT_EQ(roles_and_words(folder.path / "rows.jsonl"), (std::vector<std::string>{"q0 A q1 ", "q2 A q3 "}));
  fs::create_directories(folder.path / "set");
  write_mmlu(folder.path / "set/test.jsonl");
  std::ofstream(folder.path / "set/dev.jsonl")
      << R"({"question": "d", "subject": "law", "choices": ["a", "b"], "answer": 1})"
      << "\n";
  EXPECT_EQ(
      roles_and_words(folder.path / "set"),
      (std::vector<std::string>{"d B q0 ", "d B q1 ", "d B q2 ", "d B q3 "}));  // of another subject, where it has none
  EXPECT_NE(wrong_words<EvalOptions>({"--eval_dataset", "ifeval", "--eval_url", "http://x", "--eval_dataset_args",
                                      R"({"ifeval": {"few_shot_num": 2}})"}),
            "");
}

// A hub's set with splits: the questions are the test's, whatever training would read.
TEST(Eval, AsksTheTestSplit) {
  const test::Folder folder;
  for (const auto& [split, question] : {std::pair("train", "t"), {"test", "q"}})
    std::ofstream(folder.path / str(split, "-00000-of-00001.jsonl"))
        << Json({{"question", question}, {"answer", "#### 1"}}).dump() << "\n";
  std::ofstream(folder.path / "README.md")
      << "---\nconfigs:\n- config_name: main\n  data_files:\n"
         "  - split: train\n    path: train-*\n  - split: test\n    path: test-*\n---\n";
  EvalOptions o;
  OptionTable table = OptionTable::of(o);
  table.parse({"--eval_url", "http://127.0.0.1:1/v1", "--eval_dataset", str("gsm8k=", folder.path.string(), ":main"),
               "--eval_output_dir", (folder.path / "out").string(), "--eval_dataset_args",
               R"({"gsm8k": {"few_shot_num": 1}})"});
  o.resolve(table);
  o.check();
  o.fetch();
  ASSERT_EQ(o.questions.size(), 1u);
  EXPECT_EQ(o.questions[0].item.question, "q");
  ASSERT_EQ(o.questions[0].examples.size(), 1u);
  EXPECT_EQ(o.questions[0].examples[0].question, "t");
}

TEST(Eval, PlainTextsAreTheHarness) {
  const test::Folder folder;
  write_mmlu(folder.path / "rows.jsonl");
  std::ofstream(folder.path / "sums.jsonl") << R"({"question": "1 + 1?", "answer": "#### 2"})"
                                            << "\n";
  EvalOptions o;
  OptionTable table = OptionTable::of(o);
  table.parse({"--model", folder.path.string(), "--eval_prompts", "lm_eval", "--eval_dataset",
               "mmlu=" + (folder.path / "rows.jsonl").string(), "gsm8k=" + (folder.path / "sums.jsonl").string(),
               "--eval_dataset_args", R"({"gsm8k": {"few_shot_num": 0}})", "--eval_output_dir",
               (folder.path / "out").string()});
  o.resolve(table);
  o.check();
  o.read_questions();
  EXPECT_FALSE(o.infer.prompt.use_chat_template);
  EXPECT_EQ(o.infer.answers.max_new_tokens, 256);
  EXPECT_EQ(o.infer.answers.stop_words[0], "Question:");
  ASSERT_EQ(o.questions.size(), 5u);
  EXPECT_TRUE(o.compares(o.questions[0]));
  EXPECT_FALSE(o.compares(o.questions[4]));
  EXPECT_EQ(messages_of(o.questions[4])[0]["content"], "Question: 1 + 1?\nAnswer:");
  // Two metrics of the second set, one of the first.
  EXPECT_EQ(eval_marks(o, {"A", "B", "B", "B", "so 2"}), (std::vector<double>{1, 1, 0, 1, 0}));
  EXPECT_EQ(eval_marks(o, {"A", "B", "B", "B", "so 2"}, {}, 1)[4], 1);
  const auto second = eval_scores(o, {0, 0, 0, 0, 1}, 1);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].metric, "flexible-extract");
  for (const char* wrong : {"--eval_method", "--use_chat_template"})
    EXPECT_NE(wrong_words<EvalOptions>({"--model", "x", "--eval_prompts", "lm_eval", "--eval_dataset", "mmlu", wrong,
                                        wrong == std::string("--eval_method") ? "logprobs" : "true"}),
              "");
  EXPECT_NE(wrong_words<EvalOptions>({"--model", "x", "--eval_prompts", "lm_eval", "--eval_dataset", "math_500"}), "");
}

TEST(Eval, SeveralAnswersToEachQuestion) {
  const test::Folder folder;
  write_mmlu(folder.path / "rows.jsonl");
  EvalOptions o;
  OptionTable table = OptionTable::of(o);
  table.parse({"--eval_url", "http://127.0.0.1:1/v1", "--eval_dataset", "mmlu=" + (folder.path / "rows.jsonl").string(),
               "--eval_output_dir", (folder.path / "out").string(), "--num_samples", "2", "--temperature", "1"});
  o.resolve(table);
  o.check();
  o.fetch();
  const std::string asked = read_file(o.infer.val_dataset[0]);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), '\n'), 8);
  const auto scores = eval_scores(o, {1, 0, 0, 0, 1, 1, 0, 1});
  ASSERT_EQ(scores.size(), 4u);
  EXPECT_EQ(scores[0].score, 0.5);
  EXPECT_EQ(scores[1].metric, "pass@2");
  EXPECT_EQ(scores[1].score, 0.75);
  EXPECT_EQ(scores[2].score, 0.75) << "art";
  EXPECT_NE(wrong_words<EvalOptions>({"--eval_dataset", "gsm8k", "--eval_url", "http://x", "--num_samples", "2"}), "");
}

TEST(Eval, RefusesWhatItCannotDo) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(wrong_words<EvalOptions>({"--eval_dataset", "gsm9k", "--model", "/"}), "there are gsm8k"));
  EXPECT_TRUE(has(wrong_words<EvalOptions>({"--eval_dataset", "general_qa", "--model", "/"}), "general_qa=FILE"));
  EXPECT_TRUE(has(wrong_words<EvalOptions>({"--eval_dataset", "humaneval", "--model", "/"}), "--eval_run_code true"));
  EXPECT_TRUE(
      has(wrong_words<EvalOptions>({"--eval_dataset", "mmlu", "--eval_url", "http://x", "--eval_method", "logprobs"}),
          "needs the model itself"));
  EXPECT_TRUE(has(wrong_words<EvalOptions>({"--eval_dataset", "chartqa", "--model", "/", "--eval_method", "logprobs"}),
                  "shows pictures"));
  EXPECT_TRUE(has(wrong_words<EvalOptions>({"--eval_dataset", "refcoco", "--eval_url", "http://x"}), "boxes"));
}

TEST(Sample, TheBestAboveTheThreshold) {
  const std::vector<double> scores = {0, 1, 0.5, 1};
  const Choice c = best_answers(scores, 2, 0, {});
  EXPECT_EQ(c.kept, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(c.worst, 0u);
  EXPECT_EQ(best_answers(scores, 5, 0.5, {}).kept.size(), 2u);
  EXPECT_TRUE(best_answers(scores, 5, 0, 0.7).kept.empty()) << "three of four are good: too easy";
  EXPECT_EQ(best_answers(scores, 5, 0, 0.75).kept.size(), 3u);
  EXPECT_TRUE(best_answers({}, 5, 0, {}).kept.empty());
}

TEST(Sample, RewardsAndAProcessRewardModelTogether) {
  const Marks marks{.rewards = {1, 0, 1, 1}, .process = {0.2, 0.9, 0.8, -0.5}};
  EXPECT_EQ(best_answers(marks, 5, 0, 0, {}).kept, (std::vector<size_t>{2, 0})) << "above both thresholds";
  EXPECT_EQ(best_answers(marks, 5, 0, 0, {}).worst, 1u);
  EXPECT_EQ(best_answers(marks, 1, 0, 0, {}).kept, (std::vector<size_t>{2}));
  EXPECT_EQ(best_answers(marks, 5, 0, -1, {}).kept, (std::vector<size_t>{2, 0, 3}));
  EXPECT_TRUE(best_answers(marks, 5, 0, 0, 0.5).kept.empty()) << "three of four rewards are good: too easy";
  EXPECT_EQ(best_answers({.rewards = {}, .process = marks.process}, 5, 0, 0.5, 0.1).kept, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(best_answers({.rewards = marks.rewards, .process = {}}, 5, 0, 0, {}).kept.size(), 3u);
}

TEST(Sample, AProcessRewardModelSeesEachStep) {
  EXPECT_EQ(step_ends("a|b|c", "|"), (std::vector<std::string>{"a", "a|b", "a|b|c"}));
  EXPECT_EQ(step_ends("|a|", "|"), (std::vector<std::string>{"|a|"}));
  EXPECT_EQ(step_ends("a|b", ""), (std::vector<std::string>{"a|b"}));
  SampleOptions o;
  o.prm_model =
      "external:while read -r row; do case $row in *bad*) echo 0;; *) echo ${#row} >/dev/null; echo 1;; esac; done";
  o.prm_step_separator = "|";
  const Json row = {{"messages", {{{"role", "user"}, {"content", "q"}}}}};
  const std::vector<SampleOptions::Asked> asked = {{row, "", "0", {"good|better", "good|bad", "fine"}},
                                                   {row, "", "1", {"bad"}}};
  EXPECT_EQ(process_scores(o, asked, nullptr), (std::vector<std::vector<double>>{{1, 0, 1}, {0}}));
  EXPECT_NE(wrong_words<SampleOptions>({"--dataset", "x", "--model", "/", "--prm_model", "qwen_max"}), "");
  EXPECT_NE(wrong_words<SampleOptions>({"--dataset", "x", "--model", "/", "--prm_step_separator", "x"}), "");
}

TEST(Sample, TakesItsPartOfTheQuestions) {
  const test::Folder folder;
  {
    std::ofstream out(folder.path / "rows.jsonl");
    for (int i = 0; i < 5; ++i) out << Json({{"query", "q" + std::to_string(i)}, {"response", "r"}}).dump() << "\n";
  }
  size_t all = 0;
  for (const char* part : {"0", "1"}) {
    SampleOptions o;
    OptionTable table = OptionTable::of(o);
    table.parse({"--dataset", (folder.path / "rows.jsonl").string(), "--sampler_engine", "client", "--base_url",
                 "http://127.0.0.1:1", "--num_return_sequences", "3", "--output_dir", folder.path.string(),
                 "--output_file", std::string(part) + ".jsonl", "--data_range", part, "2", "--orm_model", "math"});
    o.resolve(table);
    o.check();
    o.fetch();
    EXPECT_EQ(o.reward.reward_funcs, std::vector<std::string>{"accuracy"});
    EXPECT_EQ(o.asked[0].label, "r");
    const std::string text = read_file(o.infer.val_dataset[0]);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<long>(3 * o.asked.size()));
    all += o.asked.size();
  }
  EXPECT_EQ(all, 5u) << "none is lost between parts";
  EXPECT_NE(wrong_words<SampleOptions>({"--dataset", "x", "--model", "/", "--data_range", "2", "2"}), "");
  EXPECT_NE(wrong_words<SampleOptions>({"--dataset", "x", "--sampler_engine", "no"}), "");
}

}  // namespace
}  // namespace apus
