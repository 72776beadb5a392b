// SPDX-License-Identifier: Apache-2.0
#include "models/encoder_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "nn/training_step.h"

namespace apus {

EncoderModel::EncoderModel(DecoderSpec spec) : Decoder(std::move(spec)) {
  const DecoderSpec& all = this->spec();
  const EncoderForm& form = *all.encoder;
  const int64_t hidden = all.shape.hidden;
  const auto of_backbone = [&](const std::string& name) { return all.backbone + "." + name; };
  if (form.types > 0) types_ = &child<Embedding>(of_backbone(form.types_name), form.types, hidden);
  if (all.attention.by_distance)
    distances_ = &child<Embedding>(of_backbone(form.distances_name), kDistanceClasses, all.shape.heads);
  if (all.head != Head::Scalar || form.head.dense.empty()) return;
  dense_ = &child<Linear>(form.head.dense, Linear::Spec{.in = hidden, .out = hidden, .bias = form.head.dense_bias});
  if (!form.head.norm.empty()) norm_ = &child<Norm>(form.head.norm, hidden, all.norm);
}

void EncoderModel::begin(Step& s) const {
  require(!s.cache, Fault::Bug, "an encoder is asked to read on behind what a cache holds");
  Decoder::begin(s);
  if (distances_) s.distance_BN = distances_->weight().data;
}

at::Tensor EncoderModel::with_types(at::Tensor x_TD, const Inputs& in, const Step& s) const {
  if (!types_) return x_TD;
  std::vector<int64_t> type;
  for (size_t i = 0; i < s.length_q.size(); ++i) {
    const int32_t second = in.second.empty() || !encoder()->tells_apart ? 0 : in.second[i];
    for (int32_t n = 0; n < s.length_q[i]; ++n) type.push_back(second > 0 && n >= second);
  }
  return x_TD + (*types_)(at::tensor(type, at::kLong).to(x_TD.device()), s);
}

at::Tensor EncoderModel::head(const at::Tensor& state_SD, const Step& s) const {
  at::Tensor x_SD = state_SD;
  if (dense_) x_SD = activated(encoder()->head.act, (*dense_)(x_SD, s));
  if (norm_) x_SD = (*norm_)(x_SD);
  return Decoder::head(x_SD, s);
}

}  // namespace apus
