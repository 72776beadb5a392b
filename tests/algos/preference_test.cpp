// SPDX-License-Identifier: Apache-2.0
// The algorithms of preferences on models: TRL's numbers (golden/rl_qwen2, golden/heads_qwen2), the same step however
// the rows are divided, references of every kind, and runs that learn.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include "algos/cpo.h"
#include "algos/dpo.h"
#include "algos/kto.h"
#include "algos/orpo.h"
#include "algos/rm.h"
#include "algos/simpo.h"
#include "checkpoint/adapter.h"
#include "tests/algos/preference_steps.h"
#include "tests/refusal.h"
#include "train/reference_record.h"

namespace apus {
namespace {

using golden::Case;
using test::distance;
using test::Step1;
using test::step_of;

struct Golden {
  Case c{"rl_qwen2"};
  std::unique_ptr<Model> policy = golden::owned_model(c.dir / "checkpoint"),
                         other = golden::owned_model(c.dir / "checkpoint_ref");
  Samples pairs = test::golden_pairs(c);
  Json numbers = c.json.at("dpo");
  Actors actors() { return {.policy = *policy, .reference = Reference::of(*other)}; }
};

double close_to(double value) { return 2e-5 * std::max(1.0, std::fabs(value)); }

TEST(Dpo, IsTrlsOnAModel) {
  Golden g;
  Dpo dpo({});
  const Step1 step = step_of(dpo, g.actors(), {g.pairs});
  EXPECT_NEAR(step.loss, g.numbers["sigmoid"]["loss"].get<double>(), 2e-5);
  const double norm = g.numbers["sigmoid"]["grad_norm"];
  EXPECT_NEAR(step.norm, norm, 1e-3 * norm);
  EXPECT_NEAR(step.metrics.at("rewards/accuracies"), g.numbers["sigmoid"]["rewards_accuracy"].get<double>(), 1e-6);
  EXPECT_NEAR(step.metrics.at("rewards/margins"), g.numbers["sigmoid"]["rewards_margin"].get<double>(), 2e-5);
  EXPECT_NEAR(step.metrics.at("logps/chosen"), g.c.tensor("dpo/policy_chosen_logps").mean().item<double>(), 2e-4);
  EXPECT_NEAR(step.metrics.at("rewards/rejected"), g.c.tensor("dpo/rejected_rewards").mean().item<double>(), 2e-5);

  Dpo with_nll({.rpo_alpha = 1});
  const Step1 both = step_of(with_nll, g.actors(), {g.pairs});
  const double sum = g.numbers["sigmoid_plus_rpo_alpha_1.0"];
  EXPECT_NEAR(both.loss, sum, close_to(sum));
  EXPECT_NEAR(both.metrics.at("nll_loss"), g.numbers["chosen_nll_loss"].get<double>(), 2e-4);

  for (const std::string type : {"ipo", "nca_pair", "apo_zero", "apo_down", "sppo_hard", "discopop"}) {
    Dpo one({.loss_type = {type}});
    const double loss = g.numbers["trl/" + type + "/beta=0.1/label_smoothing=0.0"]["loss"];
    EXPECT_NEAR(step_of(one, g.actors(), {g.pairs}).loss, loss, close_to(loss)) << type;
  }
}

TEST(Preference, OthersAreTrlsOnAModel) {
  Golden g;
  const auto loss = [&](Algorithm& algorithm) { return step_of(algorithm, g.actors(), {g.pairs}).loss; };
  const auto expect_loss = [&](Algorithm&& algorithm, const char* name) {
    const double wanted = g.numbers[name];
    EXPECT_NEAR(loss(algorithm), wanted, close_to(wanted)) << name;
  };
  expect_loss(Cpo({.cpo_alpha = 0}), "trl/cpo_sigmoid");
  expect_loss(Cpo({.loss_type = "hinge", .cpo_alpha = 0}), "trl/cpo_hinge");
  expect_loss(Cpo({.loss_type = "ipo", .cpo_alpha = 0}), "trl/cpo_ipo(average logps)");
  expect_loss(Simpo({.beta = 0.1, .simpo_gamma = 0.5, .cpo_alpha = 0}), "trl/cpo_simpo(gamma=0.5,average logps)");
  const double nll = g.numbers["chosen_nll_loss"], cpo = g.numbers["trl/cpo_sigmoid"];
  Cpo with_nll({});
  EXPECT_NEAR(loss(with_nll), cpo + nll, close_to(nll));
  Orpo orpo({});
  const Step1 step = step_of(orpo, g.actors(), {g.pairs});
  const Json& theirs = g.numbers["trl/orpo(average logps, beta=0.1)"];
  EXPECT_NEAR(step.loss, theirs["loss_nll_minus_odds"].get<double>(), close_to(step.loss));
  EXPECT_NEAR(step.metrics.at("log_odds_chosen"), theirs["log_odds_mean"].get<double>(), 1e-4);
}

// KTO's loss given TRL's estimate of the divergence; the six answers as single rows.
TEST(Kto, IsTrlsOnTheSameLogProbabilities) {
  const Case c("rl_qwen2");
  const Json& theirs = c.json["dpo"]["trl/kto(beta=0.1)"];
  const auto of = [&](const char* name) { return c.tensor(name).to(at::kDouble); };
  const at::Tensor ratio = at::cat({of("dpo/policy_chosen_logps") - of("dpo/ref_chosen_logps"),
                                    of("dpo/policy_rejected_logps") - of("dpo/ref_rejected_logps")});
  const at::Tensor label = at::tensor({1, 1, 1, 0, 0, 0}, at::kDouble);
  EXPECT_NEAR(kto_losses(ratio, label, theirs["kl"], {}).mean().item<double>(), theirs["loss"].get<double>(), 2e-5);
}

Samples judged(Samples pairs) {
  for (size_t i = 0; i < pairs.size(); ++i)
    pairs[i].grouped = false, pairs[i].columns["label"] = i % 2 == 0 ? 1.0f : 0.0f;
  return pairs;
}

TEST(Kto, ComparesWithTheDivergenceOfMismatchedRows) {
  Golden g;
  const Samples rows = judged(g.pairs);
  Kto kto({});
  const Step1 step = step_of(kto, g.actors(), {rows});
  const Batch others = collate(mismatched(rows)).to(golden::device());
  const double divergence =
      (Reference::of(*g.policy).logprobs(others) - Reference::of(*g.other).logprobs(others)).sum().item<double>() / 6;
  EXPECT_NEAR(step.metrics.at("kl"), std::max(0.0, divergence), 1e-5);
  EXPECT_GT(step.norm, 0);
  EXPECT_LT(distance(step, step_of(kto, g.actors(), test::one_by_one(rows))), 2e-5);

  Kto same({});  // where the policy is the reference nothing is gained
  EXPECT_NEAR(step_of(same, {.policy = *g.policy, .reference = Reference::of(*g.policy)}, {rows}).loss, 0.5, 1e-6);
  EXPECT_NE(test::refusal(Fault::Usage, [&] { kto.collect(*std::make_unique<Actors>(g.actors()), {{rows[0]}}); })
                .find("single row"),
            std::string::npos);
}

// Micro-batches of one pair, of all, and in another order: the same loss and gradients.
TEST(Preference, DividingTheRowsChangesNothing) {
  Golden g;
  Dpo dpo({.loss_type = {"sigmoid", "ipo", "sft", "nca_pair"},
           .loss_weights = {0.8, 0.1, 1, 0.2},
           .rpo_alpha = 0.5,
           .ld_alpha = 0.3});
  Cpo cpo({});
  Simpo simpo({});
  Orpo orpo({});
  std::vector<Samples> groups = test::one_by_one(g.pairs);
  Samples turned;
  for (const size_t i : {2, 0, 1}) turned.insert(turned.end(), groups[i].begin(), groups[i].end());
  for (Algorithm* algorithm : std::vector<Algorithm*>{&dpo, &cpo, &simpo, &orpo}) {
    const Step1 whole = step_of(*algorithm, g.actors(), {g.pairs});
    EXPECT_GT(whole.norm, 0.1);
    EXPECT_LT(distance(whole, step_of(*algorithm, g.actors(), groups)), 2e-5);
    EXPECT_LT(distance(whole, step_of(*algorithm, g.actors(), {turned})), 2e-5);
  }
}

// The tail behind the shorter answer of a pair counts ld_alpha: by hand on log-probabilities of -1 each.
TEST(Pairs, TailsCountLess) {
  Samples pair = {{.ids = {1, 2, 3, 4, 5, 6}, .trained = {0, 0, 1, 1, 1, 1}},
                  {.ids = {1, 2, 7, 8}, .trained = {0, 0, 1, 1}}};
  pair[1].grouped = true;
  const Batch batch = collate(pair);
  const at::Tensor minus_one_T = -batch.label_T.ge(0).to(at::kFloat);
  const PairSums plain = pair_sums(minus_one_T, batch), less = pair_sums(minus_one_T, batch, 0.25);
  EXPECT_EQ(plain.chosen_P.item<float>(), -4);
  EXPECT_EQ(plain.rejected_P.item<float>(), -2);
  EXPECT_EQ(less.chosen_P.item<float>(), -2.5f);
  EXPECT_EQ(less.rejected_P.item<float>(), -2);
  EXPECT_EQ(plain.averaged().chosen_P.item<float>(), -1);
}

TEST(Dpo, ReferencesOfEveryKindAgree) {
  Golden g;
  const auto lora = golden::owned_model(g.c.dir / "checkpoint");
  make_adapter(*lora, {.r = 4, .alpha = 8, .dropout = 0, .target_modules = {"q_proj", "down_proj"}, .init = "false"},
               5);
  Dpo dpo({});
  const Step1 without = step_of(dpo, {.policy = *lora, .reference = Reference::without_adapters(*lora)}, {g.pairs});
  const Step1 second = step_of(dpo, {.policy = *lora, .reference = Reference::of(*g.policy)}, {g.pairs});
  EXPECT_EQ(without.loss, second.loss);
  EXPECT_EQ(distance(without, second), 0);
  EXPECT_EQ(without.gradients.size(), 8u);
  EXPECT_GT(without.norm, 0);

  ReferenceRecord record;
  for (const Samples& pair : test::one_by_one(g.pairs)) {
    const Batch batch = collate(pair).to(golden::device());
    record.add(batch, Reference::of(*g.policy).logprobs(batch));
  }
  EXPECT_EQ(record.size(), 6);
  const Step1 recorded = step_of(dpo, {.policy = *lora, .reference = Reference::recorded(record)}, {g.pairs});
  EXPECT_NEAR(recorded.loss, second.loss, 1e-6);
  EXPECT_LT(distance(recorded, second), 1e-5);
  Batch unknown = collate({{.ids = {1, 2, 3}, .trained = {0, 1, 1}}});
  EXPECT_THROW(record.logprobs(unknown), Error);
}

TEST(Dpo, RemembersTheRewardsThatItCentresBy) {
  Golden g;
  const DpoOptions options{.loss_type = {"bco_pair"}};
  Dpo whole(options), first(options), resumed(options);
  step_of(whole, g.actors(), {g.pairs});
  step_of(first, g.actors(), {g.pairs});
  resumed.restore(first.state());
  EXPECT_EQ(first.state()["rewards"], 6);
  const Samples pair(g.pairs.begin(), g.pairs.begin() + 2);
  const double expected = step_of(whole, g.actors(), {pair}).loss;
  EXPECT_EQ(step_of(resumed, g.actors(), {pair}).loss, expected);
  Dpo fresh(options);
  EXPECT_NE(step_of(fresh, g.actors(), {pair}).loss, expected);
}

// AdamW for some steps; what the metric was before the first and before the last.
std::pair<double, double> learn(Algorithm& algorithm, Actors actors, const Samples& rows, const std::string& metric,
                                int steps = 20, double lr = 2e-3) {
  const auto optimizer = make_optimizer({}, make_groups(golden::trainable(actors.policy), {.lr = lr}));
  optimizer->make_state();
  double first = 0, last = 0;
  for (int i = 0; i < steps; ++i) {
    const Step1 step = step_of(algorithm, actors, {rows});
    (i == 0 ? first : last) = step.metrics.at(metric);
    optimizer->step(1, 1);
    optimizer->zero_grad();
  }
  return {first, last};
}

TEST(Preference, TwentyStepsRaiseTheMargin) {
  for (const std::string type : {"sigmoid", "hinge", "ipo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard",
                                 "aot", "aot_unpaired", "apo_zero", "apo_down", "discopop"}) {
    Golden g;
    Dpo dpo({.loss_type = {type}, .label_smoothing = type == "robust" ? 0.1 : 0});
    const auto [first, last] =
        learn(dpo, {.policy = *g.policy, .reference = Reference::of(*g.other)}, g.pairs, "rewards/margins");
    EXPECT_GT(last, first + (type == "ipo" ? 0.05 : 0.3)) << type;
  }
  const auto raises = [&](Algorithm&& algorithm, const std::string& metric) {
    Golden g;
    const auto [first, last] = learn(algorithm, g.actors(), g.pairs, metric);
    EXPECT_GT(last, first + 0.05) << first << " " << last;
  };
  raises(Cpo({}), "rewards/margins");
  raises(Simpo({}), "rewards/margins");
  raises(Orpo({.beta = 1}), "rewards/margins");
}

TEST(Preference, TwentyStepsOfKtoPartTheLabels) {
  Golden g;
  Kto kto({});
  const Samples rows = judged(g.pairs);
  const auto margin = [&] {
    const Step1 step = step_of(kto, g.actors(), {rows});
    return step.metrics.at("rewards/chosen") - step.metrics.at("rewards/rejected");
  };
  const double before = margin();
  learn(kto, g.actors(), rows, "rewards/chosen");
  EXPECT_GT(margin(), before + 0.5);
}

TEST(RewardModel, IsTheOriginalsLossAndGradient) {
  const Case c("heads_qwen2");
  const auto dir = c.dir / "checkpoint_reward";
  const auto model = make_model(read_model_config(dir), Head::Scalar);
  load_weights(*model, TensorFolder(dir),
               {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
  const Json& theirs = c.json.at("heads").at("reward").at("right");
  Samples rows = golden::samples_of(golden::unpad(c, "reward/right"));
  // The original reads the score before the padding; one row ends with a real token that looks like padding.
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].grouped = i % 2 == 1;
    const auto used = theirs.at("used_positions")[i].get<size_t>() + 1;
    if (rows[i].ids.size() > used) rows[i].ids.resize(used), rows[i].trained.resize(used);
  }
  RewardModel plain({}), centred({.center_rewards_coefficient = 0.01});
  const Step1 step = step_of(plain, {.policy = *model}, {rows});
  EXPECT_NEAR(step.loss, theirs["loss"].get<double>(), 2e-5);
  for (const auto& [name, shared] : step.gradients) {
    const at::Tensor gradient = shared.clone();
    // The original gives no gradient to the row of the padding's token, which is a real token here too.
    if (name == "model.embed_tokens.weight") gradient[read_model_config(dir)["pad_token_id"].get<int64_t>()].zero_();
    const double norm = c.json.at("grad").at("reward/right").at("norms").at(name);
    EXPECT_NEAR(gradient.norm().item<double>(), norm, 1e-3 * norm) << name;
  }
  EXPECT_NEAR(step_of(centred, {.policy = *model}, {rows}).loss, theirs["loss_center_0_01"].get<double>(), 2e-5);
  EXPECT_LT(distance(step, step_of(plain, {.policy = *model}, test::one_by_one(rows))), 2e-5);
  const at::Tensor margin = c.tensor("reward/right/margin");
  for (size_t i = 0; i < rows.size(); i += 2)
    rows[i].columns["margin"] = margin[static_cast<int64_t>(i / 2)].item<float>();
  EXPECT_NEAR(step_of(plain, {.policy = *model}, {rows}).loss, theirs["loss_with_margin"].get<double>(), 2e-5);

  const at::Tensor scores = Scorer(*model).scores(collate(rows).to(golden::device())).to(at::kCPU);
  EXPECT_LT((scores - c.tensor("reward/right/logits")).abs().max().item<double>(), 3e-4);
}

TEST(RewardModel, BeginsWithACausalCheckpointAndLearns) {
  const Case c("rl_qwen2");
  const auto dir = c.dir / "checkpoint";
  const auto model = make_model(read_model_config(dir), Head::Scalar);
  const auto own = [](const std::string&) { return true; };
  EXPECT_NE(
      test::refusal(Fault::Model, [&] { load_weights(*model, TensorFolder(dir), {.own = own}); }).find("score.weight"),
      std::string::npos);
  load_weights(*model, TensorFolder(dir),
               {.dtype = at::kFloat,
                .device = golden::device(),
                .own = own,
                .fresh = [](const std::string& name, const std::vector<int64_t>& shape) {
                  return name == "score.weight" ? at::full(shape, 0.01) : at::Tensor();
                }});
  RewardModel rm({});
  const auto [first, last] = learn(rm, {.policy = *model}, test::golden_pairs(c), "margin");
  EXPECT_GT(last, first + 0.5);
  const test::Folder folder;
  save_weights(*model, folder.path, int64_t{1} << 30, at::kFloat);
  const auto again = make_model(read_model_config(dir), Head::Scalar);
  load_weights(*again, TensorFolder(folder.path), {.dtype = at::kFloat, .device = golden::device()});
  const Batch batch = collate(test::golden_pairs(c)).to(golden::device());
  EXPECT_TRUE(at::equal(Scorer(*again).scores(batch), Scorer(*model).scores(batch)));
}

}  // namespace
}  // namespace apus
