// SPDX-License-Identifier: Apache-2.0
#include "train/forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numeric>

#include "base/random.h"
#include "nn/residual_share.h"
#include "nn/training_step.h"
#include "parallel/recompute.h"
#include "tensor/noise.h"
#include "train/shared_prefix.h"

namespace apus {
namespace {

// The magnitude depends on the length of the sequence that a token belongs to. Ranks that share out the tokens between
// matrices draw it for all of them, and each adds that of its own.
at::Tensor neftune_noise(const at::Tensor& x_tD, const Step& s, double alpha) {
  const int64_t tokens = std::accumulate(s.length_q.begin(), s.length_q.end(), int64_t{0}), width = x_tD.size(1);
  const at::Tensor noise = uniform_noise({tokens, width}, -1, 1,
                                         mix(training_of(s).dropout_seed, stream_named("neftune"), 0), x_tD.device());
  at::Tensor size = at::empty({tokens, 1}, at::TensorOptions().dtype(at::kFloat));
  float* p = size.data_ptr<float>();
  for (const int32_t length : s.length_q)
    for (int32_t i = 0; i < length; ++i)
      *p++ = static_cast<float>(alpha / std::sqrt(static_cast<double>(length) * static_cast<double>(width)));
  return own_tokens((noise * size.to(x_tD.device())).to(x_tD.scalar_type()), s);
}

// Shows each part's output to who watches, and adds noise to the embeddings.
class WatchedRunner final : public LayerRunner {
 public:
  WatchedRunner(const Forward& forward, LayerRunner& inner) : forward_(forward), inner_(inner) {}
  LayerRange layers(const Model& model) const override { return inner_.layers(model); }
  void prepare(const Inputs& in, Step& s) override { inner_.prepare(in, s); }
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override {
    const at::Tensor x_TD = seen(Forward::kEmbedding, inner_.embed(model, in, s));
    const bool noise = forward_.neftune_alpha > 0 && training_of(s).dropout_seed != 0 &&
                       inner_.layers(model).begin == 0;  // a later stage of a pipeline has none of its own
    return noise ? x_TD + neftune_noise(x_TD, s, forward_.neftune_alpha) : x_TD;
  }
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    const at::Tensor y_TD = inner_.layer(model, i, x_TD, s);
    return forward_.watch ? seen(str("layer ", i), y_TD) : y_TD;
  }
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override {
    return seen("the final norm", inner_.final_norm(model, x_TD));
  }

 private:
  at::Tensor seen(const std::string& part, const at::Tensor& x) const {
    if (forward_.watch) forward_.watch(part, x);
    return x;
  }
  const Forward& forward_;
  LayerRunner& inner_;
};

}  // namespace

std::optional<Memo::Kinds> Forward::remembered(int64_t layer) const {
  const bool again = layer < recomputed_layers;
  if (!selective) return again ? std::optional(Memo::kNothing) : std::nullopt;
  return Memo::Kinds{.product = true,
                     .feed_forward = !(again && selective->feed_forward),
                     .attention = !(again && selective->attention)};
}

at::Tensor Forward::hidden(const Model& model, Batch& batch) const {
  require(!batch.shared || neftune_alpha == 0, Fault::Usage,
          "--share_prefix true reads a prompt once, and --neftune_noise_alpha gives each answer's a noise of its own: "
          "give one of them");
  return hidden_states(batch, batch.step, [&](const Inputs& in, Step& s) { return hidden(model, in, s); });
}

at::Tensor Forward::hidden(const Model& model, const Inputs& in, Step& s) const {
  s.position = model.positions(in, s);
  if (logits && at::GradMode::is_enabled()) {
    TrainingStep training = training_of(s);
    training.logits = logits;
    set_training(s, std::move(training));
  }
  RecomputeRunner recompute([this](int64_t layer) { return remembered(layer); }, model.runner());
  WatchedRunner watched(*this, recompute);
  return run_layers(model, in, s, watched);
}

}  // namespace apus
