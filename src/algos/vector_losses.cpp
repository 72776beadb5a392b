// SPDX-License-Identifier: Apache-2.0
#include "algos/vector_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

namespace apus {
namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();

at::Tensor too_near(const at::Tensor& distance_P) { return at::relu(kContrastMargin - distance_P).square(); }

}  // namespace

at::Tensor cosine_losses(const at::Tensor& cosine_P, const at::Tensor& label_P) {
  return (cosine_P - label_P).square();
}

at::Tensor contrastive_losses(const at::Tensor& cosine_P, const at::Tensor& label_P) {
  const at::Tensor distance_P = 1 - cosine_P;
  return (label_P * distance_P.square() + (1 - label_P) * too_near(distance_P)) * 0.5;
}

at::Tensor online_contrastive_losses(const at::Tensor& cosine_P, const at::Tensor& label_P) {
  const at::Tensor distance_P = 1 - cosine_P, seen_P = distance_P.detach();
  const at::Tensor like_P = label_P.eq(1), unlike_P = label_P.eq(0);
  const at::Tensor like = seen_P.masked_select(like_P), unlike = seen_P.masked_select(unlike_P);
  const at::Tensor none = at::zeros_like(distance_P);
  // With a single pair of the other kind, the mean of the own kind is the bound.
  at::Tensor loss_P = none;
  if (unlike.numel() > 0) {
    const at::Tensor bound = like.numel() > 1 ? like.max() : unlike.mean();
    loss_P = loss_P + at::where(unlike_P.logical_and(seen_P < bound), too_near(distance_P), none);
  }
  if (like.numel() > 0) {
    const at::Tensor bound = unlike.numel() > 1 ? unlike.min() : like.mean();
    loss_P = loss_P + at::where(like_P.logical_and(seen_P > bound), distance_P.square(), none);
  }
  return loss_P;
}

InfonceLosses infonce_losses(const VectorSet& set, const InfonceSettings& settings) {
  const auto options = set.query_QD.options().dtype(at::kLong);
  const int64_t queries = set.query_QD.size(0), documents = set.document_ND.size(0);
  const at::Tensor right_Q = at::tensor(set.first, at::kLong).to(set.query_QD.device());
  at::Tensor like_QN = at::matmul(set.query_QD, set.document_ND.t());
  const at::Tensor of_right_Q1 = at::gather(like_QN, 1, right_Q.unsqueeze(1));
  const at::Tensor bound_Q1 = of_right_Q1.detach() + settings.fake_neg_margin;
  if (!settings.use_batch) {
    std::vector<int64_t> end(set.first.begin() + 1, set.first.end());
    end.push_back(documents);
    const at::Tensor place_N = at::arange(documents, options),
                     end_Q = at::tensor(end, at::kLong).to(set.query_QD.device());
    const at::Tensor own_QN = place_N.ge(right_Q.unsqueeze(1)).logical_and(place_N.lt(end_Q.unsqueeze(1)));
    like_QN = like_QN.masked_fill(own_QN.logical_not(), kOut);
  }
  const auto without_fakes = [&](const at::Tensor& like) {
    return settings.mask_fake_negative ? like.masked_fill(like.detach() > bound_Q1, kOut) : like;
  };
  std::vector<at::Tensor> candidates = {without_fakes(like_QN)};
  if (settings.include_qq) {
    const at::Tensor place_Q = at::arange(queries, options), self_QQ = place_Q.eq(place_Q.unsqueeze(1));
    candidates.push_back(without_fakes(at::matmul(set.query_QD, set.query_QD.t()).masked_fill(self_QQ, kOut)));
  }
  if (settings.include_dd) {
    const at::Tensor self_QN = at::arange(documents, options).eq(right_Q.unsqueeze(1));
    const at::Tensor right_QD = set.document_ND.index_select(0, right_Q);
    candidates.push_back(at::matmul(right_QD, set.document_ND.t()).masked_fill(self_QN, kOut));
  }
  const at::Tensor log_QC = at::log_softmax(at::cat(candidates, 1) / settings.temperature, -1);
  return {-at::gather(log_QC, 1, right_Q.unsqueeze(1)).squeeze(1),
          like_QN.detach().argmax(1).eq(right_Q).to(at::kFloat)};
}

}  // namespace apus
