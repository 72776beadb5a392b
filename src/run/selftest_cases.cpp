// SPDX-License-Identifier: Apache-2.0
#include "run/selftest_cases.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "ops/attention_part.h"
#include "ops/draw_tokens.h"
#include "ops/expert_pairs.h"
#include "ops/logit_logprob.h"
#include "ops/low_rank.h"
#include "ops/ops.h"
#include "ops/quantised.h"
#include "ops/rope_table.h"
#include "ops/state_scan.h"
#include "quant/awq.h"
#include "quant/bnb4.h"
#include "quant/gptq.h"
#include "quant/int8.h"
#include "tensor/noise.h"

namespace apus {

namespace {

at::Tensor numbers(at::IntArrayRef sizes, uint64_t seed, double scale = 1) {
  return normal_noise(sizes, 0, scale, seed).to(at::kDouble);
}

at::Tensor whole(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

at::Tensor ends_of(const std::vector<int64_t>& lengths) {  // [0, n0, n0 + n1, ...]
  std::vector<int64_t> sums{0};
  for (const int64_t n : lengths) sums.push_back(sums.back() + n);
  return whole(sums);
}

void add_norms(std::vector<OperatorCase>& all) {
  const at::Tensor x = numbers({37, 96}, 1), weight = numbers({96}, 2);
  all.push_back(
      {"rms_norm", "", {x, weight}, [](const Tensors& t) { return Tensors{ops::rms_norm(t[0], t[1], 1e-6)}; }});
  all.push_back({"add_rms_norm", "", {x, numbers({37, 96}, 3), weight}, [](const Tensors& t) {
                   const auto [sum, y] = ops::add_rms_norm(t[0], t[1], t[2], 1e-6);
                   return Tensors{sum, y};
                 }});
}

void add_pointwise(std::vector<OperatorCase>& all) {
  const at::Tensor angle = numbers({9, 32}, 6);
  for (const int64_t head : {64, 80})  // every element of a head turns; 64 of them do
    all.push_back({"rope",
                   head == 64 ? "whole heads" : "a part of each head",
                   {numbers({9, 4, head}, 4), numbers({9, 2, head}, 5)},
                   [angle](const Tensors& t) {
                     const at::Tensor a = angle.to(at::kFloat);
                     const auto [q, k] = ops::rope(t[0], t[1], a.cos().to(t[0].device()), a.sin().to(t[0].device()));
                     return Tensors{q, k};
                   }});
  all.push_back({"rope_table", "", {numbers({1}, 40)}, [](const Tensors& t) {
                   const at::Tensor position = whole({0, 1, 5, 1000, 40000}).to(t[0].device());
                   const auto [cos, sin] = ops::rope_table(position, {1.0f, 0.1f, 0.01f}, {0, 0, 0}, 1.5, true);
                   return Tensors{cos.to(t[0].scalar_type()) * t[0], sin.to(t[0].scalar_type()) * t[0]};
                 }});
  // All devices drop the same elements.
  all.push_back({"dropped", "", {numbers({37, 33}, 41)}, [](const Tensors& t) {
                   const at::Tensor mask = dropped(at::ones(t[0].sizes(), t[0].options()), 0.3, 7, 12);
                   return Tensors{t[0] * mask};
                 }});
  all.push_back({"swiglu", "", {numbers({37, 128}, 7), numbers({37, 128}, 8)}, [](const Tensors& t) {
                   return Tensors{ops::swiglu(t[0], t[1])};
                 }});
}

void add_attention(std::vector<OperatorCase>& all, int64_t block) {
  struct Way {
    const char* what;
    int64_t head;
    ops::Mask mask;
  };
  const at::Tensor ends = ends_of({5, 1, 70});
  for (const Way& way : {Way{"causal, heads of 64", 64, {true, 0}}, Way{"causal, heads of 128", 128, {true, 0}},
                         Way{"window of 16", 64, {true, 16}}, Way{"everything is seen", 64, {false, 0}}})
    all.push_back({"attention",
                   way.what,
                   {numbers({76, 4, way.head}, 9), numbers({76, 2, way.head}, 10), numbers({76, 2, way.head}, 11)},
                   [ends, way](const Tensors& t) {
                     const at::Tensor cu = ends.to(at::kInt).to(t[0].device());
                     return Tensors{ops::attention(t[0], t[1], t[2], cu, cu, 70, 70, {0.1, way.mask})};
                   }});
  all.push_back({"attention_part",
                 "with the sums of its scores",
                 {numbers({76, 4, 64}, 9), numbers({76, 2, 64}, 10), numbers({76, 2, 64}, 11)},
                 [ends](const Tensors& t) {
                   const at::Tensor cu = ends.to(at::kInt).to(t[0].device());
                   const ops::Attended part = ops::attention_part(t[0], t[1], t[2], {cu, cu, 70, 70}, {0.1, {true, 0}});
                   return Tensors{part.out_TNH, part.lse_NT.to(t[0].scalar_type())};
                 },
                 false});
  struct Step {
    const char* what;
    int64_t head;
    std::vector<int64_t> q, k;
  };
  for (const Step& step : {Step{"one token a sequence, heads of 64", 64, {1, 1, 1}, {5, 2 * block - 3, 1}},
                           Step{"mixed lengths, heads of 64", 64, {3, 1, 7}, {9, block + 1, 7}},
                           Step{"mixed lengths, heads of 128", 128, {3, 1, 7}, {9, block + 1, 7}}}) {
    const at::Tensor cu_q = ends_of(step.q), cu_k = ends_of(step.k), table = whole({4, 2, 1, 0, 5, 3}).view({3, 2});
    all.push_back({"paged_attention",
                   step.what,
                   {numbers({cu_q[-1].item<int64_t>(), 4, step.head}, 12), numbers({6, block, 2, step.head}, 13),
                    numbers({6, block, 2, step.head}, 14)},
                   [cu_q, cu_k, table, block](const Tensors& t) {
                     const auto there = [&](const at::Tensor& x) { return x.to(at::kInt).to(t[0].device()); };
                     return Tensors{ops::paged_attention(t[0], t[1], t[2], there(cu_q), there(cu_k), there(table), 7,
                                                         2 * block, {0.1, {true, 0}})};
                   },
                   false});
  }
  all.push_back({"store_kv",
                 "",
                 {numbers({4, 2, 64}, 15), numbers({4, 2, 64}, 16)},
                 [block](const Tensors& t) {
                   at::Tensor k = at::zeros({3, block, 2, 64}, t[0].options()), v = at::zeros_like(k);
                   ops::store_kv(t[0], t[1], k, v, whole({0, block + 1, -1, 3 * block - 1}).to(t[0].device()));
                   return Tensors{k, v};
                 },
                 false});
}

// A weight of 64 x 96 held in codes; plain where the type is that of the truth.
using MakeWeight = std::function<std::shared_ptr<const quant::Matrix>(std::span<const float>, quant::Shape)>;
at::Tensor held_codes(const MakeWeight& make, at::ScalarType type, c10::Device device) {
  const at::Tensor wide = numbers({64, 96}, 21, 0.1).to(at::kFloat).contiguous();
  const std::shared_ptr<const quant::Matrix> matrix = make({wide.data_ptr<float>(), 64 * 96}, {64, 96});
  if (type == at::kDouble) return ops::dequantised(*matrix, 0, 64, at::kFloat).to(at::kDouble);
  return ops::quantised_tensor(matrix, type, device);
}

using Numbers = std::span<const float>;
std::shared_ptr<const quant::Matrix> of_a_book(Numbers weight, quant::Shape shape) {
  return quant::open_bnb4({"layer", quant::quantise_bnb4(weight, shape, {.block = 32})}, shape);
}
std::shared_ptr<const quant::Matrix> in_groups(Numbers weight, quant::Shape shape) {
  const quant::GptqForm form{.bits = 4, .group = 32};
  const auto whole = round_to_integers(weight, shape, form, /*symmetric=*/true);
  return quant::open_gptq({"layer", pack_gptq(whole, shape, form)}, shape, form);
}
std::shared_ptr<const quant::Matrix> in_groups_with_zeros(Numbers weight, quant::Shape shape) {
  return quant::open_awq({"layer", pack_awq(quant::round_to_awq(weight, shape, 32), shape)}, shape, 32);
}
std::shared_ptr<const quant::Matrix> a_scale_a_row(Numbers weight, quant::Shape shape) {
  return quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(weight, shape)}, shape);
}

at::Tensor four_bits(at::ScalarType type, c10::Device device) { return held_codes(of_a_book, type, device); }

// Products with whole numbers, which some vendors have operators for.
void add_coded_products(std::vector<OperatorCase>& all, const Tensors& x_and_bias) {
  const std::pair<const char*, MakeWeight> weights[] = {{"four bits in groups", in_groups_with_zeros},
                                                        {"eight bits, a scale a row", a_scale_a_row}};
  for (const auto& [name, make] : weights)
    all.push_back({"coded_linear", name, x_and_bias, [make = make](const Tensors& t) {
                     return Tensors{ops::linear(t[0], held_codes(make, t[0].scalar_type(), t[0].device()), t[1])};
                   }});
}

void add_products(std::vector<OperatorCase>& all) {
  const at::Tensor id = whole({3, 0, 3, 30});
  all.push_back({"embedding", "", {numbers({31, 96}, 17)}, [id](const Tensors& t) {
                   return Tensors{ops::embedding(id.to(t[0].device()), t[0])};
                 }});
  const Tensors layer{numbers({37, 96}, 18), numbers({64, 96}, 19, 0.1), numbers({64}, 20)};
  all.push_back({"linear", "", layer, [](const Tensors& t) { return Tensors{ops::linear(t[0], t[1], t[2])}; }});
  all.push_back(
      {"wide_linear", "", layer, [](const Tensors& t) { return Tensors{ops::wide_linear(t[0], t[1], t[2])}; }, false});
  all.push_back({"packed_linear", "", layer,
                 [](const Tensors& t) {
                   const at::Tensor packed = ops::pack_linear({t[1]});
                   // Undefined: this device gains nothing from packing that type.
                   return Tensors{packed.defined() ? ops::packed_linear(t[0], packed, t[2], 64)
                                                   : ops::linear(t[0], t[1], t[2])};
                 },
                 false});
  all.push_back({"coded_linear", "four bits", {layer[0], layer[2]}, [](const Tensors& t) {
                   return Tensors{ops::linear(t[0], four_bits(t[0].scalar_type(), t[0].device()), t[1])};
                 }});
  add_coded_products(all, {layer[0], layer[2]});
  all.push_back({"coded_embedding",
                 "four bits",
                 {layer[2]},
                 [id](const Tensors& t) {
                   return Tensors{ops::embedding(id.to(t[0].device()), four_bits(t[0].scalar_type(), t[0].device()))};
                 },
                 false});
  all.push_back(
      {"plain_codes",
       "four bits",
       {layer[2]},
       [](const Tensors& t) { return Tensors{ops::plain_rows(four_bits(t[0].scalar_type(), t[0].device()), 32, 32)}; },
       false});
  all.push_back({"add_low_rank",
                 "",
                 {numbers({37, 64}, 21), numbers({37, 96}, 22), numbers({8, 96}, 23, 0.1), numbers({64, 8}, 24)},
                 [](const Tensors& t) {
                   at::Tensor y = t[0].clone();
                   const at::Tensor h = ops::add_low_rank(y, t[1], t[2], t[3], 0.5);
                   const auto [dx, da, db] = ops::low_rank_backward(t[0], t[1], h, t[2], t[3], 0.5, {true, true, true});
                   return Tensors{y, dx, da, db};
                 },
                 false});
  const at::Tensor label = whole({0, 5, -100, 30, 7});
  const Tensors head{numbers({5, 96}, 25), numbers({31, 96}, 26, 0.1)};
  all.push_back(
      {"head_loss", "", head, [label](const Tensors& t) {
         const at::Tensor weight = at::tensor({1.0, 0.5, 1.0, 2.0, 1.0}, at::kFloat);
         const auto loss = ops::head_loss({t[0], t[1]}, label.to(t[0].device()), weight.to(t[0].device()), {});
         return Tensors{loss.loss_sum};
       }});
  all.push_back({"head_logprob", "", head, [label](const Tensors& t) {
                   const auto out = ops::head_logprob({t[0], t[1]}, label.to(t[0].device()), 0.7, true);
                   return Tensors{out.logprob_T, out.entropy_T};
                 }});
  const at::Tensor word = whole({0, 5, 12, 30, 7});
  all.push_back({"logit_logprob",
                 "",
                 {numbers({5, 31}, 27)},
                 [word](const Tensors& t) { return Tensors{ops::logit_logprob(t[0], word.to(t[0].device()), 0.7)}; },
                 false});
  all.push_back({"softcapped",
                 "",
                 {numbers({5, 31}, 27)},
                 [](const Tensors& t) { return Tensors{ops::softcapped(t[0], 2.0)}; },
                 false});
  all.push_back({"draw_tokens",
                 "greedy, of all, and with each filter",
                 {numbers({6, 3000}, 28)},
                 [](const Tensors& t) {
                   const std::vector<ops::DrawRule> rules{
                       {.row = 5, .temperature = 0, .logprob = 1},
                       {.row = 4, .temperature = 0.7, .number = 0.31, .logprob = 2},
                       {.row = 3, .temperature = 1.3, .top_k = 50, .number = 0.52, .logprob = 1},
                       {.row = 2, .temperature = 1, .top_p = 0.9, .number = 0.73, .logprob = 1},
                       {.row = 1, .temperature = 1, .min_p = 0.05, .number = 0.27, .logprob = 1},
                       {.row = 0, .temperature = 2, .epsilon_cutoff = 1e-3, .number = 0.64, .logprob = 2}};
                   return Tensors{ops::draw_tokens(t[0], rules)};
                 },
                 false});
}

// Of three experts, each 64 x 96, of which the second gets no rows.
at::Tensor multiplied_in_runs(const MakeWeight& make, const at::Tensor& x) {
  std::vector<std::shared_ptr<const quant::Matrix>> experts;
  for (int e = 0; e < 3; ++e) {
    const at::Tensor wide = numbers({64, 96}, 40 + e, 0.1).to(at::kFloat).contiguous();
    experts.push_back(make({wide.data_ptr<float>(), 64 * 96}, {64, 96}));
  }
  const at::Tensor ends = whole({3, 3, 9}).to(x.device());
  if (x.scalar_type() == at::kDouble) {
    std::vector<at::Tensor> plain;
    for (const auto& matrix : experts) plain.push_back(ops::dequantised(*matrix, 0, 64, at::kFloat).to(at::kDouble));
    return ops::grouped_linear(x, at::stack(plain), ends);
  }
  const auto entry = [&](int64_t e) { return ops::StackEntry{experts[static_cast<size_t>(e)], {}}; };
  return ops::quantised_grouped_linear(x, ops::quantised_stack(3, entry, {3, 64, 96}, x.scalar_type(), x.device()),
                                       ends);
}

void add_quantised_experts(std::vector<OperatorCase>& all) {
  const std::pair<const char*, MakeWeight> weights[] = {{"four bits of a book", of_a_book},
                                                        {"four bits in groups", in_groups},
                                                        {"four bits in groups, with zeros", in_groups_with_zeros},
                                                        {"eight bits, a scale a row", a_scale_a_row}};
  for (const auto& [name, make] : weights)
    all.push_back({"coded_grouped_linear", name, {numbers({9, 96}, 39)}, [make = make](const Tensors& t) {
                     return Tensors{multiplied_in_runs(make, t[0])};
                   }});
}

void add_experts(std::vector<OperatorCase>& all) {
  // No two of a row are alike: which of them comes first is each device's own affair.
  const at::Tensor ranked =
      at::arange(37 * 8, at::kDouble).mul(5).add(at::arange(37).repeat_interleave(8)).remainder(8);
  all.push_back({"route_topk", "", {ranked.view({37, 8}) / 2}, [](const Tensors& t) {
                   return Tensors{ops::route_topk(t[0], 2, true).weight_Tk};
                 }});
  const at::Tensor expert = whole({0, 1, 2, 1, 0, 2, 0, 2}).view({4, 2});  // of four experts: the last gets nothing
  all.push_back(
      {"moe_ffn",
       "",
       {numbers({4, 64}, 28), numbers({4, 2}, 29), numbers({4, 64, 64}, 30, 0.1), numbers({4, 64, 32}, 31, 0.1)},
       [expert](const Tensors& t) { return Tensors{ops::moe_ffn(t[0], t[1], expert.to(t[0].device()), t[2], t[3])}; }});
  const at::Tensor ends = whole({3, 3, 9});
  all.push_back({"grouped_linear",
                 "",
                 {numbers({9, 64}, 32), numbers({3, 32, 64}, 33, 0.1), numbers({9, 32}, 34)},
                 [ends](const Tensors& t) {
                   const at::Tensor there = ends.to(t[0].device());
                   const auto [dx, dweight] = ops::grouped_linear_backward(t[2], t[0], {t[1]}, there, {true, true});
                   return Tensors{ops::grouped_linear(t[0], {t[1]}, there), dx, dweight};
                 },
                 false});
}

void add_optimizers(std::vector<OperatorCase>& all) {
  const Tensors weights{numbers({20, 30}, 35), numbers({20, 30}, 36)};
  const ops::AdamwStep step{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1};
  all.push_back({"adamw", "", weights,
                 [step](const Tensors& t) {
                   const auto wide = t[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
                   at::Tensor param = t[0].clone(), m = at::zeros(t[0].sizes(), t[0].options().dtype(wide)),
                              v = at::zeros_like(m), master = t[0].to(wide, /*non_blocking=*/false, /*copy=*/true);
                   ops::adamw(param, t[1], m, v, master, step);
                   return Tensors{param, master, m, v};
                 },
                 false});
  all.push_back(
      {"adamw_8bit", "", weights,
       [step](const Tensors& t) {
         const auto none = [&](int64_t count, at::ScalarType type) {
           return at::zeros({count}, t[0].options().dtype(type));
         };
         ops::Moments8 moments{none(600, at::kChar), none(3, at::kFloat), none(600, at::kByte), none(3, at::kFloat)};
         at::Tensor param = t[0].clone(), master = t[0].to(at::kFloat, false, /*copy=*/true);
         ops::adamw_8bit(param, t[1], moments, master, step);
         return Tensors{param, master};
       },
       false});
  all.push_back({"sum_of_squares", "", weights,
                 [](const Tensors& t) {
                   return Tensors{at::tensor({ops::sum_of_squares({t[0], t[1]})}, at::kDouble)};
                 },
                 false});
}

void add_states(std::vector<OperatorCase>& all) {
  for (const bool corrects : {false, true})
    all.push_back({"state_scan_on",
                   corrects ? "values correct what is there" : "values are added",
                   {numbers({9, 2, 16}, 60, 0.25), numbers({9, 2, 16}, 61, 0.25), numbers({9, 4, 24}, 62),
                    numbers({9, 4}, 63), numbers({9, 4}, 64)},
                   [corrects](const Tensors& t) {
                     const auto wide = [](const at::Tensor& x) {
                       return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
                     };
                     const ops::StateInputs in{wide(t[0]), wide(t[1]), wide(t[2]), wide(t[3]).abs().neg(),
                                               corrects ? wide(t[4]).sigmoid() : at::Tensor()};
                     const at::Tensor state = at::zeros({2, 4, 16, 24}, in.v_TNV.options());
                     const at::Tensor y = ops::state_scan_on(in, {6, 3}, whole({1, 0}).to(t[0].device()), state);
                     return Tensors{y, state};
                   },
                   false});
}

}  // namespace

std::vector<OperatorCase> operator_cases(int64_t block) {
  std::vector<OperatorCase> all;
  add_norms(all);
  add_pointwise(all);
  add_attention(all, block);
  add_products(all);
  add_experts(all);
  add_quantised_experts(all);
  add_states(all);
  add_optimizers(all);
  return all;
}

}  // namespace apus
