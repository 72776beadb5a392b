// SPDX-License-Identifier: Apache-2.0
// Output head with cross-entropy, and log-probabilities of labels, some hundred tokens at a time.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>

#include "devices/cpu/logits.h"
#include "devices/cpu/tensors.h"
#include "ops/head_chunks.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

bool plain(const at::Tensor& hidden, const at::Tensor& head) {
  return same_small_float(hidden, head) && head.dim() == 2 && head.stride(1) == 1 && head.size(1) % 32 == 0 && head.size(0) > 0;
}

// Tokens at a time: packing the head should cost little beside multiplying by it, and the logits stay below 160 MB.
int64_t tokens_at_once(int64_t vocabulary, int64_t chunk) {
  return chunk > 0 ? chunk : std::clamp<int64_t>((int64_t{40} << 20) / vocabulary / 32 * 32, 32, 512);
}

at::Tensor floats(int64_t n) { return at::empty({n}, at::kFloat); }

// What the three ops share: the chunks' logits and the gradients' sums.
template <class E>
class HeadPass {
 public:
  HeadPass(const ops::LabelledTokens& tokens, const at::Tensor& head, double temperature, bool need_hidden, bool need_head, int64_t chunk)
      : tokens_(tokens), hidden_(as_rows(tokens.hidden)), head_(head), label_(tokens.label.contiguous()), width_(head.size(1)),
        step_(std::min(tokens_at_once(head.size(0), chunk), std::max<int64_t>(1, tokens.count()))),
        space_(floats(Logits<E>::space_for(head.size(0), step_))),
        logits_(data<E>(head), head.size(0), width_, head.stride(0), static_cast<float>(1 / temperature), data<float>(space_)) {
    need_head_ = need_head;
    if (need_hidden) {
      sums_ = floats(Logits<E>::backward_space(step_, width_)), d_chunk_ = floats(step_ * width_);
      d_hidden_ = at::empty({tokens.count(), width_}, head.options());
    }
    const int64_t* y = data<int64_t>(label_);
    for (int64_t i = 0; i < tokens.count(); ++i)
      require(y[i] < head.size(0), Fault::Data, "label ", y[i], " is outside of the vocabulary of ", head.size(0));
  }

  // fn(begin, rows): the summaries of tokens begin ...
  template <class Fn>
  void run(const Fn& fn) {
    for (int64_t begin = 0; begin < tokens_.count(); begin += step_) {
      const int64_t n = std::min(step_, tokens_.count() - begin);
      fn(begin, logits_.compute(rows(begin), hidden_.stride(0), n, data<int64_t>(label_) + begin));
    }
  }

  // Within fn: adds what these gradients of the logits mean for hidden, and notes them for the head.
  void add(int64_t begin, const std::vector<LogitGradient>& gradient, const std::vector<float>& at_label) {
    if (need_head_) {
      gradient_.insert(gradient_.end(), gradient.begin(), gradient.end());
      at_label_.insert(at_label_.end(), at_label.begin(), at_label.end());
    }
    if (!d_hidden_.defined()) return;
    logits_.backward(data<int64_t>(label_) + begin, gradient.data(), at_label.data(), data<float>(d_chunk_), data<float>(sums_));
    row_kernels<E>().narrow(static_cast<int64_t>(gradient.size()) * width_, data<float>(d_chunk_), 1.0f, data<E>(d_hidden_) + begin * width_);
  }

  at::Tensor d_hidden() const { return d_hidden_.defined() ? tokens_.spread(d_hidden_) : at::Tensor(); }
  at::Tensor d_head() {  // after run()
    if (!need_head_) return {};
    space_ = sums_ = d_chunk_ = at::Tensor();
    const at::Tensor out = at::empty(head_.sizes(), head_.options());
    logits_.head_gradient(rows(0), hidden_.stride(0), tokens_.count(), step_, data<int64_t>(label_), gradient_.data(), at_label_.data(), data<E>(out));
    return out;
  }

 private:
  const E* rows(int64_t begin) const { return data<E>(hidden_) + begin * hidden_.stride(0); }

  const ops::LabelledTokens& tokens_;
  at::Tensor hidden_, head_, label_;
  int64_t width_, step_;
  at::Tensor space_, sums_, d_hidden_, d_chunk_;
  bool need_head_ = false;
  std::vector<LogitGradient> gradient_;  // of all tokens
  std::vector<float> at_label_;
  Logits<E> logits_;
};

template <class E>
Results loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& label, const at::Tensor& weight, double smoothing, bool dft,
             bool need_hidden, bool need_head, int64_t chunk) {
  const ops::LabelledTokens tokens(hidden, label);
  const at::Tensor token_weight = weight.defined() ? tokens.pick(weight.to(at::kFloat)).contiguous() : at::ones({tokens.count()}, at::kFloat);
  const at::Tensor nll = floats(tokens.count()), correct = at::empty({tokens.count()}, at::kBool);
  double sum = 0;
  HeadPass<E> pass(tokens, head, 1, need_hidden, need_head, chunk);
  pass.run([&](int64_t begin, const std::vector<LogitRow>& rows) {
    std::vector<LogitGradient> gradient(rows.size());
    std::vector<float> at_label(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const LogitRow& row = rows[i];
      const float token_nll = row.lse - row.label;
      data<float>(nll)[begin + static_cast<int64_t>(i)] = token_nll;
      data<bool>(correct)[begin + static_cast<int64_t>(i)] = row.correct;
      const double factor = data<float>(token_weight)[begin + static_cast<int64_t>(i)] * (dft ? std::exp(-static_cast<double>(token_nll)) : 1.0);
      sum += factor * (token_nll * (1 - smoothing) + (smoothing > 0 ? (static_cast<double>(row.lse) - row.mean) * smoothing : 0.0));
      gradient[i] = {1.0f, row.lse, static_cast<float>(factor), 0.0f, static_cast<float>(-factor * smoothing / static_cast<double>(head.size(0)))};
      at_label[i] = static_cast<float>(factor * (smoothing - 1));
    }
    pass.add(begin, gradient, at_label);
  });
  const at::Tensor loss_sum = at::empty({}, at::kFloat);
  *data<float>(loss_sum) = static_cast<float>(sum);
  return {loss_sum, tokens.spread(nll), tokens.spread(correct), pass.d_hidden(), pass.d_head()};
}

Results head_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& label, const OptionalTensor& weight, double smoothing,
                  bool dft, bool need_hidden, bool need_head, int64_t chunk) {
  if (!plain(hidden, head))
    return Reference<decltype(head_loss)>::call("apus::head_loss", hidden, head, label, weight, smoothing, dft, need_hidden, need_head, chunk);
  return by_type(hidden, [&](auto e) {
    return loss<decltype(e)>(hidden, head, label, or_undefined(weight), smoothing, dft, need_hidden, need_head, chunk);
  });
}

Triple head_logprob(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& label, double temperature, bool need_entropy,
                    int64_t chunk) {
  if (!plain(hidden, head))
    return Reference<decltype(head_logprob)>::call("apus::head_logprob", hidden, head, label, temperature, need_entropy, chunk);
  return by_type(hidden, [&](auto e) -> Triple {
    const ops::LabelledTokens tokens(hidden, label);
    const at::Tensor logprob = floats(tokens.count()), lse = floats(tokens.count()), entropy = floats(tokens.count());
    HeadPass<decltype(e)> pass(tokens, head, temperature, false, false, chunk);
    pass.run([&](int64_t begin, const std::vector<LogitRow>& rows) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t at = begin + static_cast<int64_t>(i);
        data<float>(logprob)[at] = rows[i].label - rows[i].lse;
        data<float>(lse)[at] = rows[i].lse;
        data<float>(entropy)[at] = rows[i].entropy;
      }
    });
    return {tokens.spread(logprob), need_entropy ? tokens.spread(entropy) : at::Tensor(), tokens.spread(lse)};
  });
}

// d logprob / d logit_j = [j = label] - p_j,  d entropy / d logit_j = -p_j (log p_j + entropy), both over the temperature.
Pair head_logprob_backward(const OptionalTensor& grad_logprob, const OptionalTensor& grad_entropy, const at::Tensor& hidden,
                           const at::Tensor& head, const at::Tensor& label, const at::Tensor& lse, const OptionalTensor& entropy,
                           double temperature, bool need_hidden, bool need_head, int64_t chunk) {
  if (!plain(hidden, head))
    return Reference<decltype(head_logprob_backward)>::call("apus::head_logprob_backward", grad_logprob, grad_entropy, hidden, head, label, lse,
                                                            entropy, temperature, need_hidden, need_head, chunk);
  return by_type(hidden, [&](auto e) -> Pair {
    const ops::LabelledTokens tokens(hidden, label);
    const auto pick = [&](const OptionalTensor& x) { return x.has_value() ? tokens.pick(x->to(at::kFloat)).contiguous() : at::zeros({tokens.count()}, at::kFloat); };
    const at::Tensor of_logprob = pick(grad_logprob), of_entropy = pick(grad_entropy), entropies = pick(entropy);
    HeadPass<decltype(e)> pass(tokens, head, temperature, need_hidden, need_head, chunk);
    const float scale = static_cast<float>(1 / temperature);
    pass.run([&](int64_t begin, const std::vector<LogitRow>& rows) {
      std::vector<LogitGradient> gradient(rows.size());
      std::vector<float> at_label(rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t at = begin + static_cast<int64_t>(i);
        const float l = data<float>(of_logprob)[at], h = data<float>(of_entropy)[at];
        gradient[i] = {scale, rows[i].lse, -(l + h * data<float>(entropies)[at]) * scale, -h * scale, 0.0f};
        at_label[i] = l * scale;
      }
      pass.add(begin, gradient, at_label);
    });
    return {pass.d_hidden(), pass.d_head()};
  });
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("head_loss", apus::cpu::head_loss);
  m.impl("head_logprob", apus::cpu::head_logprob);
  m.impl("head_logprob_backward", apus::cpu::head_logprob_backward);
}
