// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/files.h"
#include "nn/kept.h"
#include "ops/ops.h"

namespace apus {

namespace {
std::vector<Cut> weight_cuts(const Linear::Spec& spec) {
  if (spec.split == Split::None) return {};
  Cut cut = spec.cut;
  cut.dim = spec.split == Split::Out ? 0 : 1;
  return {cut};
}
}  // namespace

void Adaptable::attach(const std::string& adapter, std::unique_ptr<Delta> delta) {
  require(!adapters_.count(adapter), Fault::Usage, "an adapter named '", adapter, "' is already attached");
  adapters_[adapter] = &adopt(adapter, std::move(delta));
}

void Adaptable::detach(const std::string& adapter) {
  if (adapters_.erase(adapter)) drop_child(adapter);
}

void Adaptable::put_weight(const at::Tensor& value) { weight().data = value, weight().mapped = false; }

at::Tensor Adaptable::with_adapters(const at::Tensor& x, at::Tensor y_TO, const at::Tensor& weight,
                                    const Step& s) const {
  if (adapters_.empty()) return y_TO;
  if (!s.routed) {
    for (const auto& [name, delta] : adapters_) y_TO = delta->apply(x, y_TO, weight, s);
    return y_TO;
  }
  for (const auto& group : s.adapters) {
    const auto it = adapters_.find(group.name);
    if (it == adapters_.end()) continue;
    if (group.rows.size(0) == x.size(0)) return it->second->apply(x, y_TO, weight, s);  // all of them
    const at::Tensor y =
        it->second->apply(at::index_select(x, 0, group.rows), at::index_select(y_TO, 0, group.rows), weight, s);
    y_TO = at::index_copy(y_TO, 0, group.rows, y);
  }
  return y_TO;
}

Linear::Linear(Spec spec) : spec_(spec), weight_(param("weight", {spec.out, spec.in}, weight_cuts(spec))) {
  if (spec.bias) bias_ = &param("bias", {spec.out}, spec.split == Split::Out ? weight_cuts(spec) : std::vector<Cut>{});
}

Linear::Linear(Spec spec, Param& stacked, int64_t piece)
    : spec_(spec), stacked_(&stacked), piece_(piece), view_(std::make_unique<Param>()), weight_(*view_) {
  view_->full = {spec.out, spec.in};
}

const at::Tensor& Linear::matrix() const {
  if (stacked_) weight_.data = stacked_->data.detach().view({-1, spec_.out, spec_.in}).select(0, piece_);
  return weight_.data;
}

Param& Linear::weight() {
  if (!stacked_ || stacked_->data.defined()) matrix();
  return weight_;
}

void Linear::put_weight(const at::Tensor& value) {
  if (!stacked_) return Adaptable::put_weight(value);
  if (stacked_->mapped) stacked_->data = stacked_->data.clone(), stacked_->mapped = false;
  matrix().copy_(value);
}

// Kept is y with its adapters where these only add to it, otherwise y before them.
at::Tensor Linear::keeping(const at::Tensor& x_TI, const Step& s, Kept& kept, bool unread) const {
  const bool whole =
      std::all_of(adapters_.begin(), adapters_.end(), [](const auto& a) { return a.second->only_adds(); });
  Step plain;
  if (!whole) plain = s, plain.kept = nullptr;
  const Step& inner = whole ? s : plain;
  const at::Tensor bias = bias_ ? bias_->data : at::Tensor();
  unread = unread && whole;
  if (kept.again()) {
    at::Tensor y_TO = kept.take();
    if (unread) y_TO = at::zeros({1}, x_TI.options()).expand({x_TI.size(0), spec_.out});
    return with_adapters(x_TI, ops::linear(x_TI, matrix(), bias, y_TO), weight_.data, inner);
  }
  const size_t place = kept.reserve();
  const at::Tensor y_TO = ops::linear(x_TI, matrix(), bias);
  if (!whole) kept.put(place, adapters_.size() > 1 ? y_TO.clone() : y_TO);  // one of them may add to y in place
  const at::Tensor changed = with_adapters(x_TI, y_TO, weight_.data, inner);
  if (whole && !unread) kept.put(place, changed);
  return changed;
}

at::Tensor Linear::operator()(const at::Tensor& x_TI, const Step& s, bool unread) const {
  if (Kept* kept = Kept::of(s)) return keeping(x_TI, s, *kept, unread);
  const at::Tensor bias = bias_ ? bias_->data : at::Tensor();
  const at::Tensor y_TO =
      packed_.defined() ? ops::packed_linear(x_TI, packed_, bias, spec_.out) : ops::linear(x_TI, matrix(), bias);
  return with_adapters(x_TI, y_TO, weight_.data, s);
}

ops::HeadFactors Linear::factors(const at::Tensor& x_TI, const Step& s) const {
  std::vector<at::Tensor> x, w;
  for (const auto& [name, delta] : adapters_) {
    auto [x_more, w_more] = delta->columns(x_TI, s);
    x.push_back(std::move(x_more)), w.push_back(std::move(w_more));
  }
  if (x.empty()) return {x_TI, matrix()};
  return {x_TI, matrix(), x.size() == 1 ? x[0] : at::cat(x, 1), w.size() == 1 ? w[0] : at::cat(w, 1)};
}

void Linear::release_plain() {
  if (weight_.mapped)
    forget_mapped(weight_.data.data_ptr(), static_cast<int64_t>(weight_.data.nbytes()));
  else if (weight_.tied.empty() &&
           std::none_of(adapters_.begin(), adapters_.end(), [](const auto& a) { return a.second->looks_at_weight(); }))
    weight_.data = at::Tensor();  // a converted copy: the packed form replaces it
}

void Linear::prepare_inference() {
  if (packed_.defined() || grouped_ || stacked_) return;
  packed_ = ops::pack_linear(weight_.data, weight_.mapped);
  if (packed_.defined() && !packed_.is_alias_of(weight_.data)) release_plain();
}

}  // namespace apus
