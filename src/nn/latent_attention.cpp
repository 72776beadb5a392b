// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N heads, H numbers of a query that do not turn, R that do, C of the small vector, V of a value.
#include "nn/latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "nn/seen_keys.h"
#include "nn/steady.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/expert_pairs.h"
#include "ops/ops.h"
#include "ops/quantised.h"
#include "ops/steady_rows.h"

namespace apus {

LatentAttention::LatentAttention(const Attention::Spec& spec, const LatentForm& form)
    : spec_(spec),
      form_(form),
      kv_a_([&]() -> Linear& {
        const bool bias = spec.form.qkv_bias;
        const int64_t queries = spec.heads * (form.still + form.turned);
        if (form.query_rank > 0) {
          q_a_ = &child<Linear>("q_a_proj", Linear::Spec{.in = spec.hidden, .out = form.query_rank, .bias = bias});
          q_norm_ = &child<Norm>("q_a_layernorm", form.query_rank, NormSpec{.eps = form.eps});
          q_b_ = &child<Linear>("q_b_proj", Linear::Spec{.in = form.query_rank, .out = queries});
        } else {
          q_ = &child<Linear>("q_proj", Linear::Spec{.in = spec.hidden, .out = queries});
        }
        return child<Linear>("kv_a_proj_with_mqa",
                             Linear::Spec{.in = spec.hidden, .out = form.rank + form.turned, .bias = bias});
      }()),
      kv_norm_(child<Norm>("kv_a_layernorm", form.rank, NormSpec{.eps = form.eps})),
      kv_b_(child<Linear>("kv_b_proj", Linear::Spec{.in = form.rank, .out = spec.heads * (form.still + form.value)})),
      o_(child<Linear>("o_proj",
                       Linear::Spec{.in = spec.heads * form.value, .out = spec.hidden, .bias = spec.form.out_bias})) {
  kv_b_.stays_plain();
  if (spec.form.gate_name)
    gate_ =
        &child<Linear>(spec.form.gate_name,
                       Linear::Spec{.in = spec.hidden, .out = spec.heads * (spec.form.gates_heads ? 1 : form.value)});
  if (spec.form.sinks) sinks_ = &param("sinks", {spec.heads});
  if (form.index.heads > 0 && form.index.taken_of < 0)
    index_ = &child<LatentIndex>("indexer", spec.hidden, form.query_rank, form.turned, form.index);
}

LatentAttention::Inputs LatentAttention::inputs(const at::Tensor& x_TD, const Step& s) const {
  const int64_t tokens = x_TD.size(0);
  const at::Tensor small_q_TC = q_ ? at::Tensor() : (*q_norm_)((*q_a_)(x_TD, s));
  const at::Tensor q_TNH = (q_ ? (*q_)(x_TD, s) : (*q_b_)(small_q_TC, s)).view({tokens, spec_.heads, -1});
  const at::Tensor small_and_key = kv_a_(x_TD, s);
  at::Tensor q = q_TNH.narrow(2, form_.still, form_.turned), still = q_TNH.narrow(2, 0, form_.still),
             k = small_and_key.narrow(1, form_.rank, form_.turned).unsqueeze(1);
  if (spec_.turn >= 0) {
    const Turn& turn = s.turns[static_cast<size_t>(spec_.turn)];
    if (spec_.neighbours) q = neighbours_apart(q, form_.turned), k = neighbours_apart(k, form_.turned);
    std::tie(q, k) = ops::rope(q.contiguous(), k.contiguous(), turn.cos, turn.sin);
    const auto grown = [&](const at::Tensor& x) { return x * turn.query_T.to(x.scalar_type()).view({-1, 1, 1}); };
    if (turn.query_T.defined()) q = grown(q), still = grown(still);
  }
  at::Tensor small_TC = kv_norm_(small_and_key.narrow(1, 0, form_.rank).contiguous());
  if (form_.small_scale != 1) small_TC = small_TC * form_.small_scale;
  Inputs in{std::move(still), std::move(q), std::move(small_TC), std::move(k)};
  if (index_) in.index = index_->made(x_TD, small_q_TC, s.turns[static_cast<size_t>(spec_.turn)], s);
  return in;
}

ops::AttentionRule LatentAttention::rule() const {
  const double width = static_cast<double>(form_.still + form_.turned);
  return {.scale = spec_.form.scale > 0 ? spec_.form.scale : 1 / std::sqrt(width),
          .mask = {.causal = true, .window = spec_.window},
          .sinks_N = sinks_ ? sinks_->data : at::Tensor()};
}

at::Tensor LatentAttention::made_keys(const Inputs& in, const Step& s) const {
  const int64_t tokens = in.small_TC.size(0);
  if (chooses(s)) return over_chosen(in, s);
  const at::Tensor made = kv_b_(in.small_TC, s).view({tokens, spec_.heads, form_.still + form_.value});
  const at::Tensor k = at::cat({made.narrow(2, 0, form_.still), in.key_T1R.expand({-1, spec_.heads, -1})}, 2),
                   v = made.narrow(2, form_.still, form_.value);
  return over_packed(at::cat({in.still_TNH, in.turned_TNR}, 2), k, v, rule(), s);
}

bool LatentAttention::chooses(const Step& s) const { return form_.index.heads > 0 && s.max_k > form_.index.chosen; }

at::Tensor LatentAttention::hidden(size_t i, const std::function<at::Tensor()>& chosen, const Step& s) const {
  if (form_.index.taken_of >= 0) return s.beside->lent.at(form_.index.taken_of).at(i).to(s.position.device());
  const at::Tensor own = chosen();
  if (!form_.taken_of.empty()) s.beside->lent[spec_.layer].push_back(own);
  return own;
}

at::Tensor LatentAttention::over_chosen(const Inputs& in, const Step& s) const {
  require_own_rows(s);
  const int64_t tokens = in.small_TC.size(0);
  const at::Tensor made = kv_b_(in.small_TC, s).view({tokens, spec_.heads, form_.still + form_.value});
  const at::Tensor k = at::cat({made.narrow(2, 0, form_.still), in.key_T1R.expand({-1, spec_.heads, -1})}, 2),
                   v = made.narrow(2, form_.still, form_.value), q = at::cat({in.still_TNH, in.turned_TNR}, 2);
  std::vector<at::Tensor> out;
  int64_t begin = 0;
  for (const int64_t length : s.length_q) {
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, begin, length); };
    const at::Tensor hidden = this->hidden(
        out.size(), [&] { return index_->hidden(own(in.index.q_TnD), own(in.index.weight_Tn), own(in.index.k_TD), 0); },
        s);
    out.push_back(over_seen(own(q), own(k), own(v), hidden, rule()));
    begin += length;
  }
  return at::cat(out, 0);
}

at::Tensor LatentAttention::over_chosen_cache(const at::Tensor& q_TNC, const at::Tensor& cache, const Inputs& in,
                                              const Step& s) const {
  std::vector<at::Tensor> out;
  int64_t begin = 0;
  const int64_t keyed = form_.rank + form_.turned, block = cache.size(1);
  for (size_t i = 0; i < s.length_q.size(); ++i) {
    const int64_t length = s.length_q[i], first = s.begin_q.empty() ? 0 : s.begin_q[i], all = first + length;
    const at::Tensor blocks = s.block_table[static_cast<int64_t>(i)].narrow(0, 0, (all + block - 1) / block);
    const at::Tensor entry_K1C = at::index_select(cache, 0, blocks.to(at::kLong)).flatten(0, 1).narrow(0, 0, all);
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, begin, length); };
    const at::Tensor index_k = entry_K1C.select(1, 0).narrow(1, keyed, form_.index.dim);
    const at::Tensor hidden = this->hidden(
        i, [&] { return index_->hidden(own(in.index.q_TnD), own(in.index.weight_Tn), index_k, first); }, s);
    out.push_back(
        over_seen(own(q_TNC), entry_K1C.narrow(2, 0, keyed), entry_K1C.narrow(2, 0, form_.rank), hidden, rule()));
    begin += length;
  }
  return at::cat(out, 0);
}

LatentIndex::LatentIndex(int64_t hidden, int64_t query_rank, int64_t turned, const IndexForm& f)
    : form_(f),
      turned_(turned),
      q_(child<Linear>("wq_b", Linear::Spec{.in = query_rank, .out = f.heads * f.dim})),
      k_(child<Linear>("wk", Linear::Spec{.in = hidden, .out = f.dim})),
      k_norm_(child<Norm>("k_norm", f.dim, NormSpec{.kind = NormKind::MeanAndBias, .eps = f.eps})),
      weights_(child<Linear>("weights_proj", Linear::Spec{.in = hidden, .out = f.heads})) {
  visit([](const std::string&, Param& p) { p.trainable = false; });
}

LatentIndex::Made LatentIndex::made(const at::Tensor& x_TD, const at::Tensor& small_q_TC, const Turn& turn,
                                    const Step& s) const {
  const at::NoGradGuard choosing;
  const int64_t tokens = x_TD.size(0);
  at::Tensor q = q_(small_q_TC, s).view({tokens, form_.heads, form_.dim}),
             k = k_norm_(k_(x_TD, s)).view({tokens, 1, form_.dim});
  // Turned ones first, as in the other families; queries and keys are put in order alike.
  const auto in_order = [&](const at::Tensor& x) {
    const int64_t still = form_.dim - turned_;
    return form_.last_turn ? at::cat({x.narrow(2, still, turned_), x.narrow(2, 0, still)}, 2) : x;
  };
  q = in_order(q), k = in_order(k);
  if (form_.neighbours) q = neighbours_apart(q, turned_), k = neighbours_apart(k, turned_);
  std::tie(q, k) = ops::rope(q.contiguous(), k.contiguous(), turn.cos, turn.sin);
  return {q, k.squeeze(1), weights_(x_TD, s)};
}

at::Tensor LatentIndex::hidden(const at::Tensor& q_TnD, const at::Tensor& weight_Tn, const at::Tensor& k_KD,
                               int64_t first) const {
  const at::NoGradGuard choosing;
  const int64_t tokens = q_TnD.size(0), keys = k_KD.size(0);
  const auto places = at::TensorOptions().dtype(at::kLong).device(q_TnD.device());
  const at::Tensor later_TK = at::arange(keys, places) > at::arange(first, first + tokens, places).unsqueeze(1);
  return hidden_but_best(q_TnD, weight_Tn, k_KD, later_TK, form_.chosen);
}

at::Tensor LatentAttention::weight() const { return ops::plain(kv_b_.weight().data); }

LatentAttention::Stacks LatentAttention::stacks_of(const at::Tensor& weight) const {
  const at::Tensor by_head = weight.detach().view({spec_.heads, form_.still + form_.value, form_.rank});
  return {by_head.narrow(1, 0, form_.still).transpose(1, 2).contiguous(),
          by_head.narrow(1, form_.still, form_.value).contiguous()};
}

std::vector<std::pair<at::Tensor, LatentAttention::Stacks>> LatentAttention::shares(const Step& s,
                                                                                    int64_t tokens) const {
  const bool unchanged = kv_b_.adapters().empty() || (s.routed && s.adapters.empty());
  const at::Tensor weight = unchanged && ready_.keys.defined() ? at::Tensor() : this->weight();
  const Stacks plain = ready_.keys.defined() ? ready_ : stacks_of(weight);
  if (unchanged) return {{{}, plain}};
  const auto changed = [&](const at::Tensor& all, const Delta& delta) { return all + delta.merged(weight) - weight; };
  const auto typed = [&](const at::Tensor& all) { return stacks_of(all.to(weight.scalar_type())); };
  if (!s.routed) {
    at::Tensor all = weight.to(at::kFloat);
    for (const auto& [name, delta] : kv_b_.adapters()) all = changed(all, *delta);
    return {{{}, typed(all)}};
  }
  std::vector<std::pair<at::Tensor, Stacks>> out;
  at::Tensor left = at::ones({tokens}, at::TensorOptions().dtype(at::kBool).device(weight.device()));
  for (const auto& group : s.adapters) {
    const auto found = kv_b_.adapters().find(group.name);
    if (found == kv_b_.adapters().end() || group.rows.size(0) == 0) continue;
    out.emplace_back(group.rows, typed(changed(weight.to(at::kFloat), *found->second)));
    left.index_fill_(0, group.rows, false);
  }
  if (const at::Tensor rows = left.nonzero().squeeze(1); rows.size(0) > 0) out.emplace_back(rows, plain);
  return out;
}

at::Tensor LatentAttention::over_small(const at::Tensor& still_TNH, const at::Tensor& turned_TNR, const Step& s,
                                       const std::function<at::Tensor(const at::Tensor& q_TNC)>& attend) const {
  const int64_t tokens = still_TNH.size(0);
  const auto all = shares(s, tokens);
  const auto by_share = [&](const at::Tensor& x_TNI, int64_t width, at::Tensor Stacks::*stack) {
    if (!all[0].first.defined()) return each_head(x_TNI, all[0].second.*stack);
    at::Tensor y = at::zeros({tokens, spec_.heads, width}, x_TNI.options());
    for (const auto& [rows, stacks] : all)
      y.index_copy_(0, rows, each_head(at::index_select(x_TNI, 0, rows), stacks.*stack));
    return y;
  };
  const at::Tensor q = at::cat({by_share(still_TNH, form_.rank, &Stacks::keys), turned_TNR}, 2);
  return by_share(attend(q), form_.value, &Stacks::values);
}

at::Tensor LatentAttention::over_cache(const Inputs& in, const Step& s) const {
  at::Tensor cache = s.cache->k(spec_.layer);
  at::Tensor entry = at::cat({in.small_TC.unsqueeze(1), in.key_T1R}, 2);
  if (index_)
    entry = at::cat({entry, in.index.k_TD.unsqueeze(1)}, 2);
  else if (form_.index.heads > 0)  // the place of keys that this layer has none of
    entry = at::constant_pad_nd(entry, {0, form_.index.dim});
  ops::store_kv(entry, entry, cache, cache, s.slot);  // there is one cache
  const at::Tensor keys = form_.index.heads > 0 ? cache.narrow(3, 0, form_.rank + form_.turned) : cache;
  return over_small(in.still_TNH, in.turned_TNR, s, [&](const at::Tensor& q_TNC) {
    return chooses(s) ? over_chosen_cache(q_TNC, cache, in, s)
                      : ops::paged_attention(q_TNC, keys, cache.narrow(3, 0, form_.rank), s.cu_q, s.cu_k, s.block_table,
                                             s.max_q, s.max_k, rule());
  });
}

// Made keys give the gradient; the sums are those of an engine, whose cache has the small vectors.
at::Tensor LatentAttention::as_over_cache(const Inputs& in, const Step& s) const {
  const at::Tensor made = made_keys(in, s);
  const auto value = [&] {
    const at::NoGradGuard no_gradient;
    return over_small(in.still_TNH.detach(), in.turned_TNR.detach(), s, [&](const at::Tensor& q_TNC) {
      const at::Tensor small_T1C = in.small_TC.detach().unsqueeze(1);
      return ops::attention(q_TNC, at::cat({small_T1C, in.key_T1R.detach()}, 2), small_T1C, s.cu_q, s.cu_k, s.max_q,
                            s.max_k, rule());
    });
  };
  return with_gradient_of(made, value());
}

at::Tensor LatentAttention::operator()(const at::Tensor& x_TD, const Step& s) const {
  const Inputs in = inputs(x_TD, s);
  const TrainingStep& training = training_of(s);
  const bool plain = !training.groups && !training.key_K.defined() && !training.tokens && !chooses(s);
  at::Tensor y_TNV = s.cache                       ? over_cache(in, s)
                     : plain && ops::steady_rows() ? as_over_cache(in, s)
                                                   : made_keys(in, s);
  if (gate_) y_TNV = y_TNV * steady_sigmoid((*gate_)(x_TD, s)).view({x_TD.size(0), spec_.heads, -1});
  return o_(y_TNV.reshape({x_TD.size(0), -1}), s);
}

void LatentAttention::prepare_inference() {
  if (!ready_.keys.defined()) ready_ = stacks_of(weight());
}

}  // namespace apus
