// SPDX-License-Identifier: Apache-2.0
#include "algos/ppo.h"

#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>

#include "algos/replay.h"
#include "tests/algos/critic.h"
#include "tests/algos/golden_rollouts.h"
#include "tests/algos/learning.h"
#include "tests/algos/preference_steps.h"

namespace apus {
namespace {

using learning::Student;
using learning::Tasks;

at::Tensor in_f64(std::vector<double> x) { return at::tensor(x, at::kDouble); }

TEST(ValueLoss, KnownNumbers) {
  const at::Tensor value = in_f64({0.9, 0.1, 0.55, 0.3}).set_requires_grad(true);
  const at::Tensor loss = value_losses(value, in_f64({0.5, 0.4, 0.6, 0.7}), in_f64({1, 1, 0.5, 0}), 0.2);
  EXPECT_LT((loss - in_f64({0.09, 0.81, 0.0025, 0.25}) * 0.5).abs().max().item<double>(), 1e-12);
  EXPECT_NEAR(loss.mean().item<double>(), 0.144063, 1e-6);
  loss.mean().backward();
  EXPECT_LT((value.grad() - in_f64({0, -0.45, 0.025, 0}) * 0.5).abs().max().item<double>(), 1e-12);
}

struct ReplayedPpo {
  ReplayedPpo()
      : c("rl_qwen2"),
        policy(golden::owned_model(c.dir / "checkpoint")),
        other(golden::owned_model(c.dir / "checkpoint_ref")),
        critic(test::scalar_model(c.dir / "checkpoint")) {
    test::write_rollouts(c, folder.path / "rollouts.jsonl");
  }
  test::Step1 step(PpoOptions o, int64_t batch) {
    o.replay_rollouts = (folder.path / "rollouts.jsonl").string();
    const LoopOptions loop{.per_device_train_batch_size = batch};
    Ppo ppo(o);
    Sampling sampling;
    sampling.temperature = 1;
    ppo.begin({.loop = loop, .tokenizer = nullptr, .sampling = sampling, .output_dir = {}, .device = golden::device()});
    const auto rows = ppo.own_rows();
    rows->start(0);
    std::vector<Samples> all;
    while (auto samples = rows->next()) all.push_back(*samples);
    golden::trainable(*critic);
    return test::step_of(
        ppo, {.policy = *policy, .reference = Reference::of(*other), .others = {{"critic", {critic.get()}}}}, all);
  }
  golden::Case c;
  test::Folder folder;
  std::unique_ptr<Model> policy, other, critic;
};

// With gamma and lambda 1 and no divergence every token's return is the answer's reward: the loss can be said without
// any of the machinery.
TEST(Ppo, IsWhatItsFormulasSay) {
  ReplayedPpo run;
  PpoOptions o;
  o.kl_coef = 0, o.lam = 1, o.vf_coef = 0.3, o.local_rollout_forward_batch_size = 4;
  const test::Step1 got = run.step(o, 6);
  std::vector<double> value, reward, log_ratio;
  for (const Answer& answer : read_rollouts(run.folder.path / "rollouts.jsonl", 1)) {
    const Batch batch = collate({sample_of(answer, true, false)}).to(golden::device());
    const at::Tensor value_T = Scorer(*run.critic).token_scores(batch).to(at::kCPU),
                     logprob_T = Reference::of(*run.policy).logprobs(batch).to(at::kCPU);
    for (size_t t = 0; t < answer.ids.size(); ++t) {
      const auto at = static_cast<int64_t>(answer.prompt.size() - 1 + t);
      value.push_back(value_T[at].item<double>()), reward.push_back(answer.reward);
      log_ratio.push_back(logprob_T[at].item<double>() - answer.engine_logprobs[t]);
    }
  }
  const at::Tensor lead = in_f64(reward) - in_f64(value), ratio = in_f64(log_ratio).exp();
  const at::Tensor gain = (lead - lead.mean()) / (lead.var() + 1e-8).sqrt();
  const double policy = at::max(-ratio * gain, -ratio.clamp(0.8, 1.2) * gain).mean().item<double>();
  const double critic = lead.square().mean().item<double>() * 0.5;
  EXPECT_NEAR(got.metrics.at("loss/policy_avg"), policy, 2e-5);
  EXPECT_NEAR(got.metrics.at("loss/value_avg"), critic, 2e-5);
  EXPECT_NEAR(got.loss, policy + 0.3 * critic, 2e-5);
  EXPECT_NEAR(got.metrics.at("val/ratio"), ratio.mean().item<double>(), 1e-5);
}

TEST(Ppo, DividingTheAnswersChangesNothing) {
  ReplayedPpo run;
  for (const bool whitened : {false, true}) {
    PpoOptions o;
    o.whiten_rewards = whitened, o.entropy_coef = 0.01;
    const test::Step1 whole = run.step(o, 6);
    o.local_rollout_forward_batch_size = 1;
    const test::Step1 one_by_one = run.step(o, 1);
    EXPECT_LT(test::distance(whole, one_by_one), 1e-4);
    EXPECT_GT(whole.metrics.at("objective/kl"), 0);
    EXPECT_NEAR(whole.metrics.at("objective/rlhf_reward"),
                whole.metrics.at("objective/scores") - 0.05 * whole.metrics.at("objective/kl"), 1e-6);
  }
}

class ReversedForPpo final : public SingleReward {
 public:
  explicit ReversedForPpo(const RewardOptions&) {}
  double one(const RewardInput& answer) const override { return learning::rightness(answer); }
};
const RegisterReward<ReversedForPpo> reversed_for_ppo("test reversed for ppo");

TEST(PpoLearning, ReversesDigits) {
  Student student;
  student.pretrain(0.15);
  const double before = student.exact();
  const auto critic = test::scalar_model(golden::Case("train_qwen2").dir / "checkpoint");
  student.others["critic"] = {critic.get()};
  PpoOptions o;
  o.reward_funcs = {"test reversed for ppo"}, o.max_completion_length = learning::kDigits + 2;
  o.kl_coef = 0, o.num_ppo_epochs = 2, o.critic_warmup_rounds = 2, o.vf_coef = 1, o.entropy_coef = 0.02;
  Tasks tasks(23, 1, false);
  Rollout rollout(*student.model, student.options(), {.max_sequences = 256, .max_model_len = 64});
  const LoopOptions loop{.max_steps = 124, .per_device_train_batch_size = 128, .gradient_accumulation_steps = 1};
  Ppo ppo(o);
  ppo.begin(student.setting(loop));
  student.train(ppo, tasks, &rollout, loop, 5e-4);
  EXPECT_GT(student.exact(), before + 0.3);
  const Json& h = student.history;
  ASSERT_EQ(h.size(), 124u);
  EXPECT_FALSE(h.at(3).contains("val/ratio")) << "the policy rests while the critic warms up";
  EXPECT_NEAR(h.at(4).at("val/ratio").get<double>(), 1, 1e-3);
  EXPECT_GT(h.at(122).at("reward").get<double>(), h.at(0).at("reward").get<double>() + 0.2);
}

}  // namespace
}  // namespace apus
