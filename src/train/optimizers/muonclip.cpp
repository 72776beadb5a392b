// SPDX-License-Identifier: Apache-2.0
// MuonClip, as ms-swift has it: Muon without Nesterov for matrices; where attention's logits may have become larger
// than tau, the matrices of queries and keys are made smaller together, so that their products are tau again. All
// else, embeddings and the head too, follows its plain momentum.
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "train/optim_arguments.h"
#include "train/optimizer.h"
#include "train/orthogonal.h"

namespace apus {
namespace {

bool is_of_queries_or_keys(const std::string& name) {
  for (const char* part : {"q_proj", "k_proj", ".wq", ".wk"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

class MuonClip final : public Optimizer {
 public:
  MuonClip(const OptimizerSpec& spec, std::vector<ParamGroup> groups)
      : Optimizer("muonclip", std::move(groups), spec.rounding) {
    OptimArguments a("muonclip", spec.arguments);
    momentum_ = a.number("momentum", 0.95), nesterov_ = a.flag("nesterov", false);
    iterations_ = static_cast<int64_t>(a.number("newton_schulz_steps", 5));
    tau_ = a.number("qk_clip_tau", a.number("qk_clip_threshold", 100));  // its examples say threshold
    clips_ = a.flag("qk_clip_enabled", true), size_ = a.number("rms_scale_factor", 0.2);
    a.done();
    require(tau_ > 0, Fault::Usage, "--optim_args qk_clip_tau=", tau_, ": what logits may reach is above 0");
    require(rounding_ != Rounding::Stochastic, Fault::Usage,
            "--optimizer muonclip keeps f32 master weights; stochastic rounding is for the others");
    bool some = this->groups().empty();
    for (const ParamGroup& group : this->groups())
      for (const NamedParam& param : group.params) some |= is_of_queries_or_keys(param.name);
    if (clips_ && !some) log_warning("--optimizer muonclip: no q_proj or k_proj is trained, so nothing is clipped");
  }
  bool watches_logits() const override { return clips_; }
  void hear_largest_logit(double largest) override { gamma_ = largest > tau_ ? std::sqrt(tau_ / largest) : 1; }

 private:
  void init(Slot& slot) const override { slot.state["momentum_buffer"] = f32_zeros(slot); }
  void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const override {
    const NamedParam& named = *slot.param;
    const bool apart = named.name.find("embed") != std::string::npos || named.name.find("lm_head") != std::string::npos;
    const bool matrix = param.dim() == 2 && !apart;
    const double gamma = matrix && is_of_queries_or_keys(named.name) ? gamma_ : 1;
    change_in_f32(slot, param, u, [&](at::Tensor& p) {
      const at::Tensor g = grad.to(at::kFloat) * u.grad_scale;
      at::Tensor& buffer = slot.state.at("momentum_buffer").mul_(momentum_).add_(g);
      at::Tensor change = buffer;
      if (matrix)
        change =
            orthogonal(buffer, iterations_) * (size_ * std::sqrt(static_cast<double>(std::max(p.size(0), p.size(1)))));
      if (nesterov_) change = g.add(change, momentum_);
      p.mul_((1 - u.lr * u.weight_decay) * gamma).add_(change, -u.lr * gamma);
    });
  }
  double momentum_, tau_, size_, gamma_ = 1;
  bool nesterov_, clips_;
  int64_t iterations_;
};

const RegisterOptimizer<MuonClip> muonclip("muonclip");

}  // namespace
}  // namespace apus
