// SPDX-License-Identifier: Apache-2.0
// GRPO's loss, gradients and numbers against TRL's (golden/rl_qwen2), through a file of replayed answers.
#include "algos/grpo.h"
#include "algos/replay.h"
#include "tests/algos/golden_rollouts.h"
#include "tests/algos/preference_steps.h"

namespace apus {
namespace {

using golden::Case;
using test::write_rollouts;

struct GoldenRun {
  GoldenRun()
      : c("rl_qwen2"),
        policy(golden::owned_model(c.dir / "checkpoint")),
        other(golden::owned_model(c.dir / "checkpoint_ref")) {
    write_rollouts(c, folder.path / "rollouts.jsonl");
  }
  // One update on the file; `setting` is TRL's name of the run: "loss/level/beta=../eps=(..)/delta=../temperature=..".
  test::Step1 step(GrpoOptions o, double temperature, int64_t batch) {
    o.replay_rollouts = (folder.path / "rollouts.jsonl").string(), o.max_completion_length = 12;
    const LoopOptions loop{.per_device_train_batch_size = batch};
    Grpo grpo(o);
    Sampling sampling;
    sampling.temperature = temperature;
    grpo.begin({.loop = loop,
                .tokenizer = nullptr,
                .sampling = sampling,
                .output_dir = {},
                .device = golden::device(),
                .may_share_prefix = may_share});
    const auto rows = grpo.own_rows();
    rows->start(0);
    std::vector<Samples> all;
    while (auto samples = rows->next()) all.push_back(*samples);
    EXPECT_EQ(static_cast<int64_t>(all.size()), *grpo.batches_per_collection());
    return test::step_of(grpo, {.policy = *policy, .reference = Reference::of(*other)}, all);
  }
  Case c;
  test::Folder folder;
  std::unique_ptr<Model> policy, other;
  bool may_share = false;
};

GrpoOptions options_named(const std::string& name) {
  GrpoOptions o;
  char loss[32], level[32];
  double delta = 0;
  const bool dual = name.find("delta=None") == std::string::npos;
  EXPECT_EQ(std::sscanf(name.c_str(), "%31[^/]/%31[^/]/beta=%lf/eps=(%lf", loss, level, &o.beta, &o.epsilon), 4);
  o.loss_type = loss, o.importance_sampling_level = level;
  o.epsilon_high = std::stod(name.substr(name.find(',') + 1));
  if (dual) std::sscanf(name.c_str() + name.find("delta="), "delta=%lf", &delta), o.delta = delta;
  return o;
}

TEST(Grpo, IsTrlsOnTheSameAnswers) {
  GoldenRun run;
  int compared = 0;
  for (const auto& [name, expected] : run.c.json["grpo"]["runs"].items()) {
    if (name.find("temperature=1.0") == std::string::npos) continue;  // its old log-probs are of temperature 1
    SCOPED_TRACE(name);
    const GrpoOptions o = options_named(name);
    const test::Step1 got = run.step(o, 1, 6);
    EXPECT_NEAR(got.loss, expected["loss"].get<double>(), 2e-5);
    EXPECT_NEAR(got.norm, expected["grad_norm"].get<double>(), 2e-4 * got.norm);
    EXPECT_NEAR(got.metrics.at("clip_ratio"), expected["clip_ratio"].get<double>(),
                o.importance_sampling_level == "token" ? 1e-6 : 1);  // theirs counts sequences there
    if (o.beta > 0) {
      EXPECT_NEAR(got.metrics.at("kl"), expected["mean_kl"].get<double>(), 2e-5);
    }
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

// A question is read once for its answers where nothing speaks against it, and where that is asked for.
TEST(Grpo, ASharedQuestionChangesNothing) {
  GoldenRun run;
  const auto difference = [&](std::optional<bool> asked, bool may) {
    GrpoOptions o;
    o.beta = 0.1;
    const test::Step1 plain = run.step(o, 1, 6);
    o.share_prefix = asked, run.may_share = may;
    const test::Step1 got = run.step(o, 1, 6);
    run.may_share = false;
    EXPECT_GT(got.norm, 0);
    EXPECT_LT(test::distance(plain, got), 1e-5);
    return test::distance(plain, got);
  };
  EXPECT_EQ(difference({}, false), 0);
  EXPECT_EQ(difference(false, true), 0);
  EXPECT_GT(difference({}, true), 0);  // sums in another order
  EXPECT_EQ(difference({}, true), difference(true, false));
}

// What is divided by counts of the whole update does not depend on the micro-batches.
TEST(Grpo, DividingTheAnswersChangesNothing) {
  GoldenRun run;
  for (const char* name : {"grpo", "dapo", "dr_grpo", "sapo", "gmpo", "cispo", "vespo", "luspo"}) {
    GrpoOptions o;
    o.loss_type = name;
    const test::Step1 whole = run.step(o, 1, 6), parts = run.step(o, 1, 2);
    EXPECT_NEAR(whole.loss, parts.loss, 1e-5 * (1 + std::abs(whole.loss))) << name;
    EXPECT_NEAR(whole.norm, parts.norm, 1e-5 * whole.norm) << name;
  }
}

// Nor do the losses that treat some tokens apart: those are the highest of the whole update.
TEST(Grpo, TokensAreChosenFromTheWholeUpdate) {
  GoldenRun run;
  for (const char* name : {"dapo", "clip_cov", "kl_cov", "uncertain"}) {
    GrpoOptions o;
    o.loss_type = std::string(name) == "uncertain" ? "dapo" : name;
    o.cov_ratio = 0.2, o.clip_cov_low = 0.01, o.beta = 0;
    if (o.loss_type != name) o.top_entropy_quantile = 0.3;
    const test::Step1 whole = run.step(o, 1, 6);
    for (const int64_t batch : {1, 2, 3}) {
      const test::Step1 parts = run.step(o, 1, batch);
      EXPECT_NEAR(whole.loss, parts.loss, 1e-5 * (1 + std::abs(whole.loss))) << name << " " << batch;
      EXPECT_NEAR(whole.norm, parts.norm, 1e-5 * whole.norm) << name << " " << batch;
    }
    o.top_entropy_quantile = 1, o.loss_type = "dapo";
    if (name != o.loss_type) EXPECT_GT(std::abs(whole.norm - run.step(o, 1, 6).norm), 1e-4) << name << " does nothing";
  }
}

TEST(Grpo, HasNoGradientWhereRewardsAreAlike) {
  GoldenRun run;
  std::string text = read_file(run.folder.path / "rollouts.jsonl"), flat;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Json row = Json::parse(line);
    row["reward"] = 0.9;
    flat += row.dump() + "\n";
  }
  write_file_atomic(run.folder.path / "rollouts.jsonl", flat);
  GrpoOptions o;
  o.beta = 0;
  const test::Step1 got = run.step(o, 1, 6);
  EXPECT_EQ(got.loss, 0);
  EXPECT_EQ(got.norm, 0);
  EXPECT_EQ(got.metrics.at("frac_reward_zero_std"), 1);
}

std::string fault_of(const std::string& text) {
  test::Folder folder;
  write_file_atomic(folder.path / "rows.jsonl", text);
  try {
    read_rollouts(folder.path / "rows.jsonl", 2);
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Data);
    return error.what();
  }
  return "";
}

TEST(ReplayedRollouts, AreReadByGroup) {
  const std::string a = R"({"group":"x","prompt_ids":[1],"completion_ids":[2,3],"reward":1,"logprobs":[-0.5,-1]})",
                    b = R"({"group":"y","prompt_ids":[1],"completion_ids":[2,3],"reward":0,"logprobs":[-0.5,-1]})";
  EXPECT_EQ(fault_of(a + "\n" + b + "\n" + a + "\n\n" + b + "\n"), "");
  EXPECT_NE(fault_of(a + "\n" + a + "\n" + b).find("group \"y\" has one answer"), std::string::npos);
  EXPECT_NE(fault_of("{}\n[1]\n" + a).find("2 rows cannot be used"), std::string::npos);
  EXPECT_NE(fault_of(R"({"group":1,"prompt_ids":[1],"completion_ids":[2,3],"reward":1,"logprobs":[-1]})")
                .find("line 1: key 'logprobs'"),
            std::string::npos);
  EXPECT_NE(fault_of(R"({"group":1,"prompt_ids":[1],"completion_ids":[],"reward":1})").find("completion_ids"),
            std::string::npos);
  EXPECT_NE(fault_of(R"({"group":1,"prompt_ids":[-1],"completion_ids":[1],"reward":1})").find("-1 is no token id"),
            std::string::npos);
  EXPECT_NE(fault_of(a + "\n" + R"({"group":"x","prompt_ids":[1],"completion_ids":[2],"reward":0})")
                .find("1 of 2 rows have logprobs"),
            std::string::npos);
  EXPECT_NE(fault_of("").find("holds no rows"), std::string::npos);
}

TEST(ReplayedRollouts, AreReadAsTheyWereWritten) {
  test::Folder folder;
  const Answer answer{
      .prompt = {1, 2}, .ids = {3}, .engine_logprobs = {-0.25f}, .text = "", .group = 4, .reward = 0.5, .rewards = {}};
  append_rollouts(folder.path / "out.jsonl", {answer, answer}, "7");
  append_rollouts(folder.path / "out.jsonl", {answer, answer}, "8");
  const auto back = read_rollouts(folder.path / "out.jsonl", 2);
  ASSERT_EQ(back.size(), 4u);
  EXPECT_EQ(back[3].group, 1);
  EXPECT_EQ(back[0].prompt, answer.prompt);
  EXPECT_EQ(back[0].engine_logprobs, answer.engine_logprobs);
}

}  // namespace
}  // namespace apus
