// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, M rows of a picture, D hidden, N query heads, K key-value heads, H head size.
#include "nn/picture_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "nn/training_step.h"
#include "ops/ops.h"

namespace apus {

PictureAttention::PictureAttention(const Spec& s)
    : spec_(s),
      q_(child<Linear>("q_proj", Linear::Spec{.in = s.hidden, .out = s.heads * s.head_dim, .bias = s.bias})),
      k_(child<Linear>("k_proj", Linear::Spec{.in = s.hidden, .out = s.kv_heads * s.head_dim})),
      v_(child<Linear>("v_proj", Linear::Spec{.in = s.hidden, .out = s.kv_heads * s.head_dim, .bias = s.bias})),
      o_(child<Linear>(s.out_name, Linear::Spec{.in = s.heads * s.head_dim, .out = s.hidden, .bias = s.bias})) {
  if (!s.norm) return;
  q_norm_ = &child<Norm>("q_norm", s.head_dim, *s.norm);
  k_norm_ = &child<Norm>("k_norm", s.head_dim, *s.norm);
}

namespace {
// The step for rows of pictures: theirs are not the text's.
Step step_of(const Step& s, std::vector<Step::AdapterRows> adapters) {
  Step own;
  own.routed = s.routed, own.adapters = std::move(adapters);
  if (!s.training) return own;
  TrainingStep training;
  training.dropout_seed = s.training->dropout_seed, training.fp8 = s.training->fp8;
  set_training(own, std::move(training));
  return own;
}

Step::AdapterRows rows_of(const std::string& adapter, int64_t first, int64_t count, at::Device device) {
  return {adapter, at::arange(first, first + count, at::TensorOptions(device).dtype(at::kLong))};
}

at::Tensor one_run(int64_t length, at::Device device) { return at::tensor({int64_t{0}, length}, at::kInt).to(device); }
}  // namespace

PictureAttention::Keys PictureAttention::keys(const at::Tensor& row_MD, const Step& s) const {
  const auto heads = [&](const Linear& linear) {
    return linear(row_MD, s).reshape({row_MD.size(0), spec_.kv_heads, spec_.head_dim});
  };
  const at::Tensor k_MKH = heads(k_);
  return {k_norm_ ? (*k_norm_)(k_MKH) : k_MKH, heads(v_)};
}

std::vector<PictureAttention::Keys> PictureAttention::all_keys(const Step& s, at::Device device) const {
  const PicturesSeen& seen = *s.pictures;
  std::vector<Keys> all;
  if (s.cache) {
    for (size_t i = 0; i < seen.pictures.size(); ++i) {
      PictureKeys& kept = *s.beside->picture_keys[i];
      auto place = kept.of_layer.find(spec_.layer);
      if (place == kept.of_layer.end()) {
        const at::Tensor row_MD = kept.row_MD.to(device);
        const std::string& adapter = seen.pictures[i].adapter;
        std::vector<Step::AdapterRows> routes;
        if (!adapter.empty()) routes.push_back(rows_of(adapter, 0, row_MD.size(0), device));
        const Keys made = keys(row_MD, step_of(s, std::move(routes)));
        place = kept.of_layer.emplace(spec_.layer, std::pair{made.k_MKH, made.v_MKH}).first;
        if (std::ssize(kept.of_layer) == spec_.layers) kept.row_MD = at::Tensor();
      }
      all.push_back({place->second.first, place->second.second});
    }
    return all;
  }
  const at::Tensor row_RD = s.beside->picture_RD.to(device);
  std::vector<Step::AdapterRows> routes;
  for (size_t i = 0; i < seen.pictures.size(); ++i)
    if (const std::string& adapter = seen.pictures[i].adapter; !adapter.empty())
      routes.push_back(rows_of(adapter, static_cast<int64_t>(i) * seen.rows, seen.rows, device));
  const Keys made = keys(row_RD, step_of(s, std::move(routes)));
  for (int64_t first = 0; first < row_RD.size(0); first += seen.rows)
    all.push_back({made.k_MKH.narrow(0, first, seen.rows), made.v_MKH.narrow(0, first, seen.rows)});
  return all;
}

at::Tensor PictureAttention::operator()(const at::Tensor& x_TD, const Step& s) const {
  const PicturesSeen& seen = *s.pictures;
  const at::Device device = x_TD.device();
  at::Tensor q_TNH = q_(x_TD, s).reshape({x_TD.size(0), spec_.heads, spec_.head_dim});
  if (q_norm_) q_TNH = (*q_norm_)(q_TNH);
  const at::Tensor row_R = seen.row_R.to(device), q_RNH = at::index_select(q_TNH, 0, row_R);
  const std::vector<Keys> of_picture = all_keys(s, device);
  std::vector<at::Tensor> answers;
  int64_t first = 0;
  for (const PicturesSeen::Run& run : seen.runs) {
    std::vector<at::Tensor> k, v;
    for (const PicturesSeen::Part& part : run.parts) {
      k.push_back(of_picture[part.picture].k_MKH.narrow(0, 0, part.rows));
      v.push_back(of_picture[part.picture].v_MKH.narrow(0, 0, part.rows));
    }
    const at::Tensor keys = k.size() == 1 ? k[0] : at::cat(k), values = v.size() == 1 ? v[0] : at::cat(v);
    answers.push_back(
        ops::attention(q_RNH.narrow(0, first, run.tokens), keys, values, one_run(run.tokens, device),
                       one_run(keys.size(0), device), run.tokens, keys.size(0),
                       {.scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim)), .mask = {.causal = false}}));
    first += run.tokens;
  }
  const at::Tensor y_TNH = at::index_copy(at::zeros_like(q_TNH), 0, row_R, at::cat(answers));
  return o_(y_TNH.reshape({x_TD.size(0), -1}), s);
}

}  // namespace apus
