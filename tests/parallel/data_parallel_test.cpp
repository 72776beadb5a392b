// SPDX-License-Identifier: Apache-2.0
// Several processes train like one with the same global batch: losses, weights, skipped updates, resumed runs.
#include "parallel/data_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "checkpoint/adapter.h"
#include "dist/mesh.h"
#include "tensor/safetensors.h"
#include "tests/rank_body.h"
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;
using golden::TestRun;
using test::RankBody;
using test::run_ranks;

// Micro-batch k belongs to rank k % ranks.
std::vector<golden::Packed> share(const std::vector<golden::Packed>& all, int rank, int ranks) {
  std::vector<golden::Packed> mine;
  for (size_t k = static_cast<size_t>(rank); k < all.size(); k += static_cast<size_t>(ranks)) mine.push_back(all[k]);
  return mine;
}

// Trains the golden case for six updates of six micro-batches each and leaves losses and weights in a folder.
// variants: full, lora (with dropout), bf16, nan (a weight is broken for one update on the last rank)
struct Setting {
  std::string variant, from;
  fs::path out;
  int64_t steps = 6;
};

TrainResult train(const Setting& s, World& world) {
  Mesh mesh(world);
  // As the ranks have: the model is small, and the machine shared.
  at::set_num_threads(1);
  const Case c("train_qwen2");
  Json hyper = c.json["runs"]["adamw_hf_trainer_groups"]["hyper"];
  hyper["grad_accum"] = 6 / world.size();
  hyper["total_steps"] = 6;
  std::vector<golden::Packed> batches, all = golden::train_batches(c);
  for (int i = 0; i < 36; ++i) batches.push_back(all[static_cast<size_t>(i) % all.size()]);
  const auto type = s.variant == "bf16" ? at::kBFloat16 : at::kFloat;
  auto model = load_model(s.from.empty() || s.variant == "lora" ? c.dir / "checkpoint" : fs::path(s.from),
                          {.dtype = type, .device = at::kCPU, .own = [](const std::string&) { return true; }});
  Adapter adapter;
  if (s.variant == "lora")
    adapter = make_adapter(*model,
                           {.r = 4,
                            .alpha = 8,
                            .dropout = 0.2,
                            .target_modules = {"q_proj", "up_proj"},
                            .modules_to_save = {},
                            .init = "true"},
                           3);
  if (s.variant == "lora" && !s.from.empty()) restore_adapter(*model, adapter, s.from);
  TrainerOptions options;
  options.loop.max_steps = s.steps;
  options.loop.save_steps = 3, options.output_dir = s.out;
  options.forward = {.recomputed_layers = 1, .selective = std::nullopt, .neftune_alpha = 5, .watch = {}};
  options.exact = {{"rows", 36}};
  TestRun run(std::move(model), hyper, share(batches, mesh.rank(kDataAxes), mesh.size(kDataAxes)), options);
  const auto params = golden::trainable(*run.model);
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const NamedParam& p : params) named.emplace_back(p.name, p.tensor);
  GradientSum gradients(named, mesh.comm(kDataAxes), {.bucket_bytes = 2000});
  EXPECT_GT(gradients.buckets(), 1u);
  if (s.variant == "lora")
    run.save = [&](const fs::path& dir) { save_adapter(*run.model, adapter, dir, {}); };
  else
    run.save = [&](const fs::path& dir) {
      save_weights(*run.model, dir, int64_t{1} << 30, type);
      fs::copy_file(c.dir / "checkpoint/config.json", dir / "config.json");
    };
  TrainerParts parts{.algorithm = run.algorithm,
                     .actors = {.policy = *run.model},
                     .optimizer = *run.optimizer,
                     .schedule =
                         [](int64_t) {
                           return make_schedule(
                               {.type = "constant", .base_lr = 1e-2, .total_steps = 6, .warmup_steps = 0}, {});
                         },
                     .base_lr = 1e-2,
                     .train = run.source,
                     .data_ranks = mesh.host(kDataAxes),
                     .gradients = world.size() > 1 ? &gradients : nullptr,
                     .log = world.first() ? run.log.get() : nullptr,
                     .save_model = [&](const fs::path& dir) { run.save(dir); }};
  options.loop.gradient_accumulation_steps = 6 / world.size();
  options.loop.max_grad_norm = hyper["max_grad_norm"], options.loop.logging_steps = 1;
  options.seed = 42;
  Trainer trainer(parts, options);
  if (!s.from.empty()) trainer.resume(read_state(s.from), {});
  const TrainResult result = trainer.run();
  if (world.size() > 1) {
    EXPECT_GT(gradients.sent_early(), 0);
  }
  const std::string mine = str(s.out.string(), "/rank", world.rank(), ".txt");
  double sum = 0;
  run.model->visit([&](const std::string&, Param& p) {
    if (p.data.defined() && p.tied.empty()) sum += p.data.detach().to(at::kDouble).abs().sum().item<double>();
  });
  char text[64];
  std::snprintf(text, sizeof text, "%a", sum);  // every bit
  write_file_atomic(mine, text);
  return result;
}

void write_result(const Setting& s, const TrainResult& result) {
  write_file_atomic(s.out / "losses.json", Json({{"log", result.log_history}, {"bad_steps", result.bad_steps}}).dump());
}

const RankBody trains("data_parallel.train", [](const auto& arguments) {
  World world({.device = "cpu", .timeout_s = 60});
  const Setting s{arguments[0], arguments[2], arguments[1], 6};
  const TrainResult result = train(s, world);
  if (world.first()) write_result(s, result);
});

Json losses_of(const fs::path& dir) { return Json::parse(read_file(dir / "losses.json")); }

Json run_alone(const std::string& variant, const fs::path& dir, const std::string& from = "") {
  World world({.device = "cpu"}, [](const char*) { return std::nullopt; });
  const Setting s{variant, from, dir};
  write_result(s, train(s, world));
  return losses_of(dir);
}

std::map<std::string, at::Tensor> saved(const fs::path& dir) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().filename() == "model.safetensors" || entry.path().filename() == "adapter_model.safetensors") {
      const auto file = SafetensorsFile::open(entry.path());
      for (const auto& [name, about] : file->entries()) all[name] = file->tensor(name).to(at::kFloat);
    }
  return all;
}

void expect_alike(const fs::path& one, const fs::path& other, double tolerance) {
  const auto a = saved(one), b = saved(other);
  ASSERT_FALSE(a.empty());
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    // A key's bias hardly changes a softmax: its gradient is rounding noise, which Adam scales up to full steps.
    const double allowed = name.find("k_proj.bias") == std::string::npos ? tolerance : std::max(tolerance, 1e-3);
    EXPECT_TRUE(at::allclose(value, b.at(name), allowed, allowed))
        << name << ": " << (value - b.at(name)).abs().max().item<float>();
  }
}

class DataParallel : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

// f32: sums of the same numbers in another order, 2e-5 after six updates at learning rate 1e-2 (measured 3e-6). bf16:
// the gradients themselves are rounded, once more on the way.
TEST_P(DataParallel, EqualsOneProcess) {
  const auto& [variant, ranks] = GetParam();
  const double tolerance = variant == "bf16" ? 2e-2 : 2e-5;
  Folder alone, together;
  const Json one = run_alone(variant, alone.path);
  const test::Ranks r = run_ranks(ranks, "data_parallel.train", {variant, together.path.string(), ""});
  ASSERT_EQ(r.code, 0) << r.said;
  const Json many = losses_of(together.path);
  ASSERT_EQ(one["log"].size(), 6u);
  ASSERT_EQ(many["log"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(one["log"][i]["loss"], many["log"][i]["loss"], tolerance) << i;
    EXPECT_NEAR(one["log"][i]["token_acc"], many["log"][i]["token_acc"], variant == "bf16" ? 0.05 : 1e-6) << i;
  }
  expect_alike(alone.path / "checkpoint-6", together.path / "checkpoint-6", tolerance);
  for (int rank = 1; rank < ranks; ++rank)  // all ranks hold the same bits
    EXPECT_EQ(read_file(together.path / str("rank", rank, ".txt")), read_file(together.path / "rank0.txt"));
}

INSTANTIATE_TEST_SUITE_P(Variants, DataParallel,
                         ::testing::Values(std::tuple{"full", 2}, std::tuple{"full", 3}, std::tuple{"lora", 2},
                                           std::tuple{"bf16", 2}),
                         [](const auto& info) { return str(std::get<0>(info.param), std::get<1>(info.param)); });

TEST(DataParallelRuns, AResumedRunEqualsAnUninterruptedOne) {
  Folder whole, again;
  ASSERT_EQ(run_ranks(2, "data_parallel.train", {"lora", whole.path.string(), ""}).code, 0);
  const test::Ranks r =
      run_ranks(2, "data_parallel.train", {"lora", again.path.string(), (whole.path / "checkpoint-3").string()});
  ASSERT_EQ(r.code, 0) << r.said;
  const auto a = saved(whole.path / "checkpoint-6"), b = saved(again.path / "checkpoint-6");
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
  EXPECT_EQ(losses_of(whole.path)["log"][5]["loss"], losses_of(again.path)["log"][5]["loss"]);
}

// Parameters that only some ranks, or none, used; a rank without any backward pass; gradients in several parts.
const RankBody unused("data_parallel.unused", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 60});
  const int me = world.rank(), n = world.size();
  const auto leaf = [](int64_t count) { return at::zeros({count}).add(1).requires_grad_(true); };
  const at::Tensor all = leaf(3), first_only = leaf(2), nobodys = leaf(4), twice = leaf(5);
  GradientSum sum({{"all", all}, {"first_only", first_only}, {"nobodys", nobodys}, {"twice", twice}}, world.devices(),
                  {.bucket_bytes = 20});
  for (int step = 0; step < 3; ++step) {
    for (const at::Tensor& t : {all, first_only, nobodys, twice}) t.mutable_grad().reset();
    (all * (me + 1.0)).sum().backward();  // an earlier micro-batch
    sum.begin();
    at::Tensor loss = (all * 10).sum() + (twice * 2).sum() + (twice * 3).sum();
    if (me == 0) loss = loss + (first_only * 7).sum();
    if (step < 2 || me == 0) loss.backward();
    sum.finish();
    const double backwards = step < 2 ? n : 1;
    EXPECT_EQ(all.grad()[0].item<double>(), n * (n + 1) / 2.0 + 10 * backwards);
    EXPECT_EQ(twice.grad()[4].item<double>(), 5 * backwards);
    EXPECT_EQ(first_only.grad()[1].item<double>(), 7);
    EXPECT_FALSE(nobodys.grad().defined());
  }
  for (const at::Tensor& t : {all, twice}) t.mutable_grad().reset();
  (all * 2).sum().backward();  // without begin()
  sum.finish();
  EXPECT_EQ(all.grad()[0].item<double>(), 2.0 * n);
});

// 1 and 2^-9 are 1 again in bf16, which has eight bits; over micro-batches and over ranks alike.
const RankBody wide_sums("data_parallel.wide", [](const auto&) {
  World world({.device = "cpu", .timeout_s = 60});
  const double small = 1.0 / 512, n = world.size();
  for (const bool wide : {false, true}) {
    const at::Tensor leaf = at::zeros({3}, at::kBFloat16).requires_grad_(true);
    GradientSum sum({{"leaf", leaf}}, world.devices(), {.wide = wide});
    sum.begin(/*last=*/false);
    (leaf * (world.rank() == 0 ? 1.0 : small)).sum().backward();
    sum.finish(/*last=*/false);
    sum.begin();
    (leaf * small).sum().backward();
    sum.finish();
    EXPECT_EQ(leaf.grad().scalar_type(), wide ? at::kFloat : at::kBFloat16);
    const double exact = 1 + (2 * n - 1) * small;
    if (wide)
      EXPECT_EQ(leaf.grad()[1].item<double>(), exact);
    else
      EXPECT_NE(leaf.grad()[1].item<double>(), exact);
  }
});

TEST(GradientSum, WideSumsKeepWhatTheTypeOfTheWeightsLoses) {
  const test::Ranks r = run_ranks(2, "data_parallel.wide");
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(GradientSum, UnusedParametersAndMissingBackwardPasses) {
  for (const int ranks : {2, 3}) {
    const test::Ranks r = run_ranks(ranks, "data_parallel.unused");
    EXPECT_EQ(r.code, 0) << r.said;
  }
}

}  // namespace
}  // namespace apus
