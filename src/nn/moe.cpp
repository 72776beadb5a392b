// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, D hidden, E experts, k experts per token.
#include "nn/moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "dist/collective.h"
#include "dist/mesh.h"
#include "nn/capsule.h"
#include "nn/expert_choices.h"
#include "nn/expert_dispatch.h"
#include "nn/norm.h"
#include "nn/residual_share.h"
#include "nn/router.h"
#include "nn/steady.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/expert_pairs.h"
#include "ops/fp8_linear.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus {

at::Tensor RouterLoss::value() const {
  if (rows == 0) return at::zeros({});
  const double n = static_cast<double>(rows), experts = static_cast<double>(choices_E.size(0));
  return (choices_E * probability_E).sum() * (experts / (n * n));
}

void RouterLoss::sum_over(Comm& ranks) {
  if (rows == 0) return;
  for (const at::Tensor& sums : {choices_E, probability_E}) ranks.all_reduce(sums)->wait();
  const at::Tensor all = at::full({1}, rows, choices_E.options().dtype(at::kInt));
  ranks.all_reduce(all)->wait();
  rows = all.item<int64_t>();
}

namespace {

// Identity on the logits; the backward pass adds the balance loss's gradient.
struct AttachBalance : torch::autograd::Function<AttachBalance> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits_TE,
                            const std::shared_ptr<RouterLoss>& loss) {
    ctx->save_for_backward({logits_TE});
    ctx->saved_data["loss"] = encapsulated(loss);
    return logits_TE.view_as(logits_TE);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const auto& loss = *held<std::shared_ptr<RouterLoss>>(ctx->saved_data["loss"]);
    const at::Tensor logits = ctx->get_saved_variables()[0];
    const at::Tensor p = at::softmax(logits.to(at::kFloat), -1);
    const double n = static_cast<double>(loss.rows);
    // d value / d p_te = E * f_e / n^2; through the softmax
    const at::Tensor g = loss.choices_E * (loss.scale * static_cast<double>(p.size(-1)) / (n * n));
    const at::Tensor into_logits = p * (g - (p * g).sum(-1, /*keepdim=*/true));
    return {grad[0] + into_logits.to(grad[0].scalar_type()), at::Tensor()};
  }
};

void record(RouterLoss& loss, const at::Tensor& logits_TE, const at::Tensor& expert_Tk) {
  const at::Tensor logits = logits_TE.detach().to(at::kFloat);
  if (loss.rows == 0) loss.choices_E = loss.probability_E = at::zeros({logits.size(1)}, logits.options());
  const at::Tensor chosen = expert_Tk.flatten();
  loss.choices_E = loss.choices_E.index_add(0, chosen, at::ones_like(chosen, logits.options()));
  loss.probability_E = loss.probability_E + at::softmax(logits, -1).sum(0);
  loss.rows += logits.size(0);
}

}  // namespace

namespace {
// What is one tensor in the file stays one between its first and its last experts.
std::vector<Cut> expert_cuts(bool stacked) {
  return stacked ? std::vector<Cut>{{Axis::Ep, 0}} : std::vector<Cut>{{Axis::Ep, 0}, {Axis::Tp, 2}};
}
}  // namespace

Experts::Experts(int64_t count, int64_t hidden, int64_t ffn, const MixtureNames& names, Kind kind)
    : gate_up_(names.stacked_gate_up
                   ? param(names.stacked_gate_up, {count, (names.stacked_up ? 1 : 2) * ffn, hidden}, expert_cuts(true))
               : kind.gated ? param("gate_up_proj", {count, 2, ffn, hidden}, expert_cuts(false))
                            : param("up_proj", {count, ffn, hidden}, {{Axis::Ep, 0}})),
      down_(param(names.stacked_down ? names.stacked_down : "down_proj", {count, hidden, ffn},
                  expert_cuts(names.stacked_down != nullptr || !kind.gated))),
      kind_(kind) {
  gate_up_.turned = down_.turned = names.turned;
  if (names.stacked_up) {
    up_ = &param(names.stacked_up, {count, ffn, hidden}, expert_cuts(true));
    gate_up_.turned = false;
    for (Param* each : {&gate_up_, up_, &down_}) each->flat = true;
  }
  if (kind_.clamp > 0) {
    gate_up_bias_ = &param(str(names.stacked_gate_up, "_bias"), {count, 2 * ffn}, {{Axis::Ep, 0}});
    down_bias_ = &param(str(names.stacked_down, "_bias"), {count, hidden}, {{Axis::Ep, 0}});
    gate_up_.turned = down_.turned = true;
  }
  // What is one tensor in the file has no names that adapters of single experts could be saved under.
  for (int64_t e = 0; e < count && !names.stacked_gate_up; ++e) {
    const std::string gate = str(e, ".", names.gate), up = str(e, ".", names.up), down = str(e, ".", names.down);
    if (kind_.gated) gate_up_.pieces.push_back(gate + ".weight");
    gate_up_.pieces.push_back(up + ".weight"), down_.pieces.push_back(down + ".weight");
    const int64_t each = kind_.gated ? 2 : 1;
    if (kind_.gated)
      gate_of_.push_back(&child<Linear>(gate, Linear::Spec{.in = hidden, .out = ffn}, gate_up_, each * e));
    up_of_.push_back(&child<Linear>(up, Linear::Spec{.in = hidden, .out = ffn}, gate_up_, each * e + each - 1));
    down_of_.push_back(&child<Linear>(down, Linear::Spec{.in = ffn, .out = hidden}, down_, e));
  }
}

bool Experts::held_quantised() const { return ops::is_quantised(gate_up_.data) || ops::is_quantised(down_.data); }

bool Experts::adapted() const {
  const auto has = [](const Linear* l) { return !l->adapters().empty(); };
  return std::any_of(gate_of_.begin(), gate_of_.end(), has) || std::any_of(up_of_.begin(), up_of_.end(), has) ||
         std::any_of(down_of_.begin(), down_of_.end(), has);
}

at::Tensor Experts::gate_up() const {
  const at::Tensor& stack = gate_up_.data;
  return stack.dim() == 4 && !ops::is_quantised(stack) ? stack.flatten(1, 2) : stack;
}

ExpertMatrices Experts::here(const ExpertMatrices& of_all) const {
  if (of_all.empty() || gate_up_.data.size(0) == gate_up_.full[0]) return of_all;
  const auto first = of_all.begin() + gate_up_.part[0].begin;
  return {first, first + gate_up_.part[0].size};
}

at::Tensor summed(const at::Tensor& y_MD, at::IntArrayRef sizes, const at::Tensor& weight_Tk,
                  const ops::ExpertPairs& pairs) {
  const auto wide = y_MD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weighed = y_MD.to(wide) * weight_Tk.to(wide).reshape({-1, 1}).index_select(0, pairs.pair);
  return at::zeros(sizes, y_MD.options().dtype(wide)).index_add(0, pairs.token, weighed).to(y_MD.scalar_type());
}

namespace {
// The step as rows of all ranks see it, whose tokens all go through the same adapters.
Step step_of_all(int64_t rows, int64_t tokens, const at::Tensor& like, const Step& s) {
  Step all;
  all.routed = s.routed, all.training = s.training;
  for (const auto& group : s.adapters) {
    require(group.rows.size(0) == tokens, Fault::Bug, "tokens that go through different adapters, and experts on ",
            "several ranks");
    all.adapters.push_back({group.name, at::arange(rows, like.options().dtype(at::kLong))});
  }
  return all;
}
Step of_origins(const RowOrigins& origins, Step s) {
  if (training_of(s).dropout_seed == 0) return s;
  TrainingStep training = training_of(s);
  training.origins = std::make_shared<const RowOrigins>(origins);
  set_training(s, std::move(training));
  return s;
}
}  // namespace

namespace {
// Those of the experts in a range, which are the only ones then.
ops::ExpertPairs pairs_of(const ops::ExpertPairs& all, const Range& experts) {
  if (experts.begin == 0 && experts.size == all.ends.size(0)) return all;
  const auto first = all.count().begin() + experts.begin, last = first + experts.size;
  const int64_t begin = std::accumulate(all.count().begin(), first, int64_t{0}),
                size = std::accumulate(first, last, int64_t{0});
  return {all.token.narrow(0, begin, size),
          all.pair.narrow(0, begin, size),
          all.ends.narrow(0, experts.begin, experts.size) - begin,
          {first, last}};
}
}  // namespace

at::Tensor Experts::operator()(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const at::Tensor& expert_Tk,
                               const Step& s) const {
  MeshView* const ranks = mesh();
  const bool elsewhere = ranks && ranks->size(Axis::Ep) > 1;
  const auto all_here = [&] {
    const bool usual = kind_.clamp == 0 && kind_.gated && !kind_.weighs_input && kind_.act == Activation::Silu &&
                       kind_.idle == 0 && kind_.limit == 0 && !up_;
    if (usual && !adapted() && !elsewhere && !held_quantised() && !training_of(s).fp8)
      return ops::moe_ffn(x_TD, weight_Tk, expert_Tk, gate_up(), down_.data);
    const int64_t count = gate_up_.full[0];
    const ops::ExpertPairs pairs = pairs_of(ops::pairs_by_expert(expert_Tk, count + kind_.idle), {0, count});
    // A pass with a cache is an engine's, which gives all of its ranks the same tokens.
    if (elsewhere && (everywhere_ || s.cache))
      return collective::all_reduce(of_own_experts(x_TD, weight_Tk, pairs, s), ranks->comm(Axis::Ep));
    const at::Tensor x_MD = read(x_TD, weight_Tk, pairs);
    const int64_t tokens = x_TD.size(0);
    if (!elsewhere) return summed(of_pairs(x_MD, pairs, tokens, s), x_TD.sizes(), left(weight_Tk), pairs);
    const ExpertDispatch way(pairs, training_of(s).dropout_seed, ranks->host(Axis::Ep), ranks->comm(Axis::Ep));
    const at::Tensor came_mD = way.there(x_MD);
    const int64_t rows = came_mD.size(0);
    const at::Tensor y_mD =
        of_pairs(came_mD, way.own(), rows, of_origins(way.origins(), step_of_all(rows, tokens, x_TD, s)));
    return summed(way.back(y_mD), x_TD.sizes(), left(weight_Tk), pairs);
  };
  const at::Tensor y_TD = all_here();
  const bool halves = ranks && ranks->size(Axis::Tp) > 1 && down_.part[2].size != down_.full[2];
  return halves ? own_sum(y_TD, ranks->comm(Axis::Tp), s) : own_tokens(y_TD, s);
}

at::Tensor Experts::of_own_experts(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const ops::ExpertPairs& pairs,
                                   const Step& s) const {
  const ops::ExpertPairs own = pairs_of(pairs, gate_up_.part[0]);
  const at::Tensor x_mD = read(x_TD, weight_Tk, own);
  const auto count = pairs.count().begin();
  const int64_t first = std::accumulate(count, count + gate_up_.part[0].begin, int64_t{0});
  const RowOrigins origins{.parts = {{.seed = training_of(s).dropout_seed, .first = first, .count = own.count()}},
                           .order_m = {}};
  return summed(of_pairs(x_mD, own, x_TD.size(0), of_origins(origins, s)), x_TD.sizes(), left(weight_Tk), own);
}

at::Tensor Experts::of_pairs(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, int64_t tokens,
                             const Step& s) const {
  if (kind_.clamp > 0) return clamped(x_MD, pairs, s);
  if (!adapted()) return plain(x_MD, pairs, s);
  const bool alike = can_be_grouped(here(gate_of_)) && can_be_grouped(here(up_of_)) && can_be_grouped(here(down_of_));
  return alike ? grouped(x_MD, pairs, tokens, s) : one_by_one(x_MD, pairs, s);
}

at::Tensor Experts::read(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const ops::ExpertPairs& pairs) const {
  const at::Tensor x_MD = at::index_select(x_TD, 0, pairs.token);
  if (!kind_.weighs_input) return x_MD;
  return x_MD * weight_Tk.to(x_MD.scalar_type()).reshape({-1, 1}).index_select(0, pairs.pair);
}

at::Tensor Experts::left(const at::Tensor& weight_Tk) const {
  return kind_.weighs_input ? at::ones_like(weight_Tk.detach()) : weight_Tk;
}

at::Tensor Experts::inner(const at::Tensor& made_MF) const {
  if (!kind_.gated) return at::relu(made_MF).square();
  const auto halves = made_MF.chunk(2, 1);
  return opened(halves[0], halves[1]);
}

at::Tensor Experts::opened(const at::Tensor& gate_MF, const at::Tensor& up_MF) const {
  return apus::gated(kind_.act, gate_MF, up_MF, kind_.limit);
}

at::Tensor Experts::product(const at::Tensor& rows, const at::Tensor& stack, const ops::ExpertPairs& pairs,
                            const Step& s) const {
  if (ops::is_quantised(stack)) return ops::quantised_grouped_linear(rows, stack, pairs.ends);
  const auto& fp8 = training_of(s).fp8;
  return fp8 ? ops::fp8_grouped_linear(rows, stack, pairs.count(), *fp8) : ops::grouped_linear(rows, stack, pairs.ends);
}

at::Tensor Experts::plain(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const {
  const at::Tensor made_MF = product(x_MD, gate_up(), pairs, s);
  const at::Tensor inner_MF = up_ ? opened(made_MF, product(x_MD, up_->data, pairs, s)) : inner(made_MF);
  return product(inner_MF, down_.data, pairs, s);
}

namespace {
// Of numbers [M, 2F] of gate and up by turns: [M, F], in f32 or f64 and given in their type.
at::Tensor clamped_swiglu(const at::Tensor& both_MF, double clamp) {
  const at::Tensor wide_MF2 =
      both_MF.to(both_MF.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).unflatten(1, {-1, 2});
  const at::Tensor gate = wide_MF2.select(2, 0).clamp_max(clamp), up = wide_MF2.select(2, 1).clamp(-clamp, clamp);
  return ((up + 1) * gate * at::sigmoid(gate * 1.702)).to(both_MF.scalar_type());
}
}  // namespace

at::Tensor Experts::clamped(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const {
  const at::Tensor expert_M = pairs.expert();
  const auto multiply = [&](const at::Tensor& rows, const Param& weight, const Param& bias) {
    return product(rows, weight.data, pairs, s) + at::index_select(bias.data, 0, expert_M);
  };
  return multiply(clamped_swiglu(multiply(x_MD, gate_up_, *gate_up_bias_), kind_.clamp), down_, *down_bias_);
}

namespace {
at::Tensor frozen(const at::Tensor& stack) { return ops::is_quantised(stack) ? stack : stack.detach(); }
}  // namespace

// The base's products and those of the factors, each for all experts at once.
at::Tensor Experts::grouped(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, int64_t tokens,
                            const Step& s) const {
  const auto side = [&](const ExpertMatrices& all) { return ExpertLora::Side{here(all), all.front()}; };
  const ExpertLora lora(pairs, tokens, s);
  std::vector<ExpertLora::Side> sides;
  if (kind_.gated) sides.push_back(side(gate_of_));
  sides.push_back(side(up_of_));
  const at::Tensor inner_MF = inner(lora(product(x_MD, frozen(gate_up()), pairs, s), x_MD, sides));
  return lora(product(inner_MF, frozen(down_.data), pairs, s), inner_MF, {side(down_of_)});
}

namespace {
// The step as an expert sees it that gets these tokens: which of its rows go through which adapter.
Step step_of_rows(const at::Tensor& token_n, size_t expert, const Step& s) {
  Step part;
  part.routed = s.routed;
  if (s.training) {
    TrainingStep training{.dropout_seed = s.training->dropout_seed, .router = {}, .table = {}, .fp8 = s.training->fp8};
    if (const auto& origins = s.training->origins)
      training.origins = std::make_shared<const RowOrigins>(origins->of_expert(expert));
    set_training(part, std::move(training));
  }
  for (const auto& group : s.adapters) {
    const at::Tensor rows = at::isin(token_n, group.rows).nonzero().squeeze(1);
    if (rows.size(0) > 0) part.adapters.push_back({group.name, rows});
  }
  return part;
}
}  // namespace

// Every expert as a feed-forward of its own, for adapters that cannot be grouped. Where no expert has rows the first
// one multiplies none, so that the backward passes of all ranks exchange what is theirs.
at::Tensor Experts::one_by_one(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const {
  const std::vector<int64_t>& count = pairs.count();
  const ExpertMatrices gate = here(gate_of_), up = here(up_of_), down = here(down_of_);
  const auto inputs = at::split_with_sizes(x_MD, count, 0);
  std::vector<at::Tensor> outputs;
  int64_t begin = 0;
  const auto inner_of = [&](size_t e, const Step& part) {
    const at::Tensor up_nF = (*up[e])(inputs[e], part);
    return kind_.gated ? opened((*gate[e])(inputs[e], part), up_nF) : inner(up_nF);
  };
  for (size_t e = 0; e < up.size(); begin += count[e++]) {
    if (count[e] == 0 && (x_MD.size(0) > 0 || e > 0)) continue;
    const Step part = step_of_rows(pairs.token.narrow(0, begin, count[e]), e, s);
    outputs.push_back((*down[e])(inner_of(e, part), part));
  }
  return at::cat(outputs, 0);
}

Param* MoeMlp::make_correction() {
  const MixtureNames& names = spec_.names;
  if (!names.correction) return nullptr;
  const int64_t all = spec_.experts + spec_.idle;
  Param& p = param(names.correction, names.correction_rows > 0 ? std::vector<int64_t>{names.correction_rows, all}
                                                               : std::vector<int64_t>{all});
  p.statistic = true, p.trainable = false;
  return &p;
}

Param* MoeMlp::make_words() {
  if (!spec_.names.by_word) return nullptr;
  Param& p = param(spec_.names.by_word, {spec_.words, spec_.per_token});
  p.statistic = p.counts = true, p.trainable = false;
  return &p;
}

MoeMlp::MoeMlp(Spec s)
    : spec_(s),
      gate_(child<Linear>(s.names.router,
                          Linear::Spec{.in = s.hidden, .out = s.experts + s.idle, .bias = s.names.router_bias})),
      correction_(make_correction()),
      by_word_(make_words()),
      experts_(child<Experts>(s.names.stacked_gate_up ? "" : s.names.experts, s.experts,
                              s.latent > 0 ? s.latent : s.hidden, s.ffn, s.names,
                              Experts::Kind{s.clamp, s.gated, s.weighs_input, s.act, s.idle, s.limit})) {
  gate_.keeps_type();
  if (s.router.own_numbers) {
    // "router.proj" has them beside it.
    const std::string name = s.names.router, beside = name.substr(0, name.rfind('.') + 1);
    read_scale_ = &param(beside + "scale", {s.hidden}),
    expert_scale_ = &param(beside + "per_expert_scale", {s.experts});
  }
  if (s.latent > 0) {
    narrower_ = &child<Linear>("fc1_latent_proj", Linear::Spec{.in = s.hidden, .out = s.latent});
    wider_ = &child<Linear>("fc2_latent_proj", Linear::Spec{.in = s.latent, .out = s.hidden});
  }
  if (s.names.bias) bias_ = &param(s.names.bias, {s.hidden});
  if (s.shared_ffn == 0) return;
  shared_ = &child<Mlp>(
      s.names.shared, s.hidden, s.shared_ffn,
      Mlp::Spec{.act = s.act, .kind = s.names.shared_kind, .names = s.names.of_shared, .limit = s.shared_limit});
  if (!s.names.shared_is_gated) return;
  shared_gate_ = &child<Linear>(str(s.names.shared, "_gate"), Linear::Spec{.in = s.hidden, .out = 1});
  shared_gate_->keeps_type();
}

at::Tensor MoeMlp::logits(const at::Tensor& routed_TD, const Step& s) const {
  if (!read_scale_) return gate_(routed_TD, s);
  const at::Tensor& scale_D = read_scale_->data;
  const double narrowed = 1 / std::sqrt(static_cast<double>(spec_.hidden));
  const at::Tensor alone_TD = rms_alone(routed_TD, spec_.router_eps);
  return gate_(alone_TD * scale_D * narrowed, s);
}

namespace {
ops::Routing told_or_own(ops::Routing own, const at::Tensor& logits_TE, const RouterForm& form, const Step& s,
                         int64_t place) {
  const auto& share = training_of(s).tokens;
  if (s.met_experts) s.met_experts->write(place, share ? share->gathered(own.expert_Tk) : own.expert_Tk);
  if (!s.told_experts) return own;
  at::Tensor told_Tk = s.told_experts->told_Tk(place, own.expert_Tk.size(1), logits_TE.device());
  if (share) told_Tk = share->narrowed(told_Tk);
  s.told_experts->compare(own.expert_Tk, told_Tk);
  return route_as_told(own, told_Tk, logits_TE, form);
}
}  // namespace

ops::Routing counted_routing(at::Tensor logits_TE, const RouterForm& form, int64_t per_token,
                             const at::Tensor& correction_E, const Step& s, std::optional<int64_t> place) {
  const TrainingStep& training = training_of(s);
  if (training.router && logits_TE.requires_grad()) logits_TE = AttachBalance::apply(logits_TE, training.router);
  ops::Routing chosen = route(logits_TE, form, per_token, correction_E);
  if (place) chosen = told_or_own(std::move(chosen), logits_TE, form, s, *place);
  ops::Routing routing = within_capacity(std::move(chosen), logits_TE.size(1), training.capacity);
  // The second run of a layer brings tokens that were counted already.
  const bool counted = training.memo && training.memo->again();
  // The loss counts the experts that the router itself likes best, as HuggingFace's does, whatever a correction chose.
  if (training.router && !counted)
    record(*training.router, logits_TE,
           correction_E.defined() ? std::get<1>(logits_TE.detach().topk(per_token, -1)) : routing.expert_Tk);
  return routing;
}

at::Tensor MoeMlp::correction() const {
  if (!correction_) return {};
  return correction_->data.dim() == 2 ? correction_->data.select(0, correction_row_) : correction_->data;
}

ops::Routing MoeMlp::routing(const at::Tensor& routed_TD, const Step& s) const {
  if (by_word_) {
    const at::Tensor word_T = s.beside->word_T.to(routed_TD.device()),
                     expert_Tk = at::index_select(by_word_->data, 0, word_T).to(at::kLong);
    return within_capacity(route_to(expert_Tk, logits(routed_TD, s), spec_.router), spec_.experts,
                           training_of(s).capacity);
  }
  ops::Routing routing =
      counted_routing(logits(routed_TD, s), spec_.router, spec_.per_token, correction(), s, spec_.place);
  if (expert_scale_)
    routing.weight_Tk = routing.weight_Tk * expert_scale_->data.to(routing.weight_Tk.scalar_type())
                                                .index_select(0, routing.expert_Tk.flatten())
                                                .view_as(routing.expert_Tk);
  return routing;
}

at::Tensor MoeMlp::apart(const at::Tensor& x_TD, const at::Tensor& routed_TD, const Step& s) const {
  const ops::Routing routing = this->routing(routed_TD, s);
  at::Tensor y_TD = experts_(narrower_ ? (*narrower_)(x_TD, s) : x_TD, routing.weight_Tk, routing.expert_Tk, s);
  if (wider_) y_TD = (*wider_)(y_TD, s);
  if (spec_.idle > 0) {
    const at::Tensor idle_Tk =
        routing.weight_Tk * (routing.expert_Tk >= spec_.experts).to(routing.weight_Tk.scalar_type());
    y_TD = y_TD + own_tokens(x_TD * idle_Tk.sum(1, /*keepdim=*/true).to(x_TD.scalar_type()), s);
  }
  if (bias_) y_TD = y_TD + bias_->data;
  if (shared_) {
    const at::Tensor shared_TD = own_tokens((*shared_)(x_TD, s), s);
    y_TD = y_TD + (shared_gate_ ? own_tokens(steady_sigmoid((*shared_gate_)(x_TD, s)), s) * shared_TD : shared_TD);
  }
  return spec_.out_scale == 1 ? y_TD : y_TD * spec_.out_scale;
}

}  // namespace apus
