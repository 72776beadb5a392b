// SPDX-License-Identifier: Apache-2.0
// The vendor's attention operators, computed plainly, strict about the documented rules: cumulative lengths on the
// host, the compressed causal mask, head and block sizes.
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "ascendcl.h"
#include "sim_ops.h"

namespace sim {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

void check_mask(const Args& a) {
  const at::Tensor mask = a.tensor("atten_mask");
  SIM_REFUSE(mask.scalar_type() == at::kBool && mask.dim() == 2 && mask.size(0) == 2048 && mask.size(1) == 2048,
             "atten_mask must be the compressed 2048 x 2048");
  SIM_REFUSE(mask.equal(at::ones({2048, 2048}, at::kBool).triu(1)), "atten_mask must be true above the diagonal");
}

// What query i of q may not see of k keys, [q, k]; undefined: nothing is hidden.
at::Tensor hidden(int64_t mode, int64_t before, int64_t after, int64_t q, int64_t k) {
  if (mode == 0) return {};
  SIM_REFUSE(mode == 3 || mode == 4, "the simulator knows sparse_mode 0, 3 and 4");
  const at::Tensor position = at::arange(k - q, k).unsqueeze(1), key = at::arange(k).unsqueeze(0);
  if (mode == 3) return key > position;
  return (key > position + after).logical_or(key < position - before);
}

// Scores of one sequence: q [q, N, D], k [k, K, D] -> [N, q, k] in f32.
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, double scale, const at::Tensor& mask) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.to(at::kFloat).repeat_interleave(group, 1).permute({1, 2, 0});
  at::Tensor s = at::matmul(q.to(at::kFloat).transpose(0, 1), keys) * scale;
  return mask.defined() ? s.masked_fill(mask, kMinusInfinity) : s;
}

at::Tensor values_of(const at::Tensor& v, int64_t heads) {
  return v.to(at::kFloat).repeat_interleave(heads / v.size(1), 1).transpose(0, 1);
}

struct Packed {
  explicit Packed(const Args& a)
      : q(a.tensor("query")),
        k(a.tensor("key")),
        v(a.tensor("value")),
        ends_q(a.list("actual_seq_qlen")),
        ends_k(a.list("actual_seq_kvlen")) {
    SIM_REFUSE(a["input_layout"].toStringRef() == "TND" && q.dim() == 3, "the simulator knows layout TND");
    SIM_REFUSE(a.integer("head_num") == q.size(1) && q.size(1) % k.size(1) == 0, "head_num");
    SIM_REFUSE(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(),
               "one type for query, key and value");
    SIM_REFUSE(
        ends_q.size() == ends_k.size() && !ends_q.empty() && ends_q.back() == q.size(0) && ends_k.back() == k.size(0),
        "lengths must be cumulative, without the leading 0");
    mode = a.integer("sparse_mode"), before = a.integer("pre_tockens"), after = a.integer("next_tockens");
    if (mode >= 2) check_mask(a);
  }
  template <class Fn>
  void each(Fn&& fn) const {
    int64_t q0 = 0, k0 = 0;
    for (size_t s = 0; s < ends_q.size(); q0 = ends_q[s], k0 = ends_k[s], ++s) {
      const int64_t nq = ends_q[s] - q0, nk = ends_k[s] - k0;
      SIM_REFUSE(nq > 0 && nk > 0, "an empty sequence");
      fn(q0, nq, k0, nk, hidden(mode, before, after, nq, nk));
    }
  }
  at::Tensor q, k, v;
  std::vector<int64_t> ends_q, ends_k;
  int64_t mode = 0, before = 0, after = 0;
};

// The statistics of a sequence, [N, q], into its block of the flat [T * N, 8]: sequence by sequence, head by head.
void put(at::Tensor& all_TN8, int64_t q0, const at::Tensor& part) {
  all_TN8.view({-1, 8}).narrow(0, q0 * part.size(0), part.numel()).copy_(part.reshape({-1, 1}).expand({-1, 8}));
}
at::Tensor get(const at::Tensor& all_TN8, int64_t q0, int64_t heads, int64_t nq) {
  return all_TN8.reshape({-1, 8}).narrow(0, q0 * heads, heads * nq).select(1, 0).view({heads, nq, 1});
}

void fusion_attention(Args& a) {
  const Packed p(a);
  const int64_t heads = p.q.size(1);
  at::Tensor out = at::empty({p.q.size(0), heads, p.v.size(2)}, p.q.options());
  at::Tensor max = at::empty({p.q.size(0), heads, 8}, at::kFloat), sum = at::empty_like(max);
  p.each([&](int64_t q0, int64_t nq, int64_t k0, int64_t nk, const at::Tensor& mask) {
    const at::Tensor s = scores(p.q.narrow(0, q0, nq), p.k.narrow(0, k0, nk), a.number("scale"), mask),
                     top = s.amax(-1, true);
    const at::Tensor e = (s - top).exp(), total = e.sum(-1, true);
    out.narrow(0, q0, nq).copy_(at::matmul(e / total, values_of(p.v.narrow(0, k0, nk), heads)).transpose(0, 1));
    put(max, q0, top.squeeze(-1)), put(sum, q0, total.squeeze(-1));
  });
  a.results({out, max, sum, at::empty({0}, p.q.options()), int64_t{0}, int64_t{0}, int64_t{0}});
}

void fusion_attention_grad(Args& a) {
  const Packed p(a);
  const at::Tensor dy = a.tensor("dy"), out = a.tensor("attention_in"), max = a.tensor("softmax_max"),
                   sum = a.tensor("softmax_sum");
  SIM_REFUSE(max.dim() == 3 && max.size(2) == 8 && max.sizes() == sum.sizes() && max.scalar_type() == at::kFloat,
             "softmax_max");
  // Absent, or of the query's type: the kernels there are for combinations of types are those of one type. An empty
  // tensor of one dimension is there.
  SIM_REFUSE(!a.given("softmax_in") || a.tensor("softmax_in").scalar_type() == p.q.scalar_type(),
             "no kernel for softmax_in of type ", a.tensor("softmax_in").scalar_type(), " (561103)");
  const int64_t heads = p.q.size(1), group = heads / p.k.size(1);
  const double scale = a.number("scale_value");
  at::Tensor dq = at::empty_like(p.q), dk = at::empty_like(p.k), dv = at::empty_like(p.v);
  const auto by_key_head = [&](const at::Tensor& x_Nkd) {
    return x_Nkd.view({-1, group, x_Nkd.size(1), x_Nkd.size(2)}).sum(1).transpose(0, 1);
  };
  p.each([&](int64_t q0, int64_t nq, int64_t k0, int64_t nk, const at::Tensor& mask) {
    const at::Tensor q = p.q.narrow(0, q0, nq), k = p.k.narrow(0, k0, nk);
    const at::Tensor prob = (scores(q, k, scale, mask) - get(max, q0, heads, nq)).exp() / get(sum, q0, heads, nq);
    const at::Tensor g = dy.narrow(0, q0, nq).to(at::kFloat).transpose(0, 1),
                     o = out.narrow(0, q0, nq).to(at::kFloat).transpose(0, 1);
    const at::Tensor dprob = at::matmul(g, values_of(p.v.narrow(0, k0, nk), heads).transpose(1, 2));
    const at::Tensor ds = prob * (dprob - (g * o).sum(-1, true)) * scale;
    dq.narrow(0, q0, nq).copy_(
        at::matmul(ds, k.to(at::kFloat).repeat_interleave(group, 1).transpose(0, 1)).transpose(0, 1));
    dk.narrow(0, k0, nk).copy_(by_key_head(at::matmul(ds.transpose(1, 2), q.to(at::kFloat).transpose(0, 1))));
    dv.narrow(0, k0, nk).copy_(by_key_head(at::matmul(prob.transpose(1, 2), g)));
  });
  a.results({dq, dk, dv, at::empty({0}, p.q.options())});
}

void check_infer(const Args& a, const at::Tensor& q, const at::Tensor& k, bool tnd, int64_t longest) {
  const int64_t block = a.integer("block_size"), head = q.size(-1);
  SIM_REFUSE(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16, "query must be f16 or bf16");
  SIM_REFUSE(k.scalar_type() == q.scalar_type() && k.dim() == 3 && k.size(1) == block,
             "the cache must be [blocks, block_size, heads * size]");
  SIM_REFUSE(k.size(2) == a.integer("num_key_value_heads") * head, "num_key_value_heads");
  SIM_REFUSE(!tnd || head == 128, "layout TND takes heads of 128");
  int major = 0, minor = 0;
  aclCANNPackageVersion cann;
  aclsysGetCANNVersion(0, &cann);
  std::sscanf(cann.version, "%d.%d", &major, &minor);
  SIM_REFUSE(!tnd || (q.scalar_type() == at::kBFloat16 && std::pair(major, minor) >= std::pair(8, 3)),
             "layout TND takes a cache in blocks in bf16, from CANN 8.3 on");
  const int64_t heads = a.integer("num_heads"), key_heads = a.integer("num_key_value_heads");
  SIM_REFUSE(heads <= 256 && heads <= 64 * key_heads && key_heads * head <= 65535, "num_heads ", heads, ", ",
             key_heads);
  SIM_REFUSE(block % 16 == 0 && (tnd            ? block <= 1024
                                 : longest == 1 ? block <= 512
                                                : block % 128 == 0 && block <= 512),
             "block_size ", block);
  SIM_REFUSE(a.tensor("block_table").scalar_type() == at::kInt, "block_table's type");
}

void fused_infer(Args& a) {
  const at::Tensor q = a.tensor("query"), k = a.tensor("key"), v = a.tensor("value"), table = a.tensor("block_table");
  const bool tnd = a["input_layout"].toStringRef() == "TND";
  SIM_REFUSE(tnd || a["input_layout"].toStringRef() == "BSND", "the simulator knows layouts TND and BSND");
  const std::vector<int64_t> lengths_q = a.list("actual_seq_lengths"), lengths_k = a.list("actual_seq_lengths_kv");
  SIM_REFUSE(lengths_q.size() == lengths_k.size(), "lengths");
  const int64_t heads = a.integer("num_heads"), head = q.size(-1), key_heads = a.integer("num_key_value_heads"),
                block = a.integer("block_size");
  const int64_t longest = tnd ? 2 : q.size(1);
  check_infer(a, q, k, tnd, longest);
  const int64_t mode = !tnd && longest == 1 ? 0 : a.integer("sparse_mode");
  if (mode >= 2) check_mask(a);
  at::Tensor out = at::zeros_like(q);
  int64_t begin = 0;
  for (size_t s = 0; s < lengths_q.size(); ++s) {
    const int64_t nq = tnd ? lengths_q[s] - begin : lengths_q[s], nk = lengths_k[s];
    const at::Tensor blocks = table[static_cast<int64_t>(s)].narrow(0, 0, (nk + block - 1) / block).to(at::kLong);
    const auto gathered = [&](const at::Tensor& cache) {
      return cache.index_select(0, blocks).view({-1, key_heads, head}).narrow(0, 0, nk);
    };
    const at::Tensor mine = tnd ? q.narrow(0, begin, nq) : q[static_cast<int64_t>(s)].narrow(0, 0, nq);
    const at::Tensor sc = scores(mine, gathered(k), a.number("scale"),
                                 hidden(mode, a.integer("pre_tokens"), a.integer("next_tokens"), nq, nk));
    const at::Tensor y = at::matmul(at::softmax(sc, -1), values_of(gathered(v), heads)).transpose(0, 1);
    (tnd ? out.narrow(0, begin, nq) : out[static_cast<int64_t>(s)].narrow(0, 0, nq)).copy_(y);
    begin += nq;
  }
  a.results({out, at::zeros({1}, at::kFloat)});
}

}  // namespace

#define LENGTHS                                                                                             \
  "int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool " \
  "gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\""

std::vector<Operator> attention_operators() {
  return {
      {"npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
       "Tensor? padding_mask=None, Tensor? "
       "atten_mask=None, float scale=1., float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, "
       "int inner_precise=0, " LENGTHS ") -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
       fusion_attention, "aclnnFlashAttentionVarLenScore"},
      {"npu_fusion_attention_grad(Tensor query, Tensor key, Tensor value, Tensor dy, int head_num, str input_layout, "
       "*, Tensor? pse=None, Tensor? "
       "padding_mask=None, Tensor? atten_mask=None, Tensor? softmax_max=None, Tensor? softmax_sum=None, Tensor? "
       "softmax_in=None, Tensor? attention_in=None, "
       "float scale_value=1., float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int "
       "inner_precise=0, int seed=0, int offset=0, int "
       "numels=0, " LENGTHS ") -> (Tensor, Tensor, Tensor, Tensor)",
       fusion_attention_grad, "aclnnFlashAttentionUnpaddingScoreGrad"},
      {"npu_fused_infer_attention_score(Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? "
       "atten_mask=None, SymInt[]? "
       "actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, Tensor? "
       "quant_scale1=None, Tensor? dequant_scale2=None, "
       "Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? antiquant_scale=None, Tensor? "
       "antiquant_offset=None, Tensor? key_antiquant_scale=None, "
       "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
       "Tensor? block_table=None, Tensor? "
       "query_padding_size=None, Tensor? kv_padding_size=None, Tensor? key_shared_prefix=None, Tensor? "
       "value_shared_prefix=None, SymInt[]? "
       "actual_shared_prefix_len=None, Tensor? query_rope=None, Tensor? key_rope=None, Tensor? "
       "key_rope_antiquant_scale=None, int num_heads=1, float scale=1.0, "
       "int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout=\"BSH\", int num_key_value_heads=0, "
       "int sparse_mode=0, int inner_precise=0, int "
       "block_size=0, int antiquant_mode=0, int key_antiquant_mode=0, int value_antiquant_mode=0, bool "
       "softmax_lse_flag=False) -> (Tensor, Tensor)",
       fused_infer, "aclnnFusedInferAttentionScoreV3"},
  };
}

}  // namespace sim
