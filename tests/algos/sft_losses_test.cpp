// SPDX-License-Identifier: Apache-2.0
// The losses of sft that weigh tokens, against their definitions on whole logits.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/topk.h>

#include "algos/sft.h"
#include "tests/algos/preference_steps.h"

namespace apus {
namespace {

struct WeighedSft {
  golden::Case c{"rl_qwen2"};
  std::unique_ptr<Model> policy = golden::owned_model(c.dir / "checkpoint"),
                         other = golden::owned_model(c.dir / "checkpoint_ref");
  Samples rows() {
    Samples out = test::golden_pairs(c);
    for (Sample& sample : out) sample.grouped = false;
    return out;
  }
  test::Step1 step(const SftOptions& o, const std::vector<Samples>& micro_batches) {
    Sft sft(o);
    return test::step_of(sft, {.policy = *policy, .reference = Reference::of(*other)}, micro_batches);
  }
  // The mean over trained tokens of what `f` makes of (log-probs of the policy, of the other, labels).
  double mean_of(const std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>& f) {
    double sum = 0, count = 0;
    for (const Sample& sample : rows()) {
      const at::NoGradGuard no_grad;
      const Batch batch = collate({sample}).to(golden::device());
      const auto log_probs = [&](const Model& model) {
        Step step = batch.step;
        return at::log_softmax(model.head(model.forward(batch.id_T, step), step).to(at::kFloat), -1).to(at::kCPU);
      };
      const at::Tensor label_T = batch.label_T.to(at::kCPU), keep = at::nonzero(label_T.ge(0)).squeeze(1);
      const auto at_labels = [&](const at::Tensor& x) { return x.index_select(0, keep); };
      sum += f(at_labels(log_probs(*policy)), at_labels(log_probs(*other)), at_labels(label_T)).sum().item<double>();
      count += static_cast<double>(keep.numel());
    }
    return sum / count;
  }
};

at::Tensor nll_of(const at::Tensor& p_NV, const at::Tensor& label_N) {
  return -p_NV.gather(1, label_N.unsqueeze(1)).squeeze(1);
}

TEST(SftLosses, AsftIsDftHeldToAReference) {
  WeighedSft run;
  SftOptions o;
  o.enable_asft_loss = true, o.asft_alpha = 0.3;
  const test::Step1 got = run.step(o, {run.rows()});
  const double wanted = run.mean_of([](const at::Tensor& p, const at::Tensor& q, const at::Tensor& label) {
    const at::Tensor nll = nll_of(p, label);
    return nll * (-nll).exp() + 0.3 * (q.exp() * (q - p)).sum(-1);
  });
  EXPECT_NEAR(got.loss, wanted, 2e-5);
  EXPECT_LT(test::distance(got, run.step(o, test::one_by_one(run.rows()))), 1e-4);
}

TEST(SftLosses, EaftWeighsByUncertainty) {
  WeighedSft run;
  SftOptions o;
  o.enable_eaft_loss = true, o.eaft_alpha = 2;
  const test::Step1 got = run.step(o, {run.rows()});
  const double wanted = run.mean_of([](const at::Tensor& p, const at::Tensor&, const at::Tensor& label) {
    const at::Tensor best = at::log_softmax(std::get<0>(at::topk(p, 20, -1)), -1);
    return nll_of(p, label) * (-(best.exp() * best).sum(-1) / 3).square();
  });
  EXPECT_NEAR(got.loss, wanted, 2e-5);
  EXPECT_LT(test::distance(got, run.step(o, test::one_by_one(run.rows()))), 1e-4);
}

}  // namespace
}  // namespace apus
