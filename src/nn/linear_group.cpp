// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "nn/linear.h"
#include "ops/ops.h"

namespace apus {

std::vector<at::Tensor> LinearGroup::operator()(const at::Tensor& x_TI, const Step& s) const {
  std::vector<at::Tensor> out;
  if (!packed_.defined()) {
    for (const Linear* member : members_) out.push_back((*member)(x_TI, s));
    return out;
  }
  const at::Tensor all = ops::packed_linear(x_TI, packed_, bias_, out_);
  int64_t begin = 0;
  for (size_t i = 0; i < members_.size(); begin += outs_[i++])
    out.push_back(members_[i]->with_adapters(x_TI, all.narrow(-1, begin, outs_[i]), members_[i]->weight_.data, s));
  return out;
}

void LinearGroup::prepare_inference() {
  if (packed_.defined()) return;
  std::vector<at::Tensor> weights, biases;
  bool any_bias = false, mapped = true;
  outs_.clear(), out_ = 0;
  for (Linear* member : members_) {
    weights.push_back(member->weight_.data);
    outs_.push_back(weights.back().size(0));  // this rank's
    out_ += outs_.back();
    any_bias |= member->bias_ != nullptr;
    mapped = mapped && member->weight_.mapped;
  }
  packed_ = ops::pack_linear(weights, mapped);
  if (!packed_.defined()) return;
  for (Linear* member : members_) {
    biases.push_back(member->bias_ ? member->bias_->data : at::zeros({outs_[biases.size()]}, weights[0].options()));
    member->grouped_ = true;
    member->release_plain();
  }
  if (any_bias) bias_ = at::cat(biases, 0);
}

}  // namespace apus
