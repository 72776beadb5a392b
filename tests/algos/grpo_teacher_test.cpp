// SPDX-License-Identifier: Apache-2.0
// A teacher's opinion as reward of each token (--teacher_model): what it adds, and that a student learns from it alone.
#include "algos/policy/teacher_say.h"
#include "nn/training_step.h"
#include "tests/algos/learning.h"

namespace apus {
namespace {

using learning::Student;
using learning::Tasks;

GrpoOptions taught(double coef) {
  GrpoOptions o;
  o.teacher_model = "teacher", o.teacher_kl_coef = coef, o.max_completion_length = learning::kDigits + 2;
  return o;
}

TEST(GrpoTeacher, AddsWhatATokenIsLikelierToIt) {
  Student student, teacher;
  teacher.pretrain(0.1);
  GrpoOptions o = taught(0.5);
  o.num_generations = 1, o.beta = 0;
  EXPECT_NO_THROW(o.check()) << "neither rewards nor a group are needed";
  const LoopOptions loop{.per_device_train_batch_size = 3, .gradient_accumulation_steps = 1};
  Grpo grpo(o);
  grpo.begin(student.setting(loop));
  Rollout rollout(*student.model, student.options(), {.max_sequences = 64, .max_model_len = 64});
  Actors actors{.policy = *student.model, .rollout = &rollout, .others = {{"teacher", {teacher.model.get()}}}};
  std::vector<Update> updates = grpo.collect(actors, {*Tasks(5, 3, false).next()});
  Batch batch = updates.at(0).at(0).to(golden::device());
  const at::Tensor own_T = Reference::of(*student.model).logprobs(batch),
                   theirs_T = Reference::of(*teacher.model).logprobs(batch);
  const PolicyTokens t = grpo.tokens_of(batch, own_T);
  const at::Tensor index_N = batch.label_T.ge(0).nonzero().squeeze(1);
  const at::Tensor wanted_N = (theirs_T - own_T).index_select(0, index_N).mul(0.5);
  EXPECT_GT(wanted_N.abs().max().item<double>(), 0.1);
  EXPECT_LT((t.advantage_N - wanted_N).abs().max().item<double>(), 1e-5);

  set_training(batch.step, {});
  const Loss loss = grpo.loss(actors, batch, Forward{});
  const Ratio& kl = loss.metrics.at("teacher_kl");
  EXPECT_NEAR(kl.sum.item<double>(), -2 * wanted_N.sum().item<double>(), 1e-3);
}

TEST(GrpoTeacher, TeachesWithoutAnyReward) {
  Student teacher, student;
  teacher.pretrain(0.6);
  student.pretrain(0.1);
  const double before = student.exact(), known = teacher.exact();
  ASSERT_GT(known, before + 0.2);
  student.others["teacher"] = {teacher.model.get()};
  student.reinforce(taught(1), 60);
  EXPECT_GT(student.exact(), before + 0.5 * (known - before));
  const auto apart = [&](size_t i) { return student.history.at(i).at("teacher_kl").get<double>(); };
  EXPECT_LT(apart(59), 0.5 * apart(0));
}

// ms-swift's apply_rlsd_reweight and compute_sdar_loss of the same numbers.
TEST(TeacherSay, IsThatOfTheOriginals) {
  const at::Tensor advantage = at::tensor({1.0f, 1.0f, -2.0f, -2.0f, 0.5f}),
                   gap = at::tensor({0.1f, -0.5f, 0.3f, -0.05f, 2.0f});
  TeacherSayOptions o;
  const auto near = [](const at::Tensor& got, const std::vector<float>& want) {
    EXPECT_LT((got.detach() - at::tensor(want)).abs().max().item<double>(), 2e-7) << got;
  };
  near(reweighted_advantage(advantage, gap, 0.5, o), {1.0525855f, 0.9f, -1.8f, -2.0512710f, 0.55f});
  near(reweighted_advantage(advantage, gap, 0, o), {1, 1, -2, -2, 0.5f});
  o.rlsd_negative_only = true;
  near(reweighted_advantage(advantage, gap, 0.5, o), {1, 1, -1.8f, -2.0512710f, 0.5f});
  const at::Tensor own = at::tensor({-1.0f, -2.0f, -0.3f}).set_requires_grad(true);
  const at::Tensor loss = gated_distance(own, at::tensor({-0.5f, -2.5f, -0.3f}), 5);
  near(loss, {0.46207091f, -0.03792909f, 0});
  loss.sum().backward();
  near(own.grad(), {-0.92414182f, -0.07585818f, -0.5f});
}

TEST(GrpoTeacher, SharesOutOrGates) {
  Student student, teacher;
  teacher.pretrain(0.1);
  Rollout rollout(*student.model, student.options(), {.max_sequences = 64, .max_model_len = 64});
  Actors actors{.policy = *student.model, .rollout = &rollout, .others = {{"teacher", {teacher.model.get()}}}};
  const LoopOptions loop{.per_device_train_batch_size = 8, .gradient_accumulation_steps = 1};
  const auto learnt = [&](GrpoOptions o) {
    o.num_generations = 1, o.beta = 0;
    Grpo grpo(o);
    grpo.begin(student.setting(loop));
    actors.step = 0;
    std::vector<Update> updates = grpo.collect(actors, {*Tasks(5, 8, false).next()});
    Batch batch = updates.at(0).at(0).to(golden::device());
    const auto advantage_S = at::tensor({1.0f, -1.0f, 0.5f, 2.0f, -2.0f, 1.0f, -0.5f, 0.25f}).to(golden::device());
    batch.sequence_columns["advantage"] = advantage_S.narrow(0, 0, std::ssize(batch.step.length_q));
    const at::Tensor own_T = Reference::of(*student.model).logprobs(batch);
    const PolicyTokens t = grpo.tokens_of(batch, own_T);
    set_training(batch.step, {});
    return std::pair{t.advantage_N.to(at::kCPU), grpo.loss(actors, batch, Forward{}).sum.item<double>()};
  };
  GrpoOptions plain = taught(0), rlsd = taught(1), sdar = taught(1);
  rlsd.advantage_reweight = "rlsd", sdar.sdar_loss_coef = 0.3, sdar.sdar_gate_beta = 0.1;
  const auto [as_it_is, loss] = learnt(plain);
  const auto [shared, loss_of_shared] = learnt(rlsd);
  const auto [gated, loss_of_gated] = learnt(sdar);
  const at::Tensor factor = shared / as_it_is;
  EXPECT_GT(factor.min().item<double>(), 0.9 - 1e-6);
  EXPECT_LT(factor.max().item<double>(), 1.1 + 1e-6);
  EXPECT_GT((factor - 1).abs().max().item<double>(), 0.01);
  EXPECT_TRUE(gated.equal(as_it_is)) << "the teacher is in the loss, not in the advantage";
  EXPECT_GT(std::abs(loss_of_gated - loss), 1e-3);
}

}  // namespace
}  // namespace apus
