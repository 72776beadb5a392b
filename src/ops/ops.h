// SPDX-License-Identifier: Apache-2.0
// The fused operators, as typed functions. Each has its own .cpp with schema (namespace "apus"), a reference body from
// plain aten operators (correct on every device), a shape function and its gradient; devices/ may override any of them.
//
// Shape letters: T tokens, D hidden, N query heads, K key-value heads, H head size, F feed-forward, V vocabulary,
// S sequences, B cache blocks, P positions in a block, E experts, R rotated half.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

namespace apus::ops {

// y = x / rms(x) * weight over the last dimension; statistics in f32, the normalised value rounded to x's dtype before
// the multiplication by weight, as HuggingFace does.
at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);

// sum = x + delta; {sum, rms_norm(sum)}: one pass over memory.
std::tuple<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& x_TD, const at::Tensor& delta_TD,
                                                const at::Tensor& weight_D, double eps);

// Rotary embedding, halves convention: the first 2R of the H elements of each head turn,
// the rest pass. cos, sin are f32.
std::tuple<at::Tensor, at::Tensor> rope(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& cos_TR,
                                        const at::Tensor& sin_TR);

// silu(gate) * up
at::Tensor swiglu(const at::Tensor& gate_TF, const at::Tensor& up_TF);

// What an attention call may look at. Query i of a sequence with q queries and k keys stands at position k - q + i.
struct Mask {
  bool causal = true;
  // > 0: sees keys j with position - window < j (with causal: j <= position). < 0, without causal: those nearer than
  // -window on either side.
  int64_t window = 0;
};

// How queries meet keys. Scores are products times `scale`, bent to softcap * tanh(score / softcap) where that is above
// 0. sinks_N (may be undefined): a score that each head has besides its keys', which takes a share of the softmax
// and has no value.
struct AttentionRule {
  double scale = 1;
  Mask mask = {};
  double softcap = 0;
  at::Tensor sinks_N = {};
};

// What attention gives, and per query the log of the sum of exp(scores), a sink's among them.
struct Attended {
  at::Tensor out_TNH, lse_NT;
};

// Attention over packed sequences, heads grouped (N a multiple of K), no mask tensor and no [T, T] matrix. Values may
// be of another size than queries and keys; the result has theirs. kept: receives the result; if it holds one already,
// that is recorded for the gradient and nothing is computed. cu_q, cu_k: [S + 1] int32 cumulative lengths on the
// tensors' device.
at::Tensor attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH, const at::Tensor& cu_q,
                     const at::Tensor& cu_k, int64_t max_q, int64_t max_k, const AttentionRule& rule,
                     Attended* kept = nullptr);

// The same over a paged cache (no gradient): k_cache, v_cache [B, P, K, H]; sequence s owns blocks block_table[s], and
// has cu_k[s + 1] - cu_k[s] keys, its queries being the last of them. The values' cache may be a part of the keys'.
at::Tensor paged_attention(const at::Tensor& q_TNH, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           const at::Tensor& cu_q, const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q,
                           int64_t max_k, const AttentionRule& rule);

// A cache of at::kChar or at::kByte holds codes, whole numbers of eight bits or E4M3 ones: behind the numbers of a head
// stand kCacheScale bytes, the f32 that they are multiplied by (ops/coded_cache.h).
inline constexpr int64_t kCacheScale = 4;
inline bool is_coded(const at::Tensor& cache) {
  return cache.scalar_type() == at::kChar || cache.scalar_type() == at::kByte;
}

// Writes this forward's keys and values into their cache places; slot = block * P + offset, int64; slot < 0 is skipped.
void store_kv(const at::Tensor& k_TKH, const at::Tensor& v_TKH, at::Tensor& k_cache, at::Tensor& v_cache,
              const at::Tensor& slot_T);

// weight rows of ids; the gradient is added into a dense [V, D] without an intermediate copy.
at::Tensor embedding(const at::Tensor& id_T, const at::Tensor& weight_VD);
// The same, and the table once more for an output head that is tied to it. The gradient that reaches this second result
// becomes the table's gradient, and the gradients of the rows are added into it.
std::tuple<at::Tensor, at::Tensor> embedding_and_table(const at::Tensor& id_T, const at::Tensor& weight_VD);

// x W' + b. The weight may be packed once for a device (an opaque tensor that only packed_linear understands): an
// undefined result of pack_linear means that this device, or this dtype, gains nothing from packing. Results for a row
// do not depend on how many other rows there are.
// known: the result, if it is there already: it is recorded for the gradient and nothing is computed.
at::Tensor linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O,
                  const at::Tensor& known = {});
// The sums of x W' + b in f32, as they are before a narrow type rounds them; where a gradient is recorded, as linear()
// gives them.
at::Tensor wide_linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O);
// Several weights of one input are packed as one. `mapped`: they lie in a mapped file. The device may take one as it
// is: the result is then an alias of it. Several that it would take as they are stay apart: the result is undefined.
at::Tensor pack_linear(at::TensorList weights_OD, bool mapped = false);
at::Tensor packed_linear(const at::Tensor& x_TD, const at::Tensor& packed, const at::Tensor& bias_O, int64_t out);

// Logits are hidden weight' + low_hidden low_weight'. The second product is a change of low rank (LoRA on the head) and
// undefined without one; kept apart, the sum of the two matrices never needs to exist.
struct HeadFactors {
  at::Tensor hidden_TD, weight_VD, low_TR = {}, low_VR = {};
  // Above 0: logits are bent to softcap * tanh(logit / softcap) before anything else.
  double softcap = 0;
};

// x, or where softcap is above 0, softcap * tanh(x / softcap), computed in at least f32 and given in x's type.
at::Tensor softcapped(const at::Tensor& x, double softcap);

// Where labels are (>= 0), in order: int64, on their device. The host does not wait for it where it knows the labels.
at::Tensor labelled_rows(const at::Tensor& label_T);

// Head and loss in one, in chunks of tokens, so that [T, V] never exists. label < 0 is ignored. `weight_T` (f32)
// multiplies each token's loss. loss_sum = sum_t weight_t * loss_t is differentiable in all factors; its gradient is
// computed in the forward pass, chunk by chunk, where the logits are at hand (skipped when nothing needs it).
struct HeadLossOptions {
  double label_smoothing = 0;
  bool dft = false;  // each token's loss times its own detached probability
};
struct HeadLoss {
  at::Tensor loss_sum;  // f32 scalar
  // f32, detached, plain negative log-likelihood; 0 where ignored.
  at::Tensor nll_T;
  at::Tensor correct_T;  // bool: the arg-max is the label
};
HeadLoss head_loss(const HeadFactors& factors, const at::Tensor& label_T, const at::Tensor& weight_T,
                   const HeadLossOptions& options);

// log p(label) and, when asked, the entropy, each f32 [T] and differentiable (the backward pass recomputes the logits
// in chunks); logits are divided by `temperature` first. label < 0 gives 0.
struct HeadLogprob {
  at::Tensor logprob_T, entropy_T;
};
HeadLogprob head_logprob(const HeadFactors& factors, const at::Tensor& label_T, double temperature, bool entropy);

// Mixture of experts. Routing: softmax over E in f32, the k best, normalised to sum 1 when asked.
struct Routing {
  at::Tensor weight_Tk;  // x's dtype, differentiable
  at::Tensor expert_Tk;  // int64
};
Routing route_topk(const at::Tensor& router_logits_TE, int64_t k, bool normalise);

// y_t = sum over its experts of weight * down_e(silu(gate_e x_t) * (up_e x_t)); tokens sorted by expert, one matmul an
// expert. gate_up [E, 2F, D] (gate rows first), down [E, D, F].
at::Tensor moe_ffn(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const at::Tensor& expert_Tk,
                   const at::Tensor& gate_up, const at::Tensor& down);

// One AdamW step in one pass, in place. param may be f32, or bf16 with an f32 master (undefined: none).
struct AdamwStep {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;           // from 1
  double grad_scale = 1;  // clipping: gradients are multiplied by it
  // Where the thresholds begin by which this tensor is rounded (tensor/dither.h).
  int64_t dither = 0;
  // Rounds a bf16 parameter by those thresholds instead of to the nearest.
  bool stochastic = false;
};
void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, at::Tensor& master,
           const AdamwStep& s);

// The same with moments of one byte each, always rounded by thresholds: the parameter and both moments of an element
// each have a threshold of their own, a third of the range apart.
constexpr int64_t kMomentBlock = 256, kMeanDither = 0x55555555, kSquareDither = 0xaaaaaaaa;
struct Moments8 {
  at::Tensor mean, mean_scale;      // int8 [n], f32 [ceil(n / kMomentBlock)]
  at::Tensor square, square_scale;  // uint8 [n], f32
};
void adamw_8bit(at::Tensor& param, const at::Tensor& grad, Moments8& moments, at::Tensor& master, const AdamwStep& s);
// One such moment by itself, f32 [n]: as a mean where its codes are int8, as a square where they are uint8.
at::Tensor read_moment(const at::Tensor& code, const at::Tensor& scale);
void write_moment(at::Tensor code, at::Tensor scale, const at::Tensor& value, int64_t dither);

// Sum of squares over all tensors, f64 accumulation, a CPU f64 scalar value.
double sum_of_squares(const std::vector<at::Tensor>& tensors);

}  // namespace apus::ops
