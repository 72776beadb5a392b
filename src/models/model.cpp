// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>

#include "models/spread_runner.h"
#include "nn/training_step.h"
#include "ops/ops.h"
#include "tensor/upload.h"

namespace apus {

at::Tensor Model::positions(const Inputs& in, const Step& s) const {
  std::vector<int64_t> position;
  for (size_t i = 0; i < s.length_q.size(); ++i)
    for (int64_t n = 0; n < s.length_q[i]; ++n) position.push_back((s.begin_q.empty() ? 0 : s.begin_q[i]) + n);
  return uploaded(at::tensor(position, at::kLong), in.id_T.device());
}

at::Tensor Model::trained_head(const Step& s) const {
  const auto& table = training_of(s).table;
  return table && table->defined() ? *table : head_weight();
}

ops::HeadFactors Model::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  return {normed_TD, trained_head(s)};
}

at::Tensor Model::scores(const at::Tensor& normed_TD, const Step& s) const {
  require(head_kind() == Head::Scalar, Fault::Bug, "scores are asked of a model whose head gives logits of words");
  return head(normed_TD, s);
}

at::Tensor Model::forward(const Inputs& in, Step& s) const {
  if (devices_) {
    SpreadRunner spread(*devices_);
    return run_layers(*this, in, s, spread);
  }
  return run_layers(*this, in, s, *runner());
}

at::Tensor Model::forward(const Inputs& in, Step& s, RunnerAround& runner) const {
  std::optional<SpreadRunner> spread;
  if (devices_) spread.emplace(*devices_);
  const std::shared_ptr<LayerRunner> own = this->runner();
  runner.around(spread ? static_cast<LayerRunner&>(*spread) : *own);
  return run_layers(*this, in, s, runner);
}

std::vector<std::string> Model::end_names() const {
  std::vector<std::string> names = before_head_names();
  names.insert(names.begin(), {norm_name(), head_name()});
  if (const EncoderForm* form = encoder())
    for (const std::string& name : {form->head.dense, form->head.norm})
      if (!name.empty()) names.push_back(name);
  return names;
}

bool Model::is_of_head(const std::string& parameter) const {
  const std::vector<std::string> before = before_head_names();
  for (const std::string& name : end_names())
    if (name != norm_name() && parameter.starts_with(name + "."))
      return std::find(before.begin(), before.end(), name) == before.end();
  return false;
}

std::shared_ptr<LayerRunner> Model::runner() const { return runner_ ? runner_ : std::make_shared<LayerRunner>(); }

at::Device Model::device_of(const std::string& name) const {
  const auto within = [&](const std::string& module) {
    return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
  };
  for (int64_t i = 0; i < shape().layers; ++i)
    if (within(layer_name(i))) return devices_->layer[static_cast<size_t>(i)];
  const std::vector<std::string> before = before_head_names();
  const bool end = within(norm_name()) || std::any_of(before.begin(), before.end(), within);
  return end ? devices_->norm : within(head_name()) ? devices_->head : devices_->embed;
}

KvCache::Spec cache_spec(const ModelShape& shape, const std::vector<int64_t>& layers, int64_t blocks,
                         int64_t block_size) {
  const bool latent = shape.latent > 0;
  KvCache::Spec spec{.layers = static_cast<int64_t>(layers.size()),
                     .blocks = blocks,
                     .block_size = block_size,
                     .kv_heads = latent ? 1 : shape.kv_heads,
                     .head_dim = latent ? shape.latent : shape.head_dim + shape.position_numbers,
                     .values = !latent,
                     .state = shape.state};
  for (const int64_t layer : layers) {
    spec.keeps.push_back(shape.keeps_in(layer));
    if (shape.cached.empty()) continue;
    const ModelShape::Cached& own = shape.cached[static_cast<size_t>(layer)];
    spec.heads_of.push_back({own.heads, own.dim});
  }
  return spec;
}

KvCache::Spec cache_spec(const ModelShape& shape, int64_t blocks, int64_t block_size) {
  std::vector<int64_t> all(static_cast<size_t>(shape.layers));
  std::iota(all.begin(), all.end(), 0);
  return cache_spec(shape, all, blocks, block_size);
}

}  // namespace apus
