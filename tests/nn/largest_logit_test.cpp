// SPDX-License-Identifier: Apache-2.0
#include "nn/largest_logit.h"

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>

#include "nn/training_step.h"
#include "tensor/noise.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

TEST(LargestLogit, IsNoSmallerThanAnyAndOfAllThatWasSeen) {
  LargestLogit logit;
  EXPECT_EQ(logit.take(), 0);
  double largest = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    const at::Tensor q = normal_noise({5, 4, 8}, 0, 1, seed).to(golden::device()),
                     k = normal_noise({7, 2, 8}, 0, 1, seed + 9).to(golden::device());
    logit.look(q, k, 0.5);
    largest = std::max(largest, at::matmul(q.view({-1, 8}), k.view({-1, 8}).t()).max().item<double>() * 0.5);
  }
  const double bound = logit.take();
  EXPECT_GE(bound, largest);
  EXPECT_LT(bound, 10 * largest);
  EXPECT_EQ(logit.take(), 0);
  logit.look(at::full({1, 1, 2}, 3, at::kFloat), at::full({1, 1, 2}, 4, at::kFloat), 0.5);
  EXPECT_NEAR(logit.take(), 12, 1e-5);  // one query along one key: the logit itself
}

TEST(LargestLogit, AttentionTellsWhoAsksInTraining) {
  const golden::Case c("lora_qwen2");
  const auto model = load_model(c.dir / "checkpoint", {.dtype = at::kFloat, .device = golden::device()});
  const golden::Packed batch = golden::unpad(c, "right");
  Step step = packed_step(batch.lengths, golden::device());
  const auto logit = std::make_shared<LargestLogit>();
  set_training(step, {.logits = logit});
  model->forward(golden::ids_tensor(batch.flat, golden::device()), step);
  EXPECT_GT(logit->take(), 0);
  EXPECT_EQ(logit->take(), 0);
}

}  // namespace
}  // namespace apus
