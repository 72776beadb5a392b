// SPDX-License-Identifier: Apache-2.0
// Updates inside the backward pass end where ordinary ones do, to the bit;
// and what happens when a gradient is not finite.
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <c10/core/GradMode.h>

#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::expect_same;
using golden::Folder;
using golden::TestRun;
using golden::weights;

struct BackwardVariant {
  const char* name;
  const char* model;
  at::ScalarType type;
  OptimizerSpec spec;
  Forward forward;
};
std::ostream& operator<<(std::ostream& out, const BackwardVariant& v) { return out << v.name; }

std::vector<golden::Packed> batches_of(const Case& c) {
  if (c.has("batch0/input_ids")) return golden::train_batches(c);
  return std::vector<golden::Packed>(4, golden::unpad(c, "right"));
}

Json hyper() {
  return {{"betas", {0.9, 0.95}}, {"eps", 1e-8},        {"grad_accum", 1},      {"lr", 1e-3},
          {"max_grad_norm", 0.0}, {"no_decay", "bias"}, {"schedule", "cosine"}, {"total_steps", 6},
          {"warmup_steps", 2},    {"weight_decay", 0.1}};
}

std::unique_ptr<TestRun> start(const BackwardVariant& v, bool in_backward, const fs::path& out = {},
                               const fs::path& from = {}, TrainerOptions options = {}) {
  const Case c(v.model);
  auto model = golden::owned_model(from.empty() ? c.dir / "checkpoint" : from, v.type);
  options.loop.update_in_backward = in_backward, options.loop.router_aux_loss_coef = 0.01;
  options.forward = v.forward;
  if (!out.empty()) options.loop.save_steps = 3, options.output_dir = out;
  auto run = std::make_unique<TestRun>(std::move(model), hyper(), batches_of(c), options, v.spec);
  golden::save_whole_models(*run, c.dir / "checkpoint", v.type);
  if (!from.empty()) run->trainer->resume(read_state(from), {});
  return run;
}

class UpdatesInBackward : public ::testing::TestWithParam<BackwardVariant> {};

TEST_P(UpdatesInBackward, EndWhereOrdinaryOnesDo) {
  const auto ordinary = start(GetParam(), false), other = start(GetParam(), true);
  const Json a = ordinary->trainer->run().log_history, b = other->trainer->run().log_history;
  expect_same(*ordinary, *other);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]["loss"], b[i]["loss"]) << i;
    const double norm = a[i]["grad_norm"];
    EXPECT_NEAR(norm, b[i]["grad_norm"].get<double>(), 1e-9 * norm) << i;
    EXPECT_GT(norm, 0);
  }
  for (const NamedParam& p : golden::trainable(*other->model)) EXPECT_FALSE(p.tensor.grad().defined()) << p.name;
}

TEST_P(UpdatesInBackward, ResumeToTheBit) {
  Folder whole, again;
  const auto uninterrupted = start(GetParam(), true, whole.path);
  uninterrupted->trainer->run();
  const auto resumed = start(GetParam(), true, again.path, whole.path / "checkpoint-3");
  resumed->trainer->run();
  expect_same(*uninterrupted, *resumed);
}

const Forward kWhole{.recomputed_layers = 8};
const Forward kSelective{.recomputed_layers = 1, .selective = Forward::Selective{.feed_forward = true}, .watch = {}};

INSTANTIATE_TEST_SUITE_P(
    Variants, UpdatesInBackward,
    ::testing::Values(
        BackwardVariant{"f32", "train_qwen2", at::kFloat, {}, {}},
        BackwardVariant{"f32_recomputed", "train_qwen2", at::kFloat, {}, kWhole},
        BackwardVariant{"bf16_master", "train_qwen2", at::kBFloat16, {}, kSelective},
        BackwardVariant{"bf16_stochastic", "train_qwen2", at::kBFloat16, {.rounding = Rounding::Stochastic}, kWhole},
        BackwardVariant{
            "eight_bit", "train_qwen2", at::kBFloat16, {.kind = "adamw_8bit", .rounding = Rounding::Stochastic}, {}},
        BackwardVariant{"untied", "qwen3_yarn", at::kBFloat16, {.kind = "adamw_8bit"}, kSelective},
        BackwardVariant{"experts", "qwen3_moe_norm", at::kFloat, {}, kSelective},
        BackwardVariant{"adafactor", "train_qwen2", at::kFloat, {.kind = "adafactor"}, {}},
        BackwardVariant{"sgd", "train_qwen2", at::kFloat, {.kind = "sgd", .arguments = {{"momentum", "0.9"}}}, kWhole},
        BackwardVariant{"muon", "train_qwen2", at::kFloat, {.kind = "muon"}, kSelective}),
    [](const auto& info) { return std::string(info.param.name); });

const BackwardVariant kPlain{"f32", "train_qwen2", at::kFloat, {}, {}};
constexpr const char* kBad = "model.layers.0.mlp.down_proj.weight";

at::Tensor parameter(Model& model, const std::string& name) {
  at::Tensor found;
  model.visit([&](const std::string& n, Param& p) {
    if (n == name) found = p.data;
  });
  return found;
}

TEST(UpdateInBackward, StopsAtTheFirstGradientThatIsNotFinite) {
  const auto run = start(kPlain, true, {}, {}, {.loop = {.max_steps = 2}});
  const auto before = weights(*run->model);
  parameter(*run->model, kBad).register_hook([](const at::Tensor& g) { return at::full_like(g, NAN); });
  const TrainResult result = run->trainer->run();
  EXPECT_EQ(result.bad_steps, 2);
  EXPECT_EQ(result.step, 2);
  const auto after = weights(*run->model);
  const auto changed = [&](const char* name) { return !at::equal(before.at(name), after.at(name)); };
  EXPECT_TRUE(changed("model.norm.weight"));
  EXPECT_TRUE(changed("model.layers.1.mlp.down_proj.weight"));
  EXPECT_FALSE(changed(kBad));
  EXPECT_FALSE(changed("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(changed("model.embed_tokens.weight"));
  for (const auto& [name, value] : after) EXPECT_TRUE(value.isfinite().all().item<bool>()) << name;
}

TEST(UpdateInBackward, EndsTheRunAfterBadStepsInARow) {
  Folder out;
  const auto run = start(kPlain, true, out.path, {}, {.loop = {.max_bad_steps = 2}});
  int calls = 0;
  parameter(*run->model, kBad).register_hook([&](const at::Tensor& g) {
    return ++calls > 4 ? at::full_like(g, INFINITY) : g;
  });
  try {
    run->trainer->run();
    FAIL() << "must stop";
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Model);
    const std::string what = e.what();
    EXPECT_NE(what.find(str("the gradient of ", kBad, " is not finite")), std::string::npos) << what;
    EXPECT_NE(what.find("checkpoint-3"), std::string::npos) << what;
  }
}

TEST(UpdateInBackward, ALossThatIsNotFiniteChangesNothing) {
  const auto run = start(kPlain, true, {}, {}, {.loop = {.max_bad_steps = 1}});
  {
    c10::AutoGradMode no_grad(false);
    parameter(*run->model, "model.layers.1.mlp.down_proj.weight").fill_(3e38);
  }
  const auto before = weights(*run->model);
  try {
    run->trainer->run();
    FAIL() << "must stop";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the output of layer 1 is not finite"), std::string::npos) << e.what();
  }
  for (const auto& [name, value] : weights(*run->model)) EXPECT_TRUE(at::equal(before.at(name), value)) << name;
  EXPECT_EQ(run->optimizer->steps(), 0);
}

TEST(UpdateInBackward, RefusesWhatNeedsAllGradients) {
  for (const auto& [key, value] : {std::pair<const char*, Json>("grad_accum", 2), {"max_grad_norm", 1.0}}) {
    Json changed = hyper();
    changed[key] = value;
    TrainerOptions options;
    options.loop.update_in_backward = true;
    const Case c("train_qwen2");
    EXPECT_THROW(TestRun(golden::owned_model(c.dir / "checkpoint"), changed, batches_of(c), options), Error) << key;
  }
}

}  // namespace
}  // namespace apus
