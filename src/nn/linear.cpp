// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/files.h"
#include "nn/training_step.h"
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

at::Tensor Adaptable::with_adapters(const at::Tensor& x, at::Tensor y_TO, const at::Tensor& weight, const Step& s,
                                    Memo* memo) const {
  if (adapters_.empty()) return y_TO;
  if (!s.routed) {
    for (const auto& [name, delta] : adapters_) y_TO = delta->apply(x, y_TO, weight, s, memo);
    return y_TO;
  }
  for (const auto& group : s.adapters) {
    const auto it = adapters_.find(group.name);
    if (it == adapters_.end()) continue;
    if (group.rows.size(0) == x.size(0)) return it->second->apply(x, y_TO, weight, s, memo);  // all of them
    const at::Tensor y =
        it->second->apply(at::index_select(x, 0, group.rows), at::index_select(y_TO, 0, group.rows), weight, s, memo);
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

// Of a stack that ranks share out it is not there while this one holds its part alone.
Param& Linear::weight() {
  const bool whole = stacked_ && stacked_->data.defined() && stacked_->data.sizes() == at::IntArrayRef(stacked_->full);
  if (!stacked_ || whole) matrix();
  return weight_;
}

void Linear::put_weight(const at::Tensor& value) {
  if (!stacked_) return Adaptable::put_weight(value);
  if (stacked_->mapped) stacked_->data = stacked_->data.clone(), stacked_->mapped = false;
  matrix().copy_(value);
}

namespace {
// A tensor to ask for its shape and type, without values.
at::Tensor shape_alone(const at::Tensor& like) { return at::zeros({1}, like.options()).expand(like.sizes()); }
}  // namespace

// Adapters that only add have changed y itself, which is remembered with them. Others look at y as it was before them:
// that is remembered, and they run again.
at::Tensor Linear::remembering(const at::Tensor& x_TI, const Step& s, Memo& memo) const {
  const bool only_add =
      std::all_of(adapters_.begin(), adapters_.end(), [](const auto& a) { return a.second->only_adds(); });
  Memo* const inner = only_add ? &memo : nullptr;
  const at::Tensor bias = bias_ ? bias_->data : at::Tensor();
  if (memo.again()) {
    const at::Tensor known_TO = std::move(memo.recall(*this).front());
    return with_adapters(x_TI, ops::linear(x_TI, matrix(), bias, known_TO), weight_.data, s, inner);
  }
  const at::Tensor y_TO = ops::linear(x_TI, matrix(), bias);
  // One of several adapters may add to y in place before another looks at it.
  const at::Tensor before_TO = only_add ? at::Tensor() : adapters_.size() > 1 ? y_TO.clone() : y_TO;
  const at::Tensor changed_TO = with_adapters(x_TI, y_TO, weight_.data, s, inner);
  const bool values = !only_add || result_ != ResultKind::OnlyAdded;
  memo.remember(*this, {!only_add ? before_TO : values ? changed_TO : shape_alone(changed_TO)});
  return changed_TO;
}

at::Tensor Linear::operator()(const at::Tensor& x_TI, const Step& s) const {
  if (Memo* memo = memo_of(s, result_)) return remembering(x_TI, s, *memo);
  const at::Tensor bias = bias_ ? bias_->data : at::Tensor();
  const at::Tensor y_TO =
      packed_.defined() ? ops::packed_linear(x_TI, packed_, bias, spec_.out) : ops::linear(x_TI, matrix(), bias);
  return with_adapters(x_TI, y_TO, weight_.data, s);
}

ops::HeadFactors Linear::factors(const at::Tensor& x_TI, const Step& s) const {
  std::vector<at::Tensor> x, w;
  const auto add = [&](std::pair<at::Tensor, at::Tensor> more) {
    x.push_back(std::move(more.first)), w.push_back(std::move(more.second));
  };
  if (!s.routed)
    for (const auto& [name, delta] : adapters_) add(delta->columns(x_TI, s));
  for (const auto& group : s.adapters) {
    const auto it = adapters_.find(group.name);
    if (!s.routed || it == adapters_.end() || group.rows.size(0) == 0) continue;
    if (group.rows.size(0) == x_TI.size(0)) {
      add(it->second->columns(x_TI, s));
      continue;
    }
    // The adapter's columns are zero in the rows of others.
    auto [some, weight] = it->second->columns(at::index_select(x_TI, 0, group.rows), s);
    add({at::zeros({x_TI.size(0), some.size(1)}, some.options()).index_copy(0, group.rows, some), weight});
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
  if (packed_.defined() || grouped_ || stacked_ || stays_plain_) return;
  packed_ = ops::pack_linear(weight_.data, weight_.mapped);
  if (packed_.defined() && !packed_.is_alias_of(weight_.data)) release_plain();
}

}  // namespace apus
