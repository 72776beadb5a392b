// SPDX-License-Identifier: Apache-2.0
// Ranks that share out state, gradients and weights, or the tokens of rows, train as one process that holds everything;
// each holds its part and no more; and a run goes on from what other ranks saved.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include "checkpoint/adapter.h"
#include "dist/mesh.h"
#include "parallel/sharded_gradients.h"
#include "parallel/sharded_model.h"
#include "run/shared_training.h"
#include "tensor/safetensors.h"
#include "tests/rank_body.h"
#include "tests/train/training.h"

namespace apus {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using golden::Folder;

constexpr int64_t kAnUpdate = 4;  // micro-batches, over all ranks

// full, lora (with dropout, layers run again), dora, mixed (the lower part is frozen), moe, moe_lora, bf16; or the name
// of a golden model
struct ShardedRun {
  std::string variant, strategy, from;  // strategy: zero0 ... zero3, kept (zero3, weights stay for the backward pass)
  fs::path out;
  int64_t sharers = 1;  // ranks that share out the tokens of each row
  int64_t steps = 20;
};

fs::path sharded_checkpoint(const std::string& variant) {
  const bool moe = variant.starts_with("moe");
  if (fs::exists(golden::models() / variant / "checkpoint")) return golden::models() / variant / "checkpoint";
  return golden::models() /
         (moe                                           ? "qwen3_moe_norm"
          : variant == "full" || variant == "unclipped" ? "train_qwen2"
                                                        : "qwen2_untied_sharded") /
         "checkpoint";
}

// Rows that any of the models can read; eleven micro-batches an epoch, so that its last update is short of some.
std::unique_ptr<SampleSource> sharded_rows(int rank, int ranks) {
  const auto micro_batch = [](int64_t number) {
    Samples rows;
    for (int64_t row = 0; row < 2; ++row) {
      Sample& sample = rows.emplace_back();
      for (int64_t t = 0; t < 5 + number % 3; ++t) {
        sample.ids.push_back(static_cast<int32_t>((number * 31 + row * 17 + t * 7 + number * t) % 150));
        sample.trained.push_back(t > 0);
      }
      sample.grouped = row > 0;
    }
    return rows;
  };
  return make_indexed_source(11, {}, micro_batch, {.shuffle = false, .rank = rank, .ranks = ranks, .even = false});
}

Json train_sharded(const ShardedRun& s, World& world) {
  at::set_num_threads(1);
  ShardingOptions o;
  o.deepspeed = s.strategy == "kept" ? "zero3" : s.strategy;
  OptionTable notes;
  o.resolve(notes);
  Sharding sharding = o.sharding();
  sharding.release_after_forward = s.strategy != "kept";
  Mesh mesh(world, mesh_sizes(o, world.size(), world.size())), rows(world, {.cp = static_cast<int>(s.sharers)});
  const bool lora = s.variant.find("lora") != std::string::npos || s.variant == "dora";
  const auto type = s.variant == "bf16" ? at::kBFloat16 : at::kFloat;
  const fs::path base = sharded_checkpoint(s.variant);
  auto model = make_model(read_model_config(base));
  model->place(mesh);
  if (s.variant == "mixed")
    model->visit([&](const std::string& name, Param& p) {
      p.trainable = name.find("layers.0.") == std::string::npos && name.find("embed") == std::string::npos;
    });
  load_weights(*model, TensorFolder(!lora && !s.from.empty() ? fs::path(s.from) : base),
               {.dtype = type,
                .device = sharding.on_host && mesh.size(Axis::DpShard) > 1 ? at::Device(at::kCPU) : mesh.device(),
                .own = [](const std::string&) { return true; }});
  Adapter adapter;
  if (lora) {
    std::vector<std::string> targets = {"q_proj", "o_proj", "up_proj", "down_proj"};
    adapter = make_adapter(
        *model,
        {.r = 4,
         .alpha = 8,
         .dropout = s.variant == "lora" ? 0.2 : 0.0,
         .dora = s.variant == "dora",
         .target_modules = targets,
         .modules_to_save = s.variant == "lora" ? std::vector<std::string>{"norm"} : std::vector<std::string>(),
         .init = "true"},
        3);
    if (!s.from.empty()) restore_adapter(*model, adapter, s.from);
  }
  o.ddp_bucket_cap_mb = 1;
  const auto params = golden::trainable(*model);
  SharedTraining shared = share_training(*model, params, mesh, world, o, /*owned=*/false);
  share_tokens(*model, rows);
  const OptimizerSpec spec;
  const auto optimizer = make_optimizer(spec, make_groups(shared.updated, {.lr = 3e-3, .weight_decay = 0.1}));
  const auto source = sharded_rows(rows.rank(kDataAxes), rows.size(kDataAxes));
  const Folder logs;
  RunLog log(RunLog::Options{.dir = logs.path, .events_dir = {}, .quiet = true});
  TrainerOptions options;
  options.loop.max_steps = s.steps, options.loop.save_steps = 10, options.loop.logging_steps = 1;
  options.loop.gradient_accumulation_steps = kAnUpdate / rows.size(kDataAxes);
  options.loop.max_grad_norm = s.variant == "unclipped" ? 0 : 0.5;
  options.output_dir = s.out;
  if (s.variant == "lora" || s.variant == "moe") options.forward.recomputed_layers = 1;
  if (s.variant == "moe") options.loop.router_aux_loss_coef = 0.01;
  if (s.variant == "dora") options.forward.selective = Forward::Selective{};
  Sft algorithm{SftOptions()};
  Trainer trainer({.algorithm = algorithm,
                   .actors = {.policy = *model},
                   .optimizer = *optimizer,
                   .schedule =
                       [](int64_t) {
                         return make_schedule(
                             {.type = "constant", .base_lr = 3e-3, .total_steps = 20, .warmup_steps = 0}, {});
                       },
                   .base_lr = 3e-3,
                   .train = *source,
                   .data_ranks = mesh.host(kDataAxes),
                   .row_sharers = s.sharers,
                   .gradients = shared.sync(),
                   .log = world.first() ? &log : nullptr,
                   .device = mesh.device(),
                   .save_model =
                       [&](const fs::path& dir) {
                         if (!world.first() && mesh.size(Axis::DpShard) == 1) return;
                         if (lora) return save_adapter(*model, adapter, dir, {});
                         save_weights(*model, dir, int64_t{1} << 30, type);
                         if (world.first()) fs::copy_file(base / "config.json", dir / "config.json");
                       }},
                  options);
  if (!s.from.empty()) trainer.resume(read_state(s.from), {});
  const TrainResult result = trainer.run();
  int64_t state = 0, all = 0, trained = 0;
  for (const auto& [name, t] : optimizer->state()) state += static_cast<int64_t>(t.nbytes());
  model->visit([&](const std::string&, Param& p) {
    int64_t n = 1;
    for (const int64_t d : p.full) n *= d;
    if (p.tied.empty()) all += n, trained += p.trainable ? n : 0;
  });
  return {{"log", result.log_history},
          {"state", state},
          {"all", all},
          {"trained", trained},
          {"slices", shared.model ? shared.model->slice_bytes() : 0},
          {"most_whole", shared.model ? shared.model->most_whole_bytes() : 0},
          {"most_gradients", shared.slices ? shared.slices->most_whole_bytes() : 0},
          {"early", shared.slices ? shared.slices->sent_early() : 0}};
}

fs::path report_of(const fs::path& dir, int rank) { return dir / str("report", rank, ".json"); }

const test::RankBody sharded_rank("sharded.train", [](const auto& a) {
  World world({.device = golden::device_named(), .timeout_s = 60});
  const Json report = train_sharded({a[0], a[1], a[3], a[2], std::stoll(a[4])}, world);
  write_file_atomic(report_of(a[2], world.rank()), report.dump());
});

Json train_alone(const std::string& variant, const fs::path& dir, const std::string& from = "") {
  World world({.device = golden::device_named()}, [](const char*) { return std::nullopt; });
  const Json report = train_sharded({variant, "zero0", from, dir}, world);
  write_file_atomic(report_of(dir, 0), report.dump());
  return report;
}

Json train_ranks(int ranks, const std::string& variant, const std::string& strategy, const fs::path& dir,
                 const std::string& from = "", int sharers = 1) {
  const test::Ranks r =
      test::run_ranks(ranks, "sharded.train", {variant, strategy, dir.string(), from, std::to_string(sharers)});
  EXPECT_EQ(r.code, 0) << r.said;
  return r.code == 0 ? Json::parse(read_file(report_of(dir, 0))) : Json();
}

std::map<std::string, at::Tensor> written_weights(const fs::path& dir) {
  std::map<std::string, at::Tensor> all;
  for (const char* name : {"model.safetensors", "adapter_model.safetensors"}) {
    if (!fs::exists(dir / name)) continue;
    const auto file = SafetensorsFile::open(dir / name);
    for (const auto& [tensor, about] : file->entries()) all[tensor] = file->tensor(tensor).to(at::kFloat);
  }
  return all;
}

// A key's bias hardly changes a softmax: its gradient is rounding noise, which Adam scales up to full steps. The more
// ranks sum in another order than one process does, the more it scales of other weights too: `of_weights`.
void expect_same_run(const Json& one, const Json& many, const fs::path& a_dir, const fs::path& b_dir, double tolerance,
                     double of_weights) {
  ASSERT_EQ(one["log"].size(), many["log"].size());
  for (size_t i = 0; i < one["log"].size(); ++i) {
    EXPECT_NEAR(one["log"][i]["loss"], many["log"][i]["loss"], tolerance) << i;
    EXPECT_NEAR(one["log"][i]["grad_norm"], many["log"][i]["grad_norm"], 10 * tolerance) << i;
  }
  const auto a = written_weights(a_dir / "checkpoint-20"), b = written_weights(b_dir / "checkpoint-20");
  ASSERT_FALSE(a.empty());
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    const double allowed = name.find("k_proj.bias") == std::string::npos ? of_weights : std::max(of_weights, 5e-2);
    EXPECT_TRUE(at::allclose(value, b.at(name), allowed, allowed))
        << name << ": " << (value - b.at(name)).abs().max().item<float>();
  }
}

struct ShardedCase {
  std::string variant, strategy;
  int ranks;
};

class Sharded : public ::testing::TestWithParam<ShardedCase> {};

TEST_P(Sharded, TrainsAsOneProcess) {
  const auto& [variant, strategy, ranks] = GetParam();
  const bool some = ranks == 2 && (strategy == "zero3_offload" || variant == "lora" || variant == "moe_lora");
  if (golden::device_named() != "cpu" && !some) GTEST_SKIP() << "a simulated device is slow: some of them are enough";
  static std::map<std::string, std::pair<std::unique_ptr<Folder>, Json>> alone;  // a run of each variant
  auto& [folder, one] = alone[variant];
  if (!folder) folder = std::make_unique<Folder>(), one = train_alone(variant, folder->path);
  Folder together;
  const Json many = train_ranks(ranks, variant, strategy, together.path);
  ASSERT_FALSE(many.is_null());
  expect_same_run(one, many, folder->path, together.path, 2e-5, 2e-5);
  // What each rank holds, in bytes: its share, and a row of each parameter more at most.
  const double share = 1.0 / ranks, rows = 0.1;
  for (int rank = 0; rank < ranks; ++rank) {
    const Json r = Json::parse(read_file(report_of(together.path, rank)));
    EXPECT_LE(r["state"].get<double>(), one["state"].get<double>() * (share + rows)) << rank;
    if (strategy != "zero3" && strategy != "kept") continue;
    const double weights = 4 * r["all"].get<double>();
    EXPECT_LE(r["slices"].get<double>(), weights * (share + rows)) << rank;
    EXPECT_GT(r["most_whole"].get<double>(), 0);
    if (strategy == "zero3") {
      EXPECT_LT(r["most_gradients"].get<double>(), 4 * r["trained"].get<double>()) << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Sharded,
    ::testing::Values(ShardedCase{"full", "zero1", 2}, ShardedCase{"full", "zero2", 2}, ShardedCase{"full", "zero3", 2},
                      ShardedCase{"full", "zero1", 4}, ShardedCase{"full", "zero2", 4}, ShardedCase{"full", "zero3", 4},
                      ShardedCase{"full", "kept", 2}, ShardedCase{"full", "zero2_offload", 2},
                      ShardedCase{"full", "zero3_offload", 2}, ShardedCase{"untied", "zero3", 4},
                      ShardedCase{"lora", "zero1", 2}, ShardedCase{"lora", "zero2", 4}, ShardedCase{"lora", "zero3", 2},
                      ShardedCase{"lora", "zero3", 4}, ShardedCase{"dora", "zero2", 2}, ShardedCase{"dora", "zero3", 2},
                      ShardedCase{"mixed", "zero1", 4}, ShardedCase{"mixed", "zero3", 2},
                      ShardedCase{"moe", "zero2", 2}, ShardedCase{"moe", "zero3", 2}, ShardedCase{"moe", "zero3", 4},
                      ShardedCase{"moe_lora", "zero1", 2}, ShardedCase{"moe_lora", "zero3", 2}),
    [](const auto& info) { return str(info.param.variant, "_", info.param.strategy, "_", info.param.ranks); });

struct SharedRows {
  std::string variant, strategy;
  int ranks, sharers;
};
class SharedTokens : public ::testing::TestWithParam<SharedRows> {};

// Two key-value heads among four ranks, rows of all lengths, dropout, layers that run again, windows, balanced experts.
TEST_P(SharedTokens, TrainsAsOneProcess) {
  const auto& [variant, strategy, ranks, sharers] = GetParam();
  if (golden::device_named() != "cpu" && variant != "lora") GTEST_SKIP() << "a simulated device is slow: one is enough";
  Folder alone, together;
  const Json one = train_alone(variant, alone.path);
  const Json many = train_ranks(ranks, variant, strategy, together.path, "", sharers);
  ASSERT_FALSE(many.is_null());
  expect_same_run(one, many, alone.path, together.path, 2e-5, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(All, SharedTokens,
                         ::testing::Values(SharedRows{"full", "zero0", 2, 2}, SharedRows{"full", "zero0", 4, 4},
                                           SharedRows{"full", "zero1", 4, 2}, SharedRows{"full", "zero3", 4, 2},
                                           SharedRows{"untied", "zero2", 4, 4}, SharedRows{"lora", "zero0", 2, 2},
                                           SharedRows{"lora", "zero3", 4, 4}, SharedRows{"dora", "zero1", 2, 2},
                                           SharedRows{"moe", "zero0", 2, 2}, SharedRows{"moe", "zero3", 4, 2},
                                           SharedRows{"moe_lora", "zero2", 4, 4}, SharedRows{"qwen3", "zero0", 4, 4},
                                           SharedRows{"llama3", "zero0", 4, 2},
                                           SharedRows{"qwen2_sliding", "zero1", 2, 2},
                                           SharedRows{"olmo2", "zero0", 2, 2}),
                         [](const auto& info) {
                           return str(info.param.variant, "_", info.param.strategy, "_", info.param.ranks, "_by_",
                                      info.param.sharers);
                         });

// The sums of a processor are made in the order of the ranks, whoever keeps them: the same to the bit.
TEST(ShardedRuns, AreThoseOfPlainDataParallel) {
  if (golden::device_named() != "cpu") GTEST_SKIP() << "other devices promise no order";
  Folder plain, sliced;
  train_ranks(4, "unclipped", "zero0", plain.path), train_ranks(4, "unclipped", "zero1", sliced.path);
  const auto a = written_weights(plain.path / "checkpoint-20"), b = written_weights(sliced.path / "checkpoint-20");
  ASSERT_FALSE(a.empty());
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
}

struct Again {
  std::string variant, before;
  int ranks_before;
  std::string after;
  int ranks_after;
};
class ShardedAgain : public ::testing::TestWithParam<Again> {};

TEST_P(ShardedAgain, GoesOnAsAnUninterruptedRun) {
  if (golden::device_named() != "cpu") GTEST_SKIP() << "files are the same on every device";
  const Again& p = GetParam();
  Folder whole, again;
  const auto run = [&](int ranks, const std::string& strategy, const fs::path& dir, const std::string& from) {
    return ranks == 1 ? train_alone(p.variant, dir, from) : train_ranks(ranks, p.variant, strategy, dir, from);
  };
  const Json first = run(p.ranks_before, p.before, whole.path, "");
  const Json second = run(p.ranks_after, p.after, again.path, (whole.path / "checkpoint-10").string());
  ASSERT_FALSE(first.is_null() || second.is_null());
  if (p.ranks_before != p.ranks_after || p.before != p.after)
    return expect_same_run(first, second, whole.path, again.path, 2e-5, 2e-5);
  const auto a = written_weights(whole.path / "checkpoint-20"), b = written_weights(again.path / "checkpoint-20");
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(All, ShardedAgain,
                         ::testing::Values(Again{"full", "zero2", 2, "zero2", 2}, Again{"lora", "zero3", 2, "zero3", 2},
                                           Again{"full", "zero3", 2, "zero0", 1}, Again{"lora", "zero0", 1, "zero2", 2},
                                           Again{"full", "zero1", 2, "zero3", 4}),
                         [](const auto& info) {
                           return str(info.param.variant, "_", info.param.before, "_", info.param.ranks_before, "_to_",
                                      info.param.after, "_", info.param.ranks_after);
                         });

}  // namespace
}  // namespace apus
