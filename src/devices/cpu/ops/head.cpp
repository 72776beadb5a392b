// SPDX-License-Identifier: Apache-2.0
// Output head with cross-entropy, and log-probabilities of labels, some hundred tokens at a time.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <utility>

#include "devices/cpu/kernels/logits.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/ops/tensors.h"
#include "ops/head_chunks.h"
#include "ops/op.h"
#include "ops/steady_rows.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Quad = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using ops::HeadNeeds;

bool plain(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
           const OptionalTensor& low_head) {
  return same_small_float(hidden, head, or_undefined(low_hidden), or_undefined(low_head)) && head.dim() == 2 &&
         head.stride(1) == 1 && head.size(1) % 32 == 0 && head.size(0) > 0;
}

// The factors of low rank with columns of 0 up to a multiple of a panel.
at::Tensor filled(const at::Tensor& x) {
  const int64_t more = (kPanel - x.size(1) % kPanel) % kPanel;
  return more == 0 ? x.contiguous() : at::constant_pad_nd(x, {0, more});
}

// Tokens at a time: packing the head should cost little beside multiplying by it, and the logits stay below 160 MB,
// half of that beside kept gradients.
int64_t tokens_at_once(int64_t vocabulary, int64_t chunk, bool keeps) {
  return chunk > 0 ? chunk : std::clamp<int64_t>((int64_t{keeps ? 20 : 40} << 20) / vocabulary / 32 * 32, 32, 512);
}

at::Tensor floats(int64_t n) { return at::empty({n}, at::kFloat); }

// The large pieces are mapped by themselves and go back to the system: holes as large as they are would serve nobody.
constexpr int64_t kKeptBytes = int64_t{160} << 20;  // of gradients of logits
// Of the vocabulary, in one piece; 8 would put rows into the same sets of a cache.
constexpr int64_t kKeptBlocks = 7;

// What the three ops share: the chunks' logits and the gradients' sums.
template <class E>
class HeadPass {
 public:
  HeadPass(const ops::LabelledTokens& tokens, const at::Tensor& head, const OptionalTensor& low_head,
           double temperature, double softcap, HeadNeeds need, int64_t chunk)
      : tokens_(tokens),
        vocabulary_(head.size(0)),
        label_(tokens.label.contiguous()),
        keeps_((need[1] || need[3]) && vocabulary_ * tokens.count() * head.element_size() <= kKeptBytes),
        step_(std::min(tokens_at_once(vocabulary_, chunk, keeps_), std::max<int64_t>(1, tokens.count()))),
        kept_columns_(std::min(kKeptBlocks, (vocabulary_ + kVocabularyBlock - 1) / kVocabularyBlock) *
                      kVocabularyBlock),
        sides_(sides(tokens, head, low_head, need, step_, !keeps_)),
        logits_(matrices(sides_), vocabulary_, static_cast<float>(1 / temperature), static_cast<float>(softcap),
                ops::steady_rows(), make_space()) {
    int64_t widths = 0;
    for (const Side& s : sides_) widths += s.head.size(1);
    if (needed()) sums_ = floats(Logits<E>::backward_space(step_, widths));
    for (int64_t v = 0; keeps_ && v < vocabulary_; v += kept_columns_)
      kept_.push_back(
          empty_huge(tokens.count() * kept_columns_, head.scalar_type()).view({tokens.count(), kept_columns_}));
    const int64_t* y = data<int64_t>(label_);
    for (int64_t i = 0; i < tokens.count(); ++i)
      require(y[i] < vocabulary_, Fault::Data, "label ", y[i], " is outside of the vocabulary of ", vocabulary_);
  }

  // fn(begin, rows): the summaries of tokens begin ...
  template <class Fn>
  void run(const Fn& fn) {
    for (int64_t begin = 0; begin < tokens_.count(); begin += step_) {
      const int64_t n = std::min(step_, tokens_.count() - begin);
      fn(begin, logits_.compute(hidden(begin), n, data<int64_t>(label_) + begin));
    }
  }

  // Within fn: adds what these gradients of the logits mean for hidden states and weights.
  void add(int64_t begin, const std::vector<LogitGradient>& gradient, const std::vector<float>& at_label) {
    if (!needed()) return;
    std::vector<HeadSums<E>> into;
    for (const Side& s : sides_)
      into.push_back(
          {s.d_hidden.defined() ? data<float>(s.d_chunk) : nullptr, s.d_head.defined() ? data<E>(s.d_head) : nullptr});
    KeptGradients<E> keep{{}, kept_columns_};
    for (const at::Tensor& part : kept_) keep.parts.push_back(data<E>(part) + begin * kept_columns_);
    logits_.backward(hidden(begin), data<int64_t>(label_) + begin, gradient.data(), at_label.data(), into, begin == 0,
                     keep, data<float>(sums_));
    for (const Side& s : sides_)
      if (const int64_t width = s.head.size(1); s.d_hidden.defined())
        row_kernels<E>().narrow(static_cast<int64_t>(gradient.size()) * width, data<float>(s.d_chunk), 1.0f,
                                data<E>(s.d_hidden) + begin * width);
  }

  // Side 0: of hidden states and head, 1: of the pair of low rank. Undefined when not needed.
  at::Tensor d_hidden(size_t side) const {
    if (side >= sides_.size() || !sides_[side].d_hidden.defined()) return {};
    return tokens_.spread(sides_[side].d_hidden).narrow(1, 0, sides_[side].columns).contiguous();
  }
  // After all tokens. Of the last side that wants one first: what was kept goes as it is used.
  at::Tensor d_head(size_t side) {
    if (side >= sides_.size() || !sides_[side].wants_head) return {};
    space_.clear(), sums_ = at::Tensor();
    Side& s = sides_[side];
    const int64_t width = s.head.size(1);
    if (keeps_) {
      s.d_head = empty_huge(vocabulary_ * width, s.head.scalar_type());
      multiply_kept(s.hidden, /*last=*/side == 0 || !sides_[0].wants_head, s.d_head.view({vocabulary_, width}));
    } else {
      Logits<E>::turn_head(vocabulary_, width, data<E>(s.d_head));
    }
    const at::Tensor out = std::exchange(s.d_head, {}).narrow(0, 0, vocabulary_ * width).view({vocabulary_, width});
    return out.narrow(1, 0, s.columns).contiguous();
  }

 private:
  struct Side {
    at::Tensor hidden, head;
    int64_t columns;  // without filling
    bool wants_head = false;
    at::Tensor d_hidden = {}, d_chunk = {}, d_head = {};  // d_head: sums, or what kept gradients gave
  };
  static std::vector<Side> sides(const ops::LabelledTokens& tokens, const at::Tensor& head,
                                 const OptionalTensor& low_head, HeadNeeds need, int64_t step, bool sums) {
    std::vector<Side> out{{as_rows(tokens.hidden), head, head.size(1)}};
    if (low_head.has_value()) out.push_back({filled(tokens.low), filled(*low_head), low_head->size(1)});
    for (size_t i = 0; i < out.size(); ++i) {
      Side& s = out[i];
      const int64_t width = s.head.size(1);
      if (need[2 * i])
        s.d_hidden = at::empty({tokens.count(), width}, head.options()), s.d_chunk = floats(step * width);
      s.wants_head = need[2 * i + 1];
      if (s.wants_head && sums) s.d_head = empty_huge(Logits<E>::head_space(head.size(0), width), head.scalar_type());
    }
    return out;
  }
  // Of logits, by blocks: in pieces, which the holes between other tensors have room for and which the backward pass
  // uses again; beside kept gradients in a mapping that goes before the head's gradient comes.
  std::vector<float*> make_space() {
    const int64_t blocks = Logits<E>::blocks_of(vocabulary_), size = Logits<E>::block_size(step_);
    std::vector<float*> out;
    if (keeps_) space_ = {empty_huge(blocks * size, at::kFloat)};
    for (int64_t b = 0; b < blocks; ++b) {
      if (!keeps_) space_.push_back(floats(size));
      out.push_back(keeps_ ? data<float>(space_[0]) + b * size : data<float>(space_.back()));
    }
    return out;
  }
  static std::vector<HeadMatrix<E>> matrices(const std::vector<Side>& sides) {
    std::vector<HeadMatrix<E>> out;
    for (const Side& s : sides) out.push_back({data<E>(s.head), s.head.size(1), s.head.stride(0)});
    return out;
  }
  bool needed() const {
    return std::any_of(sides_.begin(), sides_.end(),
                       [](const Side& s) { return s.d_hidden.defined() || s.wants_head; });
  }

  // The weight's gradient of a linear layer, some of the vocabulary at a time.
  void multiply_kept(const at::Tensor& hidden, bool last, const at::Tensor& out) {
    using LinearBackward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const OptionalTensor&,
                                                                          const OptionalTensor&, std::array<bool, 3>);
    static const auto op = ops::handle<LinearBackward>("apus::linear_backward");
    for (size_t part = 0; part < kept_.size(); ++part) {
      const int64_t begin = static_cast<int64_t>(part) * kept_columns_,
                    n = std::min(kept_columns_, vocabulary_ - begin);
      out.narrow(0, begin, n)
          .copy_(std::get<1>(
              op.call(kept_[part].narrow(1, 0, n), hidden, OptionalTensor(), std::array<bool, 3>{false, true, false})));
      if (last) kept_[part] = at::Tensor();
    }
  }
  typename Logits<E>::Hidden hidden(int64_t begin) const {
    typename Logits<E>::Hidden out;
    for (const Side& s : sides_) out.push_back({data<E>(s.hidden) + begin * s.hidden.stride(0), s.hidden.stride(0)});
    return out;
  }

  const ops::LabelledTokens& tokens_;
  int64_t vocabulary_;
  at::Tensor label_;
  bool keeps_;  // gradients of all logits, because they are small
  int64_t step_;
  std::vector<at::Tensor> space_;
  at::Tensor sums_;
  int64_t kept_columns_;
  std::vector<at::Tensor> kept_;
  std::vector<Side> sides_;
  Logits<E> logits_;
};

template <class E>
Results loss(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
             const OptionalTensor& low_head, const at::Tensor& label, const at::Tensor& weight, double smoothing,
             bool dft, HeadNeeds need, int64_t chunk, double softcap) {
  const ops::LabelledTokens tokens(hidden, low_hidden, label);
  const at::Tensor token_weight =
      weight.defined() ? tokens.pick(weight.to(at::kFloat)).contiguous() : at::ones({tokens.count()}, at::kFloat);
  const at::Tensor nll = floats(tokens.count()), correct = at::empty({tokens.count()}, at::kBool);
  double sum = 0;
  HeadPass<E> pass(tokens, head, low_head, 1, softcap, need, chunk);
  pass.run([&](int64_t begin, const std::vector<LogitRow>& rows) {
    std::vector<LogitGradient> gradient(rows.size());
    std::vector<float> at_label(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const LogitRow& row = rows[i];
      const float token_nll = row.lse - row.label;
      data<float>(nll)[begin + static_cast<int64_t>(i)] = token_nll;
      data<bool>(correct)[begin + static_cast<int64_t>(i)] = row.correct;
      const double factor = data<float>(token_weight)[begin + static_cast<int64_t>(i)] *
                            (dft ? std::exp(-static_cast<double>(token_nll)) : 1.0);
      sum += factor * (token_nll * (1 - smoothing) +
                       (smoothing > 0 ? (static_cast<double>(row.lse) - row.mean) * smoothing : 0.0));
      gradient[i] = {1.0f, row.lse, static_cast<float>(factor), 0.0f,
                     static_cast<float>(-factor * smoothing / static_cast<double>(head.size(0)))};
      at_label[i] = static_cast<float>(factor * (smoothing - 1));
    }
    pass.add(begin, gradient, at_label);
  });
  const at::Tensor loss_sum = at::empty({}, at::kFloat);
  *data<float>(loss_sum) = static_cast<float>(sum);
  const at::Tensor d_low_head = pass.d_head(1), d_head = pass.d_head(0);
  return {loss_sum, tokens.spread(nll), tokens.spread(correct), pass.d_hidden(0), d_head, pass.d_hidden(1), d_low_head};
}

Results head_loss(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                  const OptionalTensor& low_head, const at::Tensor& label, const OptionalTensor& weight,
                  double smoothing, bool dft, HeadNeeds need, int64_t chunk, double softcap) {
  if (!plain(hidden, head, low_hidden, low_head))
    return Reference<decltype(head_loss)>::call("apus::head_loss", hidden, head, low_hidden, low_head, label, weight,
                                                smoothing, dft, need, chunk, softcap);
  return by_type(hidden, [&](auto e) {
    return loss<decltype(e)>(hidden, head, low_hidden, low_head, label, or_undefined(weight), smoothing, dft, need,
                             chunk, softcap);
  });
}

Triple head_logprob(const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                    const OptionalTensor& low_head, const at::Tensor& label, double temperature, bool need_entropy,
                    int64_t chunk, double softcap) {
  if (!plain(hidden, head, low_hidden, low_head))
    return Reference<decltype(head_logprob)>::call("apus::head_logprob", hidden, head, low_hidden, low_head, label,
                                                   temperature, need_entropy, chunk, softcap);
  return by_type(hidden, [&](auto e) -> Triple {
    const ops::LabelledTokens tokens(hidden, low_hidden, label);
    const at::Tensor logprob = floats(tokens.count()), lse = floats(tokens.count()), entropy = floats(tokens.count());
    HeadPass<decltype(e)> pass(tokens, head, low_head, temperature, softcap, {}, chunk);
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

// Of logits that are there already, as head_logprob has it.
at::Tensor logit_logprob(const at::Tensor& logits, const at::Tensor& label, double temperature) {
  if (logits.scalar_type() == at::kDouble)
    return Reference<decltype(logit_logprob)>::call("apus::logit_logprob", logits, label, temperature);
  const at::Tensor wide = logits.to(at::kFloat).contiguous(), of = label.contiguous(), out = floats(label.numel());
  const int64_t vocabulary = wide.size(1), blocks = Logits<float>::blocks_of(vocabulary);
  const auto scale = static_cast<float>(1 / temperature);
  share(label.numel(), 1, [&](int64_t begin, int64_t end) {
    std::vector<RowStatistics> parts(static_cast<size_t>(blocks));
    for (int64_t i = begin; i < end; ++i) {
      const float* row = data<float>(wide) + i * vocabulary;
      for (int64_t b = 0; b < blocks; ++b)
        kernels().row_statistics(std::min(kVocabularyBlock, vocabulary - b * kVocabularyBlock),
                                 row + b * kVocabularyBlock, scale, &parts[static_cast<size_t>(b)]);
      const int64_t id = data<int64_t>(of)[i];
      const LogitRow summary = row_of(parts.data(), 1, blocks, vocabulary, id, row[id] * scale);
      data<float>(out)[i] = summary.label - summary.lse;
    }
  });
  return out;
}

// Of logits that are there already, by the tangent of head_logprob.
at::Tensor softcapped(const at::Tensor& x, double softcap) {
  if (x.scalar_type() != at::kFloat) return Reference<decltype(softcapped)>::call("apus::softcapped", x, softcap);
  const auto cap = static_cast<float>(softcap);
  const at::Tensor out = x.clone(at::MemoryFormat::Contiguous);
  share(out.numel(), kVocabularyBlock,
        [&](int64_t begin, int64_t end) { kernels().tanh_of(end - begin, 1 / cap, cap, data<float>(out) + begin); });
  return out;
}

// d logprob / d logit_j = [j = label] - p_j,  d entropy / d logit_j = -p_j (log p_j + entropy),
// both over the temperature.
Quad head_logprob_backward(const OptionalTensor& grad_logprob, const OptionalTensor& grad_entropy,
                           const at::Tensor& hidden, const at::Tensor& head, const OptionalTensor& low_hidden,
                           const OptionalTensor& low_head, const at::Tensor& label, const at::Tensor& lse,
                           const OptionalTensor& entropy, double temperature, HeadNeeds need, int64_t chunk,
                           double softcap) {
  if (!plain(hidden, head, low_hidden, low_head))
    return Reference<decltype(head_logprob_backward)>::call("apus::head_logprob_backward", grad_logprob, grad_entropy,
                                                            hidden, head, low_hidden, low_head, label, lse, entropy,
                                                            temperature, need, chunk, softcap);
  return by_type(hidden, [&](auto e) -> Quad {
    const ops::LabelledTokens tokens(hidden, low_hidden, label);
    const auto pick = [&](const OptionalTensor& x) {
      return x.has_value() ? tokens.pick(x->to(at::kFloat)).contiguous() : at::zeros({tokens.count()}, at::kFloat);
    };
    const at::Tensor of_logprob = pick(grad_logprob), of_entropy = pick(grad_entropy), entropies = pick(entropy);
    HeadPass<decltype(e)> pass(tokens, head, low_head, temperature, softcap, need, chunk);
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
    const at::Tensor d_low_head = pass.d_head(1), d_head = pass.d_head(0);
    return {pass.d_hidden(0), d_head, pass.d_hidden(1), d_low_head};
  });
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("head_loss", apus::cpu::head_loss);
  m.impl("head_logprob", apus::cpu::head_logprob);
  m.impl("head_logprob_backward", apus::cpu::head_logprob_backward);
  m.impl("logit_logprob", apus::cpu::logit_logprob);
  m.impl("softcapped", apus::cpu::softcapped);
}
