// SPDX-License-Identifier: Apache-2.0
#include "train/forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/random.h"
#include "parallel/recompute.h"
#include "tensor/noise.h"

namespace apus {
namespace {

// The magnitude depends on the length of the sequence that a token belongs to.
at::Tensor neftune_noise(const at::Tensor& x_TD, const Step& s, double alpha) {
  const at::Tensor noise =
      uniform_noise(x_TD.sizes(), -1, 1, mix(s.dropout_seed, stream_named("neftune"), 0), x_TD.device());
  at::Tensor size = at::empty({x_TD.size(0), 1}, at::TensorOptions().dtype(at::kFloat));
  float* p = size.data_ptr<float>();
  for (const int32_t length : s.length_q)
    for (int32_t i = 0; i < length; ++i)
      *p++ = static_cast<float>(alpha / std::sqrt(static_cast<double>(length) * static_cast<double>(x_TD.size(1))));
  return (noise * size.to(x_TD.device())).to(x_TD.scalar_type());
}

}  // namespace

at::Tensor Forward::hidden(const Model& model, Batch& batch) const {
  Step& s = batch.step;
  const auto seen = [&](const std::string& part, const at::Tensor& x) {
    if (watch) watch(part, x);
  };
  model.begin(s);
  at::Tensor x_TD = model.embed(batch.id_T, s);
  seen("the embedding", x_TD);
  if (neftune_alpha > 0 && s.dropout_seed != 0) x_TD = x_TD + neftune_noise(x_TD, s, neftune_alpha);
  for (int64_t i = 0; i < model.shape().layers; ++i) {
    const bool again = i < recomputed_layers;
    std::optional<KeptParts> parts;
    if (selective)
      parts = {.attention = !(again && selective->attention), .feed_forward = !(again && selective->feed_forward)};
    x_TD = at::GradMode::is_enabled() && (again || parts) ? recomputed_layer(model, i, x_TD, s, parts)
                                                          : model.layer(i, x_TD, s);
    seen(str("layer ", i), x_TD);
  }
  x_TD = model.final_norm(x_TD);
  seen("the final norm", x_TD);
  return x_TD;
}

}  // namespace apus
