// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "base/files.h"
#include "ops/ops.h"

namespace apus {

namespace {
std::vector<Cut> weight_cuts(Split split) {
  if (split == Split::Out) return {{Axis::Tp, 0}};
  if (split == Split::In) return {{Axis::Tp, 1}};
  return {};
}
}  // namespace

Linear::Linear(Spec spec) : spec_(spec), weight_(param("weight", {spec.out, spec.in}, weight_cuts(spec.split))) {
  if (spec.bias) bias_ = &param("bias", {spec.out}, spec.split == Split::Out ? std::vector<Cut>{{Axis::Tp, 0}} : std::vector<Cut>{});
}

at::Tensor Linear::operator()(const at::Tensor& x_TI, const Step& s) const {
  const at::Tensor bias = bias_ ? bias_->data : at::Tensor();
  const at::Tensor y_TO = packed_.defined() ? ops::packed_linear(x_TI, packed_, bias, spec_.out) : ops::linear(x_TI, weight_.data, bias);
  return with_adapters(x_TI, y_TO, s);
}

at::Tensor Linear::with_adapters(const at::Tensor& x_TI, at::Tensor y_TO, const Step& s) const {
  if (adapters_.empty() || !adapters_on_) return y_TO;
  if (!s.routed) {
    for (const auto& [name, delta] : adapters_) y_TO = delta->apply(x_TI, y_TO, weight_.data, s);
    return y_TO;
  }
  for (const auto& group : s.adapters) {
    const auto it = adapters_.find(group.name);
    if (it == adapters_.end()) continue;
    if (group.rows.size(0) == x_TI.size(0)) return it->second->apply(x_TI, y_TO, weight_.data, s);  // all of them
    const at::Tensor y = it->second->apply(at::index_select(x_TI, 0, group.rows), at::index_select(y_TO, 0, group.rows), weight_.data, s);
    y_TO = at::index_copy(y_TO, 0, group.rows, y);
  }
  return y_TO;
}

void Linear::attach(const std::string& adapter, std::unique_ptr<Delta> delta) {
  require(!adapters_.count(adapter), Fault::Usage, "an adapter named '", adapter, "' is already attached");
  adapters_[adapter] = &adopt(adapter, std::move(delta));
}

void Linear::detach(const std::string& adapter) {
  if (adapters_.erase(adapter)) drop_child(adapter);
}

void Linear::release_plain() {
  if (weight_.mapped)
    forget_mapped(weight_.data.data_ptr(), static_cast<int64_t>(weight_.data.nbytes()));
  else if (weight_.tied.empty() && std::none_of(adapters_.begin(), adapters_.end(), [](const auto& a) { return a.second->looks_at_weight(); }))
    weight_.data = at::Tensor();  // a converted copy: the packed form replaces it
}

void Linear::prepare_inference() {
  if (packed_.defined() || grouped_) return;
  packed_ = ops::pack_linear(weight_.data, weight_.mapped);
  if (packed_.defined() && !packed_.is_alias_of(weight_.data)) release_plain();
}

}  // namespace apus
