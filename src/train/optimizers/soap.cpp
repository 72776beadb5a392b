// SPDX-License-Identifier: Apache-2.0
// SOAP: AdamW in the directions in which a matrix' gradients vary (the eigenvectors of Shampoo's two statistics, G G'
// and G' G). The directions follow the statistics by one power iteration every precondition_frequency updates; the
// first update only looks. Embeddings, heads, vectors and stacked experts take AdamW as it is.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "train/gradient_space.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"
#include "train/options/soap_sides.h"

namespace apus {
namespace {

// The eigenvectors of a statistic as columns, the largest first. f64: small ones of a matrix of low rank are noise
// else. On the host, once: not all devices have that.
at::Tensor eigenvectors(const at::Tensor& statistic) {
  const auto [values, vectors] = at::linalg_eigh(statistic.to(at::kCPU, at::kDouble));
  return vectors.flip({1}).to(statistic.device(), at::kFloat);
}

class Soap final : public Optimizer {
 public:
  Soap(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("soap", std::move(groups), spec.rounding), decay_{spec.beta1, spec.beta2, spec.eps} {
    OptimArguments a("soap", spec.arguments);
    frequency_ = static_cast<int64_t>(a.number("precondition_frequency", 10));
    most_ = static_cast<int64_t>(a.number(kSoapLargest, kSoapLargestSide));
    statistics_ = a.number("shampoo_beta", decay_.beta2);
    a.done();
    require(frequency_ > 0 && most_ >= 0 && statistics_ >= 0 && statistics_ < 1, Fault::Usage,
            "--optim soap: ", "precondition_frequency must be above 0, ", kSoapLargest,
            " 0 or more, shampoo_beta from 0 to below 1");
  }

 private:
  static constexpr const char* kSides[] = {"left", "right"};
  static std::string statistic(int side) { return str(kSides[side], "_statistic"); }
  static std::string basis(int side) { return str(kSides[side], "_basis"); }

  void init(Slot& slot) const override {
    const at::Tensor& p = slot.param->tensor;
    begin_moments(slot, p.sizes(), false);
    if (!is_layer_matrix(*slot.param)) return;
    for (int side = 0; side < 2; ++side)  // 0: this side is not turned
      for (const std::string& name : {statistic(side), basis(side)}) {
        const int64_t n = p.size(side) > most_ ? 0 : p.size(side);
        slot.state[name] = at::zeros({n, n}, p.options().requires_grad(false).dtype(at::kFloat));
      }
  }

  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    if (!is_layer_matrix(*slot.param)) return adamw(slot, param, grad, u, decay_);
    const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
    if (u.step == 1) return look(slot, g, u.step);
    const auto steps = static_cast<double>(u.step - 1);
    const double size = u.lr * std::sqrt(1 - std::pow(decay_.beta2, steps)) / (1 - std::pow(decay_.beta1, steps));
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor& mean = slot.state.at("exp_avg").lerp_(g, 1 - decay_.beta1);
      const at::Tensor& square = slot.state.at("exp_avg_sq").lerp_(into(slot, g).square_(), 1 - decay_.beta2);
      p.add_(back(slot, into(slot, mean).div_(square.sqrt().add_(decay_.eps))), -size);
      p.mul_(1 - u.lr * u.weight_decay);
    });
    look(slot, g, u.step);
  }

  // What this gradient adds to the statistics; new directions where they are due.
  void look(Slot& slot, const at::Tensor& g, int64_t step) const {
    for (int side = 0; side < 2; ++side) {
      at::Tensor &seen = slot.state.at(statistic(side)), &turn = slot.state.at(basis(side));
      if (seen.numel() == 0) continue;
      seen.lerp_(side == 0 ? g.mm(g.t()) : g.t().mm(g), 1 - statistics_);
      if (step == 1)
        turn.copy_(eigenvectors(seen));
      else if ((step - 1) % frequency_ == 0)
        follow(slot, side);
    }
  }

  // One power iteration and its columns made orthogonal, by the size of what they see; the squares go with them.
  void follow(Slot& slot, int side) const {
    at::Tensor& turn = slot.state.at(basis(side));
    const at::Tensor seen = slot.state.at(statistic(side)).mm(turn);
    const at::Tensor order = (turn * seen).sum(0).argsort(0, /*descending=*/true);
    at::Tensor& square = slot.state.at("exp_avg_sq");
    square.copy_(square.index_select(side, order));
    turn.copy_(std::get<0>(at::linalg_qr(seen.index_select(1, order))));
  }

  static at::Tensor into(const Slot& slot, const at::Tensor& x) {
    const at::Tensor &left = slot.state.at(basis(0)), &right = slot.state.at(basis(1));
    const at::Tensor half = left.numel() ? left.t().mm(x) : x;
    return right.numel() ? half.mm(right) : half.clone();
  }
  static at::Tensor back(const Slot& slot, const at::Tensor& x) {
    const at::Tensor &left = slot.state.at(basis(0)), &right = slot.state.at(basis(1));
    const at::Tensor half = left.numel() ? left.mm(x) : x;
    return right.numel() ? half.mm(right.t()) : half;
  }

  Decay decay_;
  int64_t frequency_, most_;
  double statistics_;
};

const RegisterOptimizer<Soap> soap("soap");

}  // namespace
}  // namespace apus
