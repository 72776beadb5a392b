// SPDX-License-Identifier: Apache-2.0
// LongLoRA's attention against its definition: each half of the heads by a mask of its own groups.
#include "nn/token_groups.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "nn/attention.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using golden::max_abs;

std::vector<int32_t> ends(const at::Tensor& cu) {
  const at::Tensor host = cu.to(at::kCPU);
  return {host.data_ptr<int32_t>(), host.data_ptr<int32_t>() + host.numel()};
}

TEST(TokenGroups, SecondHalfBeginsHalfAGroupEarlier) {
  const TokenGroups groups = token_groups({10, 3}, 4, at::kCPU);
  EXPECT_EQ(ends(groups.plain.cu), (std::vector<int32_t>{0, 4, 8, 10, 13}));
  EXPECT_EQ(ends(groups.shifted.cu), (std::vector<int32_t>{0, 2, 6, 10, 12, 13}));
  EXPECT_EQ(groups.plain.longest, 4);
  EXPECT_EQ(groups.shifted.longest, 4);
}

struct Plain final : AttentionBlock {
  at::Tensor operator()(const at::Tensor& x, const Step&) const override { return x; }
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Step& s) const {
    return over_packed(q, k, v, {.scale = 0.5, .mask = {.causal = true, .window = 0}}, s);
  }
};

// Of one sequence, [T, N, H]; heads share keys and values in pairs.
at::Tensor by_masks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t size) {
  const int64_t tokens = q.size(0), heads = q.size(1);
  const at::Tensor wide_k = k.repeat_interleave(heads / k.size(1), 1),
                   wide_v = v.repeat_interleave(heads / v.size(1), 1);
  at::Tensor hidden = at::zeros({heads, tokens, tokens});
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j) {
        const int64_t early = h < heads / 2 ? 0 : size / 2;
        if (j > i || (i + early) / size != (j + early) / size) hidden[h][i][j] = -1e9;
      }
  const at::Tensor scores = at::einsum("tnh,snh->nts", {q, wide_k}) * 0.5 + hidden;
  return at::einsum("nts,snh->tnh", {at::softmax(scores, 2), wide_v});
}

TEST(TokenGroups, AttentionAndItsGradientsAreThoseOfMasks) {
  const at::Device device = golden::device();
  const std::vector<int32_t> lengths = {11, 6};
  Step step = packed_step(lengths, device);
  TrainingStep training;
  training.groups = std::make_shared<const TokenGroups>(token_groups(lengths, 4, device));
  set_training(step, std::move(training));
  std::vector<at::Tensor> own, theirs;
  for (const int64_t heads : {8, 4, 4}) {
    theirs.push_back(at::randn({17, heads, 8}).requires_grad_(true));
    own.push_back(theirs.back().detach().to(device).clone().requires_grad_(true));
  }
  const at::Tensor mine = Plain().attend(own[0], own[1], own[2], step);
  std::vector<at::Tensor> rows;
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    const auto part = [&](size_t i) { return theirs[i].narrow(0, begin, length); };
    rows.push_back(by_masks(part(0), part(1), part(2), 4));
    begin += length;
  }
  const at::Tensor wanted = at::cat(rows, 0), weight = at::randn(wanted.sizes());
  EXPECT_LT(max_abs(mine.detach(), wanted.detach()), 1e-5);
  (mine * weight.to(device)).sum().backward();
  (wanted * weight).sum().backward();
  for (size_t i = 0; i < 3; ++i) EXPECT_LT(max_abs(own[i].grad(), theirs[i].grad()), 1e-4) << i;
}

TEST(TokenGroups, ASequenceWithinHalfAGroupSeesAllOfItself) {
  Step step = packed_step({4}, golden::device());
  const at::Tensor q = at::randn({4, 2, 8}).to(golden::device());
  const at::Tensor all = Plain().attend(q, q, q, step);
  TrainingStep training;
  training.groups = std::make_shared<const TokenGroups>(token_groups({4}, 8, golden::device()));
  set_training(step, std::move(training));
  EXPECT_LT(max_abs(Plain().attend(q, q, q, step), all), 1e-6);
  const at::Tensor odd = at::randn({4, 1, 8}).to(golden::device());
  test::expect_says(test::refusal(Fault::Usage, [&] { Plain().attend(odd, odd, odd, step); }), "cannot be halved");
}

}  // namespace
}  // namespace apus
