// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <memory>
#include <utility>

#include "models/layer_runner.h"
#include "models/model.h"
#include "nn/moe.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

class Pipeline::Runner final : public LayerRunner {
 public:
  Runner(Pipeline& pipeline, std::shared_ptr<LayerRunner> inner) : p_(pipeline), inner_(std::move(inner)) {}

  LayerRange layers(const Model&) const override { return {p_.layers().begin, p_.layers().begin + p_.layers().size}; }
  void prepare(const Inputs& in, Step& s) override {
    inner_->prepare(in, s);
    router_ = training_of(s).router;
  }
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override {
    if (p_.first()) return inner_->embed(model, in, s);
    const TrainingStep& training = training_of(s);
    const auto& share = training.residual ? training.residual : training.tokens;
    return p_.receive(share ? share->own().size : in.id_T.size(0), router_.get());
  }
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    return inner_->layer(model, i, x_TD, s);
  }
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override {
    if (p_.last()) return inner_->final_norm(model, x_TD);
    p_.send(x_TD, router_.get());
    return x_TD;
  }

 private:
  Pipeline& p_;
  std::shared_ptr<LayerRunner> inner_;
  std::shared_ptr<RouterLoss> router_;  // of the pass that is made
};

void Pipeline::run(Model& model) { model.run_by(std::make_shared<Runner>(*this, model.runner())); }

// Few are under way: the next stage has taken the oldest long before.
void Pipeline::start(Comm& way, const at::Tensor& t, int to) {
  const at::Tensor data = t.detach().contiguous();
  under_way_.push_back({way.send(data, to), data});
  for (const auto most = static_cast<size_t>(4 * stages() * pieces()); under_way_.size() > most; under_way_.pop_front())
    under_way_.front().work->wait();
}

void Pipeline::settle() {
  for (; !under_way_.empty(); under_way_.pop_front()) under_way_.front().work->wait();
}

// The sums of a balance loss are one message: choices, probabilities, rows.
void Pipeline::send_sums(Comm& way, const RouterLoss& router, int to) {
  const auto wide = spec_.activations.dtype(at::kFloat);
  const at::Tensor rows = at::full({1}, static_cast<double>(router.rows), wide);
  start(way,
        router.rows == 0 ? at::zeros({2 * spec_.experts + 1}, wide)
                         : at::cat({router.choices_E, router.probability_E, rows}),
        to);
}

void Pipeline::receive_sums(Comm& way, RouterLoss& router, int from) {
  const int64_t experts = spec_.experts;
  const at::Tensor sums = at::empty({2 * experts + 1}, spec_.activations.dtype(at::kFloat));
  way.recv(sums, from)->wait();
  router.rows = std::llround(sums[2 * experts].item<double>());
  router.choices_E = sums.narrow(0, 0, experts), router.probability_E = sums.narrow(0, experts, experts);
}

at::Tensor Pipeline::receive(int64_t tokens, RouterLoss* router) {
  const at::Tensor x_TD = at::empty({tokens, spec_.width}, spec_.activations);
  Comm& way = down_from_before();
  way.recv(x_TD, before())->wait();
  if (router) receive_sums(way, *router, before());
  if (at::GradMode::is_enabled() && spec_.trains_before[number()]) input_ = x_TD.requires_grad_();
  return x_TD;
}

void Pipeline::send(const at::Tensor& output, const RouterLoss* router) {
  Comm& way = down_to_behind();
  start(way, output, behind());
  if (router) send_sums(way, *router, behind());
}

at::Tensor Pipeline::gradient_of(const at::Tensor& output, RouterLoss* router) {
  if (!spec_.trains_before[number() + 1]) return {};
  const at::Tensor gradient = at::empty(output.sizes(), spec_.activations);
  Comm& way = up_from_behind();
  way.recv(gradient, behind())->wait();
  if (router) receive_sums(way, *router, behind());
  return gradient;
}

void Pipeline::send_gradient_of(const at::Tensor& input, const RouterLoss* router) {
  if (first() || !spec_.trains_before[number()]) return;
  Comm& way = up_to_before();
  start(way, input.grad().defined() ? input.grad() : at::zeros_like(input), before());
  if (router) send_sums(way, *router, before());
}

}  // namespace apus
