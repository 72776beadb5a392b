// SPDX-License-Identifier: Apache-2.0
#include "parallel/recompute.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/moe.h"

namespace apus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// While a layer runs for the second time, its tokens must not be counted twice in the router statistics.
class Replaying {
 public:
  explicit Replaying(const Step& s) : router_(s.router) {
    if (router_) router_->recording = false;
  }
  ~Replaying() {
    if (router_) router_->recording = true;
  }

 private:
  RouterLoss* router_;
};

struct LayerAgain : torch::autograd::Function<LayerAgain> {
  // `anchor` only needs a gradient: it puts the layer on the tape when x does not
  // (frozen embeddings below trained layers).
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& anchor, int64_t model,
                            int64_t layer, int64_t step, const std::optional<KeptParts>& parts) {
    ctx->save_for_backward({x_TD});
    ctx->saved_data["model"] = model, ctx->saved_data["layer"] = layer, ctx->saved_data["step"] = step;
    at::NoGradGuard no_grad;
    Step first = *reinterpret_cast<const Step*>(step);
    Kept kept(parts.value_or(KeptParts{}));
    first.kept = parts ? &kept : nullptr;
    at::Tensor y_TD = reinterpret_cast<const Model*>(model)->layer(layer, x_TD, first);
    if (parts) {
      ctx->saved_data["attention"] = parts->attention, ctx->saved_data["feed_forward"] = parts->feed_forward;
      ctx->saved_data["kept"] = std::move(kept).values();
    }
    return y_TD.is_same(x_TD) ? y_TD.clone() : y_TD;
  }

  // The kept values leave the tape, so that each is freed as soon as the second run has done with it.
  static std::optional<Kept> kept_by(AutogradContext* ctx) {
    const auto found = ctx->saved_data.find("kept");
    if (found == ctx->saved_data.end()) return std::nullopt;
    auto values = found->second.toTensorVector();
    ctx->saved_data.erase(found);
    return Kept(
        {.attention = ctx->saved_data["attention"].toBool(), .feed_forward = ctx->saved_data["feed_forward"].toBool()},
        std::move(values));
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Step step = *reinterpret_cast<const Step*>(ctx->saved_data["step"].toInt());
    std::optional<Kept> kept = kept_by(ctx);
    step.kept = kept ? &*kept : nullptr;
    const auto& model = *reinterpret_cast<const Model*>(ctx->saved_data["model"].toInt());
    const bool wants_dx = ctx->needs_input_grad(0);
    const at::Tensor x_TD = ctx->get_saved_variables()[0].detach().requires_grad_(wants_dx);
    const Replaying replaying(step);
    at::AutoGradMode grad(true);
    const at::Tensor y_TD = model.layer(ctx->saved_data["layer"].toInt(), x_TD, step);
    if (!y_TD.requires_grad()) return variable_list(6);  // nothing trained in it or below it
    torch::autograd::backward({y_TD}, {grads[0]});
    return {
        wants_dx ? x_TD.grad() : at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recomputed_layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s,
                            const std::optional<KeptParts>& parts) {
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  return LayerAgain::apply(x_TD, anchor, reinterpret_cast<int64_t>(&model), i, reinterpret_cast<int64_t>(&s), parts);
}

}  // namespace apus
