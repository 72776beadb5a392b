// SPDX-License-Identifier: Apache-2.0
// The vendor's fused operators but attention, under the schemas of torch_npu 2.7.1, computed plainly. They are strict
// about what the documentation says of shapes and types. APUS_SIM_WITHOUT (names with commas between) leaves some out,
// as another version of the library would.
#include "sim_ops.h"

#include <dlfcn.h>

#include <cmath>
#include <sstream>

#include "ascendcl.h"

namespace sim {

void check_offered(const Operator& op) {
  const std::string soc = aclrtGetSocName();
  TORCH_CHECK(soc.find("910B") != std::string::npos || soc.find("910_93") != std::string::npos,
              "call aclnn failed, error code is 561103: no binary of ", op.schema, " for ", soc);
  if (!op.function) return;
  void* library = ::dlopen("libopapi.so", RTLD_LAZY);
  TORCH_CHECK(library && ::dlsym(library, op.function), op.function, " or ", op.function,
              "GetWorkspaceSize not in libopapi.so, or libopapi.so not found");
}

namespace {

at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat); }

// ---- norms, rotary embedding, activation

void norm_into(Args& a, const at::Tensor& x,
               std::vector<c10::IValue> (*order)(const at::Tensor&, const at::Tensor&, const at::Tensor&)) {
  const at::Tensor gamma = a.tensor("gamma");
  SIM_REFUSE(gamma.dim() == 1 && gamma.size(0) == x.size(-1), "gamma's shape");
  SIM_REFUSE(gamma.scalar_type() == x.scalar_type() || gamma.scalar_type() == at::kFloat, "gamma's type");
  const at::Tensor rstd = at::rsqrt(wide(x).square().mean(-1, true) + a.number("epsilon"));
  a.results(order((wide(x) * rstd * wide(gamma)).to(x.scalar_type()), rstd, x));
}

void rms_norm(Args& a) {
  norm_into(a, a.tensor("self"), [](const at::Tensor& y, const at::Tensor& rstd, const at::Tensor&) {
    return std::vector<c10::IValue>{y, rstd};
  });
}

void add_rms_norm(Args& a) {
  norm_into(a, a.tensor("x1") + a.tensor("x2"), [](const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x) {
    return std::vector<c10::IValue>{y, rstd, x};
  });
}

void rms_norm_backward(Args& a) {
  const at::Tensor x = a.tensor("self"), normal = wide(x) * a.tensor("rstd"), dy = wide(a.tensor("dy")),
                   g = dy * wide(a.tensor("gamma"));
  SIM_REFUSE(a.tensor("dy").scalar_type() == x.scalar_type(), "dy's type");
  const at::Tensor dx = a.tensor("rstd") * (g - normal * (g * normal).mean(-1, true));
  a.results({dx.to(x.scalar_type()), (dy * normal).reshape({-1, x.size(-1)}).sum(0)});
}

void rotary_mul(Args& a) {
  const at::Tensor x = a.tensor("self"), cos = a.tensor("r1"), sin = a.tensor("r2");
  SIM_REFUSE(x.dim() == 4 && cos.dim() == 4 && cos.sizes() == sin.sizes(), "four dimensions are wanted");
  SIM_REFUSE(x.size(3) % 2 == 0 && x.size(3) < 896 && x.size(0) < 1000 && x.size(2) < 1000 && cos.size(3) == x.size(3),
             "the size of heads");
  SIM_REFUSE(cos.scalar_type() == x.scalar_type(), "cos has another type");
  const int64_t half = x.size(3) / 2;
  const at::Tensor turned = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3);
  a.results({(wide(x) * wide(cos) + wide(turned) * wide(sin)).to(x.scalar_type())});
}

void swiglu(Args& a) {
  const at::Tensor x = wide(a.tensor("self"));
  const int64_t dim = a.integer("dim"), f = x.size(dim) / 2;
  a.results({(at::silu(x.narrow(dim, 0, f)) * x.narrow(dim, f, f)).to(a.tensor("self").scalar_type())});
}

void swiglu_backward(Args& a) {
  const at::Tensor x = wide(a.tensor("self")), grad = wide(a.tensor("grad_output"));
  const int64_t dim = a.integer("dim"), f = x.size(dim) / 2;
  const at::Tensor gate = x.narrow(dim, 0, f), s = at::sigmoid(gate);
  a.results({at::cat({grad * x.narrow(dim, f, f) * s * (1 + gate * (1 - s)), grad * gate * s}, dim)
                 .to(a.tensor("self").scalar_type())});
}

// ---- mixture of experts

void gating(Args& a) {
  const at::Tensor x = a.tensor("x");
  auto [weight, expert] = at::topk(at::softmax(wide(x), -1), a.integer("k"), -1);
  const at::Tensor rows = at::arange(weight.numel(), at::kInt).view({weight.size(1), weight.size(0)}).t().contiguous();
  a.results({weight.to(x.scalar_type()), expert.to(at::kInt), rows});
}

void token_permute(Args& a) {
  const at::Tensor indices = a.tensor("indices");
  SIM_REFUSE(indices.scalar_type() == at::kInt || indices.scalar_type() == at::kLong, "indices' type");
  const int64_t k = indices.dim() == 1 ? 1 : indices.size(1);
  const at::Tensor order = at::argsort(indices.reshape(-1), true, 0, false);
  a.results(
      {a.tensor("tokens").index_select(0, order.floor_divide(k)), at::argsort(order, true, 0, false).to(at::kInt)});
}

void token_permute_grad(Args& a) {
  const at::Tensor grad = a.tensor("grad_permuted_tokens"), place = a.tensor("sorted_indices").to(at::kLong);
  const int64_t tokens = a.tensor("tokens").size(0);
  a.results({wide(grad).index_select(0, place).view({tokens, -1, grad.size(1)}).sum(1).to(grad.scalar_type())});
}

void token_unpermute(Args& a) {
  const at::Tensor rows = a.tensor("permuted_tokens"), probs = a.tensor("probs");
  SIM_REFUSE(probs.scalar_type() == rows.scalar_type(), "probs' type");
  const at::Tensor picked = wide(rows)
                                .index_select(0, a.tensor("sorted_indices").to(at::kLong))
                                .view({probs.size(0), probs.size(1), rows.size(1)});
  a.results({(picked * wide(probs).unsqueeze(-1)).sum(1).to(rows.scalar_type())});
}

void token_unpermute_grad(Args& a) {
  const at::Tensor rows = a.tensor("permuted_tokens"), probs = a.tensor("probs"),
                   place = a.tensor("sorted_indices").to(at::kLong);
  const at::Tensor grad = wide(a.tensor("grad_unpermuted_tokens")).unsqueeze(1);  // [T, 1, D]
  const at::Tensor picked = wide(rows).index_select(0, place).view({probs.size(0), probs.size(1), rows.size(1)});
  at::Tensor drows = at::empty(rows.sizes(), at::kFloat);
  drows.index_copy_(0, place, (grad * wide(probs).unsqueeze(-1)).reshape({-1, rows.size(1)}));
  a.results({drows.to(rows.scalar_type()), (picked * grad).sum(-1).to(probs.scalar_type())});
}

// ---- quantised weights

// int32 [K, N / 8], eight numbers with a sign in each, the lowest bits first -> f32 [K, N].
at::Tensor unpacked(const at::Tensor& words) {
  std::vector<at::Tensor> numbers;
  for (int64_t i = 0; i < 8; ++i)
    numbers.push_back(words.bitwise_right_shift(4 * i).bitwise_and(15).add(8).remainder(16).sub(8));
  return at::stack(numbers, -1).view({words.size(0), -1}).to(at::kFloat);
}

// The matrices of quantised experts [E, K, N], plain in f32: of eight bits, with a scale and an offset a column; of
// four, with those of groups of k too, where all offsets are 0.
at::Tensor plain_experts(Args& a, const at::Tensor& x, const at::Tensor& w) {
  const bool four = w.scalar_type() == at::kInt;
  SIM_REFUSE(x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16, "x's type");
  SIM_REFUSE(four || w.scalar_type() == at::kChar, "weight's type");
  SIM_REFUSE(w.dim() == 3 && w.is_contiguous() && a.integer("group_type") == 0, "weight");
  const int64_t experts = w.size(0), k = w.size(1), n = w.size(2) * (four ? 8 : 1);
  SIM_REFUSE(k < 65536 && n < 65536, "k and n");
  SIM_REFUSE(!a["antiquant_scale"].isNone() && !a["antiquant_offset"].isNone(), "scales and offsets");
  const auto scales = a["antiquant_scale"].toTensorVector(), offsets = a["antiquant_offset"].toTensorVector();
  SIM_REFUSE(scales.size() == 1 && offsets.size() == 1, "a list of one each");
  const at::Tensor scale = scales[0], offset = offsets[0];
  SIM_REFUSE(scale.sizes() == offset.sizes() && scale.is_contiguous() && offset.is_contiguous(), "sizes");
  SIM_REFUSE(scale.scalar_type() == x.scalar_type() && offset.scalar_type() == x.scalar_type(), "types of scales");
  SIM_REFUSE(scale.size(0) == experts && scale.size(-1) == n, "antiquant_scale");
  const bool groups = scale.dim() == 3;
  SIM_REFUSE(groups || scale.dim() == 2, "antiquant_scale [E, N] or [E, G, N]");
  SIM_REFUSE(!groups || (four && k % scale.size(1) == 0), "groups are of four bits, and divide k");
  SIM_REFUSE(!groups || !offset.ne(0).any().item<bool>(), "with groups nothing is added to codes");
  const int64_t each = groups ? k / scale.size(1) : k;
  const auto by_row = [&](const at::Tensor& t) {
    return (groups ? wide(t) : wide(t).unsqueeze(1)).repeat_interleave(each, 1);
  };
  const at::Tensor numbers = four ? unpacked(w.reshape({experts * k, -1})).view({experts, k, n}) : wide(w);
  return numbers.add(by_row(offset)).mul(by_row(scale));
}

void grouped_matmul(Args& a) {
  const auto xs = a["x"].toTensorVector(), weights = a["weight"].toTensorVector();
  SIM_REFUSE(xs.size() == 1 && weights.size() == 1, "the simulator takes one tensor each");
  SIM_REFUSE(!a["group_type"].isNone(), "group_type must be given");
  const at::Tensor x = xs[0], ends = a.tensor("group_list");
  const bool plain = x.scalar_type() == weights[0].scalar_type();
  SIM_REFUSE(!plain || a["antiquant_scale"].isNone(), "plain weights have no scales");
  const at::Tensor w = plain ? weights[0] : plain_experts(a, x, weights[0]);
  SIM_REFUSE(ends.scalar_type() == at::kLong && a.integer("group_list_type") == 0, "types");
  const bool rows = a.integer("group_type") == 0;
  SIM_REFUSE(rows ? w.dim() == 3 && w.size(0) == ends.numel() && w.size(1) == x.size(1)
                  : a.integer("group_type") == 2 && x.size(1) == w.size(0),
             "shapes");
  SIM_REFUSE(a.integer("split_item") == (rows ? 2 : 3), "split_item");
  at::Tensor out = rows ? at::zeros({x.size(0), w.size(2)}, x.options())
                        : at::zeros({ends.numel(), x.size(0), w.size(1)}, x.options());
  int64_t begin = 0;
  for (int64_t e = 0; e < ends.numel(); ++e) {
    const int64_t end = ends[e].item<int64_t>(), n = end - begin;
    SIM_REFUSE(n >= 0, "group_list falls");
    if (n > 0 && rows) out.narrow(0, begin, n).copy_(at::matmul(wide(x.narrow(0, begin, n)), wide(w[e])));
    if (n > 0 && !rows) out[e].copy_(at::matmul(wide(x.narrow(1, begin, n)), wide(w.narrow(0, begin, n))));
    begin = end;
  }
  a.results({std::vector<at::Tensor>{out}});
}

void weight_quant_batchmatmul(Args& a) {
  const at::Tensor x = a.tensor("x"), weight = a.tensor("weight"), scale = a.tensor("antiquant_scale");
  const bool four = weight.scalar_type() == at::kInt;
  SIM_REFUSE(x.dim() == 2 && weight.dim() == 2 && x.numel() > 0, "x and weight have two dimensions and are not empty");
  SIM_REFUSE(x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16, "x's type");
  SIM_REFUSE(four || weight.scalar_type() == at::kChar, "weight's type");
  SIM_REFUSE(x.is_contiguous() && weight.is_contiguous() && scale.is_contiguous(), "the simulator transposes nothing");
  const int64_t k = x.size(1), n = weight.size(1) * (four ? 8 : 1), group = a.integer("antiquant_group_size");
  SIM_REFUSE(weight.size(0) == k && k <= 65535 && n <= 65535, "k and n");
  SIM_REFUSE(group == 0 || (group >= 32 && group < k && group % 32 == 0),
             "antiquant_group_size is 0 or a multiple of 32 below k");
  const int64_t groups = group == 0 ? 1 : (k + group - 1) / group;
  SIM_REFUSE(
      scale.dim() == 2 && scale.size(0) == groups && scale.size(1) == n && scale.scalar_type() == x.scalar_type(),
      "antiquant_scale");
  // The vendor's computes something else then (seen with four bits in groups).
  SIM_REFUSE(a.given("antiquant_offset"), "antiquant_offset is wanted");
  const at::Tensor offset = a.tensor("antiquant_offset");
  SIM_REFUSE(offset.sizes() == scale.sizes() && offset.scalar_type() == x.scalar_type() && offset.is_contiguous(),
             "antiquant_offset");
  const int64_t each = group == 0 ? k : group;
  const auto by_row = [&](const at::Tensor& t) { return wide(t).repeat_interleave(each, 0).narrow(0, 0, k); };
  at::Tensor y = at::matmul(wide(x), (four ? unpacked(weight) : wide(weight)).add(by_row(offset)).mul(by_row(scale)));
  if (a.given("bias")) {
    const at::Tensor bias = a.tensor("bias");
    SIM_REFUSE(bias.dim() == 1 && bias.size(0) == n && bias.is_contiguous() &&
                   bias.scalar_type() == (x.scalar_type() == at::kHalf ? at::kHalf : at::kFloat),
               "bias");
    y = y + wide(bias);
  }
  a.results({y.to(x.scalar_type())});
}

void dynamic_quant(Args& a) {
  const at::Tensor x = a.tensor("input");
  SIM_REFUSE(x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16, "input's type");
  SIM_REFUSE(x.dim() >= 2 && x.numel() > 0, "input");
  const at::Tensor scale = wide(x).abs().amax(-1) / 127;
  a.results({(wide(x) / scale.unsqueeze(-1)).nan_to_num(0).round().to(at::kChar), scale});
}

void quant_matmul(Args& a) {
  const at::Tensor x = a.tensor("x1"), w = a.tensor("x2"), scale = a.tensor("scale"),
                   by_row = a.tensor("pertoken_scale");
  SIM_REFUSE(x.scalar_type() == at::kChar && w.scalar_type() == at::kChar, "x1 and x2 are int8");
  SIM_REFUSE(x.dim() == 2 && w.dim() == 2 && x.numel() > 0 && x.is_contiguous() && w.is_contiguous(), "x1 and x2");
  SIM_REFUSE(x.size(1) == w.size(0) && x.size(1) <= 65535 && w.size(1) <= 65535, "k and n");
  SIM_REFUSE(scale.scalar_type() == at::kFloat && scale.dim() == 1 && scale.size(0) == w.size(1), "scale");
  SIM_REFUSE(by_row.scalar_type() == at::kFloat && by_row.dim() == 1 && by_row.size(0) == x.size(0), "pertoken_scale");
  SIM_REFUSE(!a["output_dtype"].isNone(), "output_dtype: int8 otherwise");
  const auto type = static_cast<at::ScalarType>(a.integer("output_dtype"));
  SIM_REFUSE(type == at::kHalf || type == at::kBFloat16, "output_dtype");
  at::Tensor y = at::matmul(wide(x), wide(w)).mul(scale).mul(by_row.unsqueeze(1));
  if (a.given("bias")) {
    const at::Tensor bias = a.tensor("bias");
    SIM_REFUSE(bias.scalar_type() == at::kFloat && bias.dim() == 1 && bias.size(0) == w.size(1), "bias");
    y = y + bias;
  }
  a.results({y.to(type)});
}

// ---- optimizer

void adam_w_functional(Args&) { TORCH_CHECK(false, "npu_apply_adam_w is not implemented for Tensor"); }

void adam_w(Args& a) {
  at::Tensor var = a.tensor("var"), m = a.tensor("m"), v = a.tensor("v");
  const at::Tensor g = a.tensor("grad");
  for (const at::Tensor& t : {var, m, v, g})
    SIM_REFUSE(t.scalar_type() == at::kFloat && t.is_contiguous(), "f32 tensors are wanted");
  const double beta1 = a.number("beta1"), beta2 = a.number("beta2"), lr = a.number("lr");
  m.mul_(beta1).add_(g, 1 - beta1);
  v.mul_(beta2).addcmul_(g, g, 1 - beta2);
  const at::Tensor root = (v / (1 - a.number("beta2_power"))).sqrt_().add_(a.number("epsilon"));
  var.mul_(1 - lr * a.number("weight_decay")).addcdiv_(m, root, -lr / (1 - a.number("beta1_power")));
  a.results({var, m, v});
}

}  // namespace

#define ADAM_W_ARGUMENTS                                                                                        \
  "Scalar beta1_power, Scalar beta2_power, Scalar lr, Scalar weight_decay, Scalar beta1, Scalar beta2, Scalar " \
  "epsilon, Tensor grad, "                                                                                      \
  "Tensor? max_grad_norm, bool? amsgrad, bool? maximize"

std::vector<Operator> other_operators() {
  return {
      {"npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", rms_norm, "aclnnRmsNorm"},
      {"npu_rms_norm_backward(Tensor dy, Tensor self, Tensor gamma, Tensor rstd) -> (Tensor, Tensor)",
       rms_norm_backward, "aclnnRmsNormGrad"},
      {"npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
       add_rms_norm, "aclnnAddRmsNorm"},
      {"npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> Tensor", rotary_mul,
       "aclnnRotaryPositionEmbedding"},
      {"npu_swiglu(Tensor self, int dim=-1) -> Tensor", swiglu, "aclnnSwiGlu"},
      {"npu_swiglu_backward(Tensor grad_output, Tensor self, int dim=-1) -> Tensor", swiglu_backward,
       "aclnnSwiGluGrad"},
      {"npu_moe_gating_top_k_softmax(Tensor x, Tensor? finished=None, int k=1) -> (Tensor, Tensor, Tensor)", gating,
       "aclnnMoeGatingTopKSoftmax"},
      {"npu_moe_token_permute(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> "
       "(Tensor, Tensor)",
       token_permute, "aclnnMoeTokenPermute"},
      {"npu_moe_token_permute_grad(Tensor tokens, Tensor grad_permuted_tokens, Tensor indices, Tensor sorted_indices, "
       "bool padded_mode=False) -> Tensor",
       token_permute_grad, "aclnnMoeTokenPermuteGrad"},
      {"npu_moe_token_unpermute(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool "
       "padded_mode=False, int[]? restore_shape=None) -> Tensor",
       token_unpermute, "aclnnMoeTokenUnpermute"},
      {"npu_moe_token_unpermute_grad(Tensor permuted_tokens, Tensor grad_unpermuted_tokens, Tensor sorted_indices, "
       "Tensor? probs=None, bool "
       "padded_mode=False, int[]? restore_shape=None) -> (Tensor, Tensor)",
       token_unpermute_grad, "aclnnMoeTokenUnpermuteGrad"},
      {"npu_grouped_matmul(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? "
       "offset=None, Tensor[]? antiquant_scale=None, "
       "Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, Tensor? group_list=None, Tensor[]? "
       "activation_input=None, Tensor[]? "
       "activation_quant_scale=None, Tensor[]? activation_quant_offset=None, int? split_item=0, int? group_type=None, "
       "int? group_list_type=0, int? act_type=0, "
       "int[]? tuning_config=None, ScalarType? output_dtype=None) -> Tensor[]",
       grouped_matmul, "aclnnGroupedMatmulV4"},
      {"npu_weight_quant_batchmatmul(Tensor x, Tensor weight, Tensor antiquant_scale, Tensor? antiquant_offset=None, "
       "Tensor? quant_scale=None, Tensor? quant_offset=None, Tensor? bias=None, int antiquant_group_size=0, int "
       "inner_precise=0) -> Tensor",
       weight_quant_batchmatmul, "aclnnWeightQuantBatchMatmulV2"},
      {"npu_dynamic_quant(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, ScalarType? "
       "dst_type=None) -> (Tensor, Tensor)",
       dynamic_quant, "aclnnDynamicQuant"},
      {"npu_quant_matmul(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, Tensor? pertoken_scale=None, "
       "Tensor? "
       "bias=None, ScalarType? output_dtype=None, SymInt[]? group_sizes=None) -> Tensor",
       quant_matmul, "aclnnQuantMatmulV4"},
      {"npu_apply_adam_w(" ADAM_W_ARGUMENTS ") -> (Tensor, Tensor, Tensor)", adam_w_functional},
      {"npu_apply_adam_w.out(" ADAM_W_ARGUMENTS
       ", *, Tensor(a!) var, Tensor(b!) m, Tensor(c!) v) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
       adam_w},
  };
}

}  // namespace sim
