// SPDX-License-Identifier: Apache-2.0
// Training runs against transformers: loss, learning rate and gradient norm of every step, and the weights at the end.
#include <ATen/TensorOperators.h>

#include "checkpoint/adapter.h"
#include "tests/train/training.h"

namespace apus {
namespace {

using golden::Case;
using golden::TestRun;

void expect_steps(const Json& golden, const Json& history, double loss_tolerance = 1e-4, double norm_tolerance = 1e-4) {
  ASSERT_EQ(history.size(), golden.size());
  for (size_t i = 0; i < golden.size(); ++i) {
    EXPECT_NEAR(history[i]["loss"].get<double>(), golden[i]["loss"].get<double>(), loss_tolerance) << "step " << i;
    EXPECT_NEAR(history[i]["learning_rate"].get<double>(), golden[i]["lr"].get<double>(), 1e-9) << "step " << i;
    EXPECT_NEAR(history[i]["grad_norm"].get<double>() / golden[i]["grad_norm"].get<double>(), 1, norm_tolerance)
        << "step " << i;
  }
}

class FullTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(FullTraining, FollowsTransformers) {
  const Case c("train_qwen2");
  const Json& golden = c.json["runs"][GetParam()];
  TestRun run(golden::owned_model(c.dir / "checkpoint"), golden["hyper"], golden::train_batches(c));
  const TrainResult result = run.trainer->run();
  expect_steps(golden["steps"], result.log_history);
  run.model->visit([&](const std::string& name, Param& p) {
    const at::Tensor value = p.data.detach().to(at::kCPU);
    for (const std::string part : {"", "[0:16]"}) {
      const std::string key = str("final/", GetParam(), "/", name, part);
      if (!c.has(key)) continue;
      const at::Tensor mine = part.empty() ? value : value.narrow(0, 0, 16);
      EXPECT_LT((mine - c.tensor(key)).abs().max().item<double>(), 3e-4) << name;
    }
    if (golden["final_norms"].contains(name)) {
      const double norm = value.to(at::kDouble).norm().item<double>();
      EXPECT_NEAR(norm, golden["final_norms"][name].get<double>(), 1e-3 * norm) << name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Runs, FullTraining,
                         ::testing::Values("adamw_decay_all", "adamw_hf_trainer_groups", "adamw_accum2_num_items"));

TEST(LoraTraining, FollowsPeft) {
  const Case c("lora_qwen2");
  const Json& golden = c.json["train"];
  auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const Adapter adapter = load_adapter(*model, c.dir / "adapter_train_init");
  TestRun run(std::move(model), golden["hyper"], golden::train_batches(c, "train/"));
  const TrainResult result = run.trainer->run();
  expect_steps(golden["steps"], result.log_history);
  golden::Folder out;
  save_adapter(*run.model, adapter, out.path, {});
  const auto file = SafetensorsFile::open(out.path / "adapter_model.safetensors");
  int compared = 0;
  for (const auto& [name, entry] : file->entries()) {
    if (!c.has("train/final/" + name)) continue;
    ++compared;
    EXPECT_LT((file->tensor(name) - c.tensor("train/final/" + name)).abs().max().item<double>(), 3e-4) << name;
  }
  EXPECT_EQ(compared, 8);
}

// Optimizers, schedules, losses and adapters that the golden runs leave out, against runs in f64:
// see tests/data/train/make_trajectories.py.
class OtherTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(OtherTraining, FollowsF64) {
  const Json all = Json::parse(read_file(test::source_dir() / "tests/data/train/trajectories.json"));
  const Json& golden = all.at(GetParam());
  Json hyper = golden["run"];
  hyper["grad_accum"] = 1, hyper["no_decay"] = "bias and norm weights";
  const Case c(hyper["model"].get<std::string>());
  const bool lora = hyper.contains("adapter");
  auto model = golden::owned_model(c.dir / "checkpoint");
  if (lora) load_adapter(*model, c.dir / hyper["adapter"].get<std::string>());
  const std::string optim = hyper["optim"];
  const OptimizerSpec spec{.kind = optim, .arguments = hyper.value("arguments", std::map<std::string, std::string>())};
  const SftOptions sft{.label_smoothing_factor = hyper.value("label_smoothing", 0.0),
                       .enable_dft_loss = hyper.value("dft", false)};
  TestRun run(std::move(model), hyper, golden::train_batches(c, lora ? "train/" : ""), {}, spec, sft);
  expect_steps(golden["steps"], run.trainer->run().log_history);
}

INSTANTIATE_TEST_SUITE_P(Runs, OtherTraining,
                         ::testing::Values("sgd", "sgd_momentum", "sgd_nesterov", "adafactor", "adafactor_scaled",
                                           "muon", "label_smoothing", "dft", "dft_smoothed", "rslora", "dora",
                                           "lora_plus", "dora_plus_sgd"),
                         [](const auto& info) { return std::string(info.param); });

// bf16 weights with f32 masters end close to the f32 run; without masters or stochastic rounding they would not move.
TEST(LowPrecision, Bf16FollowsTheF32Run) {
  const Case c("train_qwen2");
  const Json& golden = c.json["runs"]["adamw_decay_all"];
  for (const Rounding rounding : {Rounding::Master, Rounding::Stochastic})
    for (const char* kind : {"adamw_torch", "adamw_8bit"}) {
      TestRun run(golden::owned_model(c.dir / "checkpoint", at::kBFloat16), golden["hyper"], golden::train_batches(c),
                  {}, {.kind = kind, .rounding = rounding});
      const TrainResult result = run.trainer->run();
      for (size_t i = 0; i < 10; ++i)
        EXPECT_NEAR(result.log_history[i]["loss"].get<double>(), golden["steps"][i]["loss"].get<double>(), 0.12)
            << kind << " step " << i;
    }
}

}  // namespace
}  // namespace apus
