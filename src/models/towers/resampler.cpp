// SPDX-License-Identifier: Apache-2.0
// Shapes: N rows of all pictures, P pictures, Q queries, D width, n heads, H head size.
#include "models/towers/resampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "ops/ops.h"

namespace apus {

Resampler::Resampler(const VisionSpec& spec, const TowerParts& parts)
    : width_(spec.out), queries_(spec.resampler.queries), heads_(spec.resampler.heads) {
  const std::string r = spec.merger_name() + ".";
  query_ = &parts.bare(r + "query"), proj_ = &parts.bare(r + "proj");
  in_weight_ = &parts.bare(r + "attn.in_proj_weight"), in_bias_ = &parts.bare(r + "attn.in_proj_bias");
  kv_ = spec.width == spec.out ? nullptr : &parts.linear(r + "kv_proj");
  out_ = &parts.linear(r + "attn.out_proj");
  of_query_ = &parts.norm(r + "ln_q"), of_rows_ = &parts.norm(r + "ln_kv"), end_ = &parts.norm(r + "ln_post");
}

namespace {
// [N, width]: of a row's column sines, then cosines; of its line the same. Computed on the host in f32.
at::Tensor sines_of(const std::vector<Grid>& grids, int64_t width) {
  int64_t rows = 0;
  for (const Grid& g : grids) rows += patches_of(g);
  const int64_t quarter = width / 4;
  at::Tensor all = at::empty({rows, width}, at::kFloat);
  float* to = all.data_ptr<float>();
  const auto put = [&](int64_t place) {
    for (const bool cosine : {false, true})
      for (int64_t k = 0; k < quarter; ++k) {
        const float power = static_cast<float>(k) / (static_cast<float>(quarter));
        const float angle = static_cast<float>(place) * (1 / std::pow(10000.0f, power));
        *to++ =
            static_cast<float>(cosine ? std::cos(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)));
      }
  };
  for (const Grid& g : grids)
    for (int64_t picture = 0; picture < g[0]; ++picture)
      for (int64_t line = 0; line < g[1]; ++line)
        for (int64_t column = 0; column < g[2]; ++column) put(column), put(line);
  return all;
}
}  // namespace

at::Tensor Resampler::operator()(const at::Tensor& x_ND, const std::vector<Grid>& grids,
                                 const std::function<Step(int64_t rows)>& step_of) const {
  const int64_t h = width_ / heads_;
  std::vector<int32_t> ends_q = {0}, ends_k = {0};
  int64_t longest = 0;
  for (const Grid& g : grids)
    for (int64_t picture = 0; picture < g[0]; ++picture) {
      ends_q.push_back(ends_q.back() + static_cast<int32_t>(queries_));
      ends_k.push_back(ends_k.back() + static_cast<int32_t>(g[1] * g[2]));
      longest = std::max(longest, g[1] * g[2]);
    }
  const auto pictures = static_cast<int64_t>(ends_q.size()) - 1;
  const at::Tensor row_ND = (*of_rows_)(kv_ ? (*kv_)(x_ND, step_of(x_ND.size(0))) : x_ND);
  const at::Tensor placed_ND = row_ND + sines_of(grids, width_).to(row_ND.device(), row_ND.scalar_type());
  const auto made = [&](const at::Tensor& x, int64_t part) {
    return ops::linear(x, in_weight_->data.narrow(0, part * width_, width_),
                       in_bias_->data.narrow(0, part * width_, width_))
        .reshape({x.size(0), heads_, h});
  };
  const at::Tensor q_QnH = made((*of_query_)(query_->data), 0);
  const at::Tensor q = q_QnH.unsqueeze(0).expand({pictures, queries_, heads_, h}).reshape({-1, heads_, h});
  const auto counts = [&](const std::vector<int32_t>& ends) { return at::tensor(ends, at::kInt).to(x_ND.device()); };
  const at::Tensor y =
      ops::attention(q, made(placed_ND, 1), made(row_ND, 2), counts(ends_q), counts(ends_k), queries_, longest,
                     {.scale = 1 / std::sqrt(static_cast<double>(h)), .mask = {.causal = false}});
  const at::Tensor out = (*out_)(y.reshape({-1, width_}), step_of(pictures * queries_));
  return at::matmul((*end_)(out), proj_->data);
}

}  // namespace apus
