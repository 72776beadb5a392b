// SPDX-License-Identifier: Apache-2.0
#include "models/pooling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "ops/ops.h"

namespace apus {
namespace {

at::Tensor states_at(const at::Tensor& x_TD, const std::vector<int64_t>& rows) {
  return x_TD.index_select(0, at::tensor(rows, at::kLong).to(x_TD.device()));
}

}  // namespace

std::vector<int64_t> text_ends(const at::Tensor& id_T, const Step& s, int64_t pad) {
  std::vector<int64_t> ends;
  const at::Tensor host_T = pad >= 0 ? id_T.to(at::kCPU, at::kLong).contiguous() : at::Tensor();
  int64_t begin = 0;
  for (const int32_t length : s.length_q) {
    const int64_t last = begin + length - 1;
    int64_t end = last;
    while (pad >= 0 && end >= begin && host_T.data_ptr<int64_t>()[end] == pad) --end;
    ends.push_back(end < begin ? last : end);
    begin += length;
  }
  return ends;
}

namespace {
std::vector<int64_t> text_begins(const Step& s) {
  std::vector<int64_t> begins;
  int64_t begin = 0;
  for (const int32_t length : s.length_q) begins.push_back(begin), begin += length;
  return begins;
}

// Of one sequence, f32.
at::Tensor pooled_text(const at::Tensor& x_LD, Pooling pooling) {
  if (pooling == Pooling::Max) return x_LD.amax(0);
  if (pooling == Pooling::Mean) return x_LD.mean(0);
  if (pooling == Pooling::MeanSqrt) return x_LD.sum(0) / std::sqrt(static_cast<double>(x_LD.size(0)));
  const at::Tensor weight_L = at::arange(1, x_LD.size(0) + 1, x_LD.options());
  return (x_LD * weight_L.unsqueeze(1)).sum(0) / weight_L.sum();
}
}  // namespace

at::Tensor pooled(const at::Tensor& normed_TD, const Step& s, Pooling pooling) {
  if (pooling == Pooling::Last) return last_states(normed_TD, s);
  const std::vector<int64_t> begins = text_begins(s);
  if (pooling == Pooling::First) return states_at(normed_TD, begins);
  std::vector<at::Tensor> texts;
  for (size_t i = 0; i < begins.size(); ++i)
    texts.push_back(pooled_text(normed_TD.narrow(0, begins[i], s.length_q[i]).to(at::kFloat), pooling));
  return at::stack(texts);
}

at::Tensor text_scores(const Model& model, const at::Tensor& id_T, const at::Tensor& normed_TD, const Step& s) {
  if (const EncoderForm* form = model.encoder())
    return model.scores(pooled(normed_TD, s, form->head.reads).to(normed_TD.scalar_type()), s).to(at::kFloat);
  return model.scores(states_at(normed_TD, text_ends(id_T, s, model.pad_id())), s).to(at::kFloat);
}

at::Tensor scores_of_tokens(const Model& model, const at::Tensor& normed_TD, const Step& s) {
  return model.scores(normed_TD, s).to(at::kFloat);
}

std::vector<std::vector<float>> numbers_of_texts(const at::Tensor& numbers, const Step& s) {
  const at::Tensor host = numbers.to(at::kCPU, at::kFloat).contiguous();
  const bool of_tokens = host.size(0) != std::ssize(s.length_q);
  std::vector<std::vector<float>> out;
  const float* first = host.data_ptr<float>();
  for (const int32_t length : s.length_q) {
    const float* const end = first + (of_tokens ? length : 1) * host.size(1);
    out.emplace_back(first, end);
    first = end;
  }
  return out;
}

at::Tensor last_states(const at::Tensor& normed_TD, const Step& s) {
  return states_at(normed_TD, text_ends(at::Tensor(), s));
}

at::Tensor token_lead(const Model& model, const at::Tensor& last_SD, const Step& s, int64_t token, int64_t other) {
  const std::vector<int64_t> two = {token, other};
  const ops::HeadFactors f = model.head_factors(last_SD, s);
  at::Tensor logit_S2 = at::linear(f.hidden_TD, states_at(f.weight_VD, two));
  if (f.low_TR.defined())
    logit_S2 =
        logit_S2 + at::linear(f.low_TR, states_at(f.low_VR, two).to(f.low_TR.scalar_type())).to(logit_S2.scalar_type());
  const at::Tensor wide_S2 = ops::softcapped(logit_S2.to(at::kFloat), f.softcap);
  return wide_S2.select(1, 0) - wide_S2.select(1, 1);
}

at::Tensor at_length_one(const at::Tensor& x_SD) {
  const at::Tensor wide_SD = x_SD.to(at::kFloat);
  return wide_SD / wide_SD.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

at::Tensor text_vectors(const at::Tensor& normed_TD, const Step& s, Pooling pooling) {
  return at_length_one(pooled(normed_TD, s, pooling));
}

}  // namespace apus
