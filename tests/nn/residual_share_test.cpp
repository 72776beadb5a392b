// SPDX-License-Identifier: Apache-2.0
// A block whose ranks share out matrices and the tokens between them gives what one rank gives, and the gradients; what
// they gather is not kept, and what was summed is not summed again. On a mesh of threads.
#include "nn/residual_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <mutex>

#include "nn/moe.h"
#include "nn/norm.h"
#include "nn/parts.h"
#include "nn/run_again.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "tensor/noise.h"
#include "tests/fake_mesh.h"

namespace apus {
namespace {

constexpr int64_t kBlockWidth = 12;
using BlockTensors = std::map<std::string, at::Tensor>;

enum class BlockKind { Dense, Mixture, WholeExperts };

std::unique_ptr<FeedForward> block_feed_forward(BlockKind kind) {
  if (kind == BlockKind::Dense) return std::make_unique<Mlp>(kBlockWidth, 10, Mlp::Spec{.down_bias = true});
  MixtureNames names;
  names.shared_is_gated = true;
  if (kind == BlockKind::WholeExperts)
    names.stacked_gate_up = "experts.gate_up_proj", names.stacked_down = "experts.down_proj";
  return std::make_unique<MoeMlp>(MoeMlp::Spec{.hidden = kBlockWidth,
                                               .ffn = 10,
                                               .experts = 5,
                                               .per_token = 2,
                                               .shared_ffn = 8,
                                               .router = {.normalise = true},
                                               .names = names});
}

// x + f(norm(x)), as in a layer.
class Block : public Module {
 public:
  explicit Block(BlockKind kind)
      : norm_(child<Norm>("norm", kBlockWidth, NormSpec{})), feed_forward_(adopt("mlp", block_feed_forward(kind))) {}
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const {
    return x_TD + through_all_tokens(norm_(x_TD), s, [&](const at::Tensor& all) { return feed_forward_(all, s); });
  }

 private:
  Norm& norm_;
  FeedForward& feed_forward_;
};

BlockTensors block_weights(Module& module) {
  BlockTensors all;
  uint64_t seed = 0;
  module.visit([&](const std::string& name, Param& p) { all[name] = normal_noise(p.full, 0, 0.4, ++seed); });
  return all;
}

void fill_block(Module& module, const BlockTensors& whole) {
  module.visit([&](const std::string& name, Param& p) {
    p.data = own_part(whole.at(name), p).clone().set_requires_grad(p.trainable);
  });
}

void add_block_gradients(Module& module, BlockTensors& sums) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  module.visit([&](const std::string& name, Param& p) {
    if (p.data.grad().defined()) own_part(sums.at(name), p).add_(p.data.grad());
  });
}

Step residual_step(MeshView& mesh, int64_t tokens) {
  Step s;
  TrainingStep training;
  training.residual = std::make_shared<const TokenShare>(
      mesh.comm(Axis::Tp), std::vector<int32_t>{static_cast<int32_t>(tokens)}, 1, at::kCPU);
  set_training(s, std::move(training));
  return s;
}

struct ResidualCase {
  const char* name;
  BlockKind kind;
  int ranks;
  int64_t tokens;
  std::optional<Memo::Kinds> again = {};  // the block runs again in the backward pass
};

class ResidualShare : public ::testing::TestWithParam<ResidualCase> {};

TEST_P(ResidualShare, GivesWhatOneRankGives) {
  const ResidualCase& c = GetParam();
  Block one(c.kind);
  const BlockTensors whole = block_weights(one);
  BlockTensors grads, of_ranks;
  for (const auto& [name, w] : whole) grads[name] = at::zeros_like(w), of_ranks[name] = at::zeros_like(w);
  const at::Tensor x_TD = normal_noise({c.tokens, kBlockWidth}, 0, 1, 50), dy_TD = normal_noise(x_TD.sizes(), 0, 1, 51);
  const at::Tensor own_x = x_TD.clone().requires_grad_();
  fill_block(one, whole);
  const at::Tensor y_TD = one(own_x, Step{});
  y_TD.backward(dy_TD), add_block_gradients(one, grads);

  std::mutex mutex;
  at::Tensor dx_of_ranks = at::zeros_like(x_TD);
  test::on_fake_ranks({.tp = c.ranks}, c.ranks, [&](MeshView& mesh) {
    Block mine(c.kind);
    mine.place(mesh), fill_block(mine, whole);
    const Step s = residual_step(mesh, c.tokens);
    const TokenShare& share = *training_of(s).residual;
    const at::Tensor x = x_TD.clone().requires_grad_(), x_tD = share.narrowed(x);
    const at::Tensor y_tD =
        c.again ? run_again(x_tD, s, *c.again, [&](const at::Tensor& in, const Step& own) { return mine(in, own); })
                : mine(x_tD, s);
    EXPECT_EQ(y_tD.size(0), share.own().size);
    const at::Tensor all_TD = share.gathered(y_tD);
    EXPECT_TRUE(at::allclose(all_TD, y_TD, 1e-5, 1e-5)) << (all_TD - y_TD).abs().max();
    all_TD.backward(dy_TD), add_block_gradients(mine, of_ranks);
    const std::lock_guard lock(mutex);
    dx_of_ranks.add_(x.grad());
  });
  // Each of the ranks adds what its own copy of the loss does.
  EXPECT_TRUE(at::allclose(dx_of_ranks, own_x.grad() * c.ranks, 1e-4, 1e-5));
  for (const auto& [name, grad] : grads)
    EXPECT_TRUE(at::allclose(of_ranks[name], grad * c.ranks, 1e-4, 1e-4))
        << name << " " << (of_ranks[name] - grad * c.ranks).abs().max();
}

INSTANTIATE_TEST_SUITE_P(, ResidualShare,
                         ::testing::Values(ResidualCase{"even", BlockKind::Dense, 2, 12},
                                           ResidualCase{"uneven", BlockKind::Dense, 3, 13},
                                           ResidualCase{"mixture", BlockKind::Mixture, 2, 11},
                                           ResidualCase{"experts_that_are_whole", BlockKind::WholeExperts, 2, 11},
                                           ResidualCase{"again", BlockKind::Dense, 2, 9, Memo::kNothing},
                                           ResidualCase{"again_with_products", BlockKind::Dense, 3, 13, Memo::Kinds{}},
                                           ResidualCase{"mixture_again", BlockKind::Mixture, 3, 12, Memo::Kinds{}}),
                         [](const auto& info) { return info.param.name; });

// What a part has gathered has no memory between its forward and its backward pass, unless that follows at once.
TEST(ResidualShareMemory, GoesAndComesBack) {
  constexpr int64_t kTokens = 7;
  test::on_fake_ranks({.tp = 2}, 2, [](MeshView& mesh) {
    Step s = residual_step(mesh, kTokens);
    const TokenShare& share = *training_of(s).residual;
    const at::Tensor x_TD = normal_noise({kTokens, kBlockWidth}, 0, 1, 3);
    const at::Tensor weight = at::ones({kBlockWidth}).requires_grad_();
    at::Tensor seen_TD;
    const auto part = [&](const at::Tensor& all_TD) {
      seen_TD = all_TD.detach();
      return own_sum(all_TD * weight, mesh.comm(Axis::Tp), s);
    };
    const at::Tensor y_tD = through_all_tokens(share.narrowed(x_TD), s, part);
    EXPECT_EQ(seen_TD.storage().nbytes(), 0u);
    y_tD.sum().backward();
    EXPECT_TRUE(at::equal(seen_TD, x_TD));
    EXPECT_TRUE(at::allclose(weight.grad(), x_TD.sum(0)));
    Memo memo(Memo::kNothing);
    memo.begin_second_run();
    TrainingStep training = training_of(s);
    training.memo = &memo;
    set_training(s, std::move(training));
    through_all_tokens(share.narrowed(x_TD), s, part);
    EXPECT_TRUE(at::equal(seen_TD, x_TD));
  });
}

// Other weights by then: neither the product nor the sum is made again.
TEST(ResidualShareMemory, HoldsSumsForASecondRun) {
  constexpr int64_t kTokens = 7;
  test::on_fake_ranks({.tp = 2}, 2, [](MeshView& mesh) {
    for (const bool shared : {false, true}) {
      Linear down({.in = 8, .out = kBlockWidth, .bias = true, .split = Split::In});
      down.place(mesh), fill_block(down, block_weights(down));
      Step s = shared ? residual_step(mesh, kTokens) : Step();
      Memo memo({});
      TrainingStep training = training_of(s);
      training.memo = &memo;
      set_training(s, std::move(training));
      const at::Tensor x_TI = normal_noise({kTokens, 4}, 0, 1, 4);
      const at::Tensor y = [&] {
        const at::NoGradGuard none;
        return down(x_TI, s);
      }();
      EXPECT_EQ(y.size(0), shared ? training_of(s).residual->own().size : kTokens);
      memo.begin_second_run();
      down.weight().data = normal_noise({kBlockWidth, 4}, 0, 1, 5).requires_grad_();
      const at::Tensor again = down(x_TI, s);
      EXPECT_TRUE(at::equal(again, y));
      again.sum().backward();
      EXPECT_GT(down.weight().data.grad().abs().max().item<double>(), 0);
    }
  });
}

}  // namespace
}  // namespace apus
