// SPDX-License-Identifier: Apache-2.0
#include "nn/linear.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/files.h"
#include "dist/mesh.h"
#include "nn/parts.h"
#include "nn/residual_share.h"
#include "nn/training_step.h"
#include "ops/fp8_linear.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus {

namespace {
std::vector<Cut> weight_cuts(const Linear::Spec& spec) {
  if (spec.split == Split::None) return {};
  Cut cut = spec.cut;
  cut.dim = spec.split == Split::Out ? 0 : 1;
  return {cut};
}

// The ranks that each multiply by some of its inputs, whose products are then summed; null: this one has them all.
Comm* summing_ranks(const Linear& layer) {
  MeshView* const mesh = layer.spec().split == Split::In ? layer.mesh() : nullptr;
  return mesh && mesh->size(Axis::Tp) > 1 ? &mesh->comm(Axis::Tp) : nullptr;
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
  view_->full = {spec.out, spec.in}, view_->part = {{0, spec.out}, {0, spec.in}};
}

namespace {
int64_t pieces_each(const Param& stack) { return std::ssize(stack.pieces) / stack.full[0]; }  // of an expert

// Where the piece of a stack lies in what this rank holds of it; below 0: another rank holds it.
int64_t own_piece(const Param& stack, int64_t piece) {
  if (stack.data.size(0) == stack.full[0]) return piece;
  const int64_t own = piece - stack.part[0].begin * pieces_each(stack);
  return own < stack.data.size(0) * pieces_each(stack) ? own : -1;
}

// How ranks share out a piece: it is whole where its expert is, and cut as the stack's last two dimensions are.
std::vector<Cut> piece_cuts(const Param& stack, int64_t piece, const MeshView& mesh) {
  std::vector<Cut> cuts;
  for (Cut cut : stack.cuts) {
    const int64_t dim = cut.dim - (std::ssize(stack.full) - 2);
    if (cut.axis == Axis::DpShard || mesh.size(cut.axis) == 1) continue;
    if (cut.axis == Axis::Pp) {
      cuts.push_back(cut);  // all of it, or nothing
    } else if (dim < 0) {
      int holder = 0;
      const auto end = [&] {
        const Range experts = part_of(stack.full[0], cut, holder, mesh.size(cut.axis));
        return experts.begin + experts.size;
      };
      while (piece / pieces_each(stack) >= end()) ++holder;
      cuts.push_back(whole_at(cut.axis, holder));
    } else {
      cut.dim = dim;
      cuts.push_back(cut);
    }
  }
  return cuts;
}
}  // namespace

const at::Tensor& Linear::matrix() const {
  if (stacked_ && ops::is_quantised(stacked_->data)) {
    weight_.data = ops::matrix_in(stacked_->data, own_piece(*stacked_, piece_));
  } else if (stacked_) {
    const at::Tensor stack = stacked_->data.detach();
    weight_.data = stack.view({-1, stack.size(-2), stack.size(-1)}).select(0, own_piece(*stacked_, piece_));
  }
  return weight_.data;
}

// Of a stack that ranks share out by its rows it is not there while another one holds it; of experts that are
// elsewhere it is empty. A whole that somebody put there for a while stays.
Param& Linear::weight() {
  if (!stacked_) return weight_;
  if (mesh()) {
    view_->cuts = piece_cuts(*stacked_, piece_, *mesh());
    view_->part = local_part(view_->full, view_->cuts, mesh()->layout());
  }
  const bool put = view_->data.defined() && view_->data.sizes() != at::IntArrayRef(view_->local_shape());
  if (put || !stacked_->data.defined()) return weight_;
  if (is_elsewhere(*view_, mesh()))
    view_->data = at::empty(view_->local_shape(), stacked_->data.detach().options());
  else if (own_piece(*stacked_, piece_) >= 0)
    matrix();
  return weight_;
}

void Linear::put_weight(const at::Tensor& value) {
  if (!stacked_) return Adaptable::put_weight(value);
  if (stacked_->mapped) stacked_->data = stacked_->data.clone(), stacked_->mapped = false;
  matrix().copy_(value);
}

namespace {
// A tensor to ask for its shape and type, without values: so many rows like these.
at::Tensor shape_alone(const at::Tensor& like, int64_t rows) {
  return at::zeros({1}, like.options()).expand({rows, like.size(1)});
}
}  // namespace

at::Tensor Linear::product(const at::Tensor& x_TI, const at::Tensor& bias, const Step& s,
                           const at::Tensor& known) const {
  const at::Tensor& weight = matrix();
  const auto& fp8 = training_of(s).fp8;
  if (!fp8 || keeps_type_ || ops::is_quantised(weight)) return ops::linear(x_TI, weight, bias, known);
  return ops::fp8_linear(x_TI, weight, bias, *fp8, known);
}

// Adapters that only add have changed y itself, which is remembered with them: where ranks sum it, the sum is, and is
// not made again. Others look at y as it was before them: that is remembered, and they run again.
at::Tensor Linear::remembering(const at::Tensor& x_TI, const Step& s, Memo& memo) const {
  const bool only_add =
      std::all_of(adapters_.begin(), adapters_.end(), [](const auto& a) { return a.second->only_adds(); });
  Memo* const inner = only_add ? &memo : nullptr;
  Comm* const ranks = summing_ranks(*this);
  const at::Tensor bias = bias_ && !ranks ? bias_->data : at::Tensor();
  const auto summed = [&](const at::Tensor& y_TO, const at::Tensor& known) {
    return ranks ? own_sum(y_TO, *ranks, s, known) : y_TO;
  };
  if (memo.again()) {
    at::Tensor known = std::move(memo.recall(*this).front()), sum;
    if (ranks && only_add) sum = known, known = shape_alone(known, x_TI.size(0));
    return summed(with_adapters(x_TI, product(x_TI, bias, s, known), weight_.data, s, inner), sum);
  }
  const at::Tensor y_TO = product(x_TI, bias, s);
  // One of several adapters may add to y in place before another looks at it.
  const at::Tensor before_TO = only_add ? at::Tensor() : adapters_.size() > 1 ? y_TO.clone() : y_TO;
  const at::Tensor changed = summed(with_adapters(x_TI, y_TO, weight_.data, s, inner), {});
  const bool values = !only_add || result_ != ResultKind::OnlyAdded;
  memo.remember(*this, {!only_add ? before_TO : values ? changed : shape_alone(changed, changed.size(0))});
  return changed;
}

// Adapters add to the rank's own product, as their factors are cut like the weight; the bias is added to the sum.
at::Tensor Linear::operator()(const at::Tensor& x_TI, const Step& s) const {
  Comm* const ranks = summing_ranks(*this);
  Memo* const memo = memo_of(s, result_);
  at::Tensor y_TO;
  if (memo) {
    y_TO = remembering(x_TI, s, *memo);
  } else {
    const at::Tensor bias = bias_ && !ranks ? bias_->data : at::Tensor();
    y_TO = packed_.defined() ? ops::packed_linear(x_TI, packed_, bias, weight_.part[0].size) : product(x_TI, bias, s);
    y_TO = with_adapters(x_TI, y_TO, weight_.data, s);
    if (ranks) y_TO = own_sum(y_TO, *ranks, s);
  }
  return ranks && bias_ ? y_TO + bias_->data : y_TO;
}

at::Tensor Linear::wide(const at::Tensor& x_TI, const Step& s) const {
  const bool plain = !packed_.defined() || packed_.dim() == 2;
  if (!adapters_.empty() || summing_ranks(*this) || !plain || x_TI.scalar_type() == at::kFloat) return (*this)(x_TI, s);
  return ops::wide_linear(x_TI, packed_.defined() ? packed_ : matrix(), bias_ ? bias_->data : at::Tensor());
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
