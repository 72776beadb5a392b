// SPDX-License-Identifier: Apache-2.0
// A teacher's opinion as reward of each token (--teacher_model): what it adds, and that a student learns from it alone.
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

}  // namespace
}  // namespace apus
