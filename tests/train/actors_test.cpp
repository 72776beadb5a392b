// SPDX-License-Identifier: Apache-2.0
// What an algorithm works with beside the policy: a reference, which is the policy without its adapters; and a rollout,
// whose engine sleeps while the policy is trained.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <fstream>

#include "checkpoint/adapter.h"
#include "engine/engine.h"
#include "tests/train/training.h"
#include "train/rollout.h"

namespace apus {
namespace {

using golden::Case;

TEST(Reference, WithoutAdaptersIsTheBaseToTheBit) {
  const Case c("lora_qwen2");
  const Batch batch = golden::batch_of(golden::train_batches(c, "train/")[0]).to(golden::device());
  const auto base = golden::owned_model(c.dir / "checkpoint"), policy = golden::owned_model(c.dir / "checkpoint");
  make_adapter(*policy,
               {.r = 4,
                .alpha = 8,
                .dropout = 0.3,
                .target_modules = {"q_proj", "v_proj", "down_proj", "embed_tokens"},
                .init = "false"},
               5);
  const at::Tensor expected_T = Reference::of(*base).logprobs(batch);
  EXPECT_TRUE(at::equal(Reference::without_adapters(*policy).logprobs(batch), expected_T));
  EXPECT_FALSE(at::equal(Reference::of(*policy).logprobs(batch), expected_T));
  EXPECT_FALSE(expected_T.requires_grad());
  EXPECT_EQ(expected_T.lt(0).sum().item<int64_t>(), batch.trained);
}

// Bytes of address space; a cache that was given back is no part of it.
int64_t address_space() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(Rollout, SleepsBetweenAnswersAndAnswersByTheWeightsOfTheMoment) {
  const Case c("train_qwen2");
  const auto policy = golden::owned_model(c.dir / "checkpoint");
  const auto options = at::TensorOptions().dtype(at::kFloat).device(golden::device());
  constexpr int64_t kCache = int64_t{1} << 30;
  const EngineSpec spec{.max_model_len = 64, .cache_bytes = kCache};
  const std::vector<std::vector<int32_t>> prompts(3, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21});
  const Sampling sampling{.temperature = 0, .max_new_tokens = 8};
  const auto fresh = [&] {
    Engine engine(*policy, options, spec);
    if (golden::device().is_cpu()) {
      EXPECT_GT(address_space(), kCache);
    }
    return generate(engine, prompts, sampling)[0].ids();
  };
  const int64_t before = address_space();
  Rollout rollout(*policy, options, spec);
  const auto first = rollout.answers(prompts, sampling)[0].ids();
  EXPECT_LT(address_space() - before, kCache / 2) << "the cache is there while it sleeps";
  EXPECT_EQ(first, fresh());
  {
    at::NoGradGuard no_grad;
    policy->visit([](const std::string&, Param& p) {
      if (p.tied.empty()) p.data.add_(at::randn(p.data.sizes(), p.data.options()).mul_(0.1));
    });
  }
  const auto second = rollout.answers(prompts, sampling)[0].ids();
  EXPECT_NE(second, first);
  EXPECT_EQ(second, fresh()) << "blocks of the old weights were used";
  EXPECT_TRUE(rollout.answers({}, sampling).empty());
  // Tokens know the weights that they come from, also when a longer prompt needs another engine.
  EXPECT_EQ(rollout.answers(prompts, sampling)[0].tokens[0].weights, 0);
  rollout.weights_changed();
  EXPECT_EQ(rollout.answers(prompts, sampling)[0].tokens[0].weights, 1);
  rollout.weights_changed();
  const std::vector<std::vector<int32_t>> longer(1, std::vector<int32_t>(100, 7));
  EXPECT_EQ(rollout.answers(longer, sampling)[0].tokens[0].weights, 2);
}

// An answer that cannot be given is an error, and the cache is given back all the same.
TEST(Rollout, SleepsAlsoWhenItFails) {
  const Case c("train_qwen2");
  const auto policy = golden::owned_model(c.dir / "checkpoint");
  constexpr int64_t kCache = int64_t{1} << 30;
  Rollout rollout(*policy, at::TensorOptions().dtype(at::kFloat).device(golden::device()),
                  {.max_model_len = 64, .cache_bytes = kCache});
  const int64_t before = address_space();
  EXPECT_THROW(rollout.answers({{5, 6}, {}}, {.max_new_tokens = 4}), Error);
  EXPECT_LT(address_space() - before, kCache / 2);
  EXPECT_EQ(rollout.answers({{5, 6}}, {.max_new_tokens = 4})[0].tokens.size(), 4u);
}

}  // namespace
}  // namespace apus
