// SPDX-License-Identifier: Apache-2.0
#include "nn/prompt_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "base/prompt_words.h"
#include "base/random.h"
#include "ops/ops.h"
#include "tensor/noise.h"

namespace apus {

PromptRows::PromptRows(Spec spec)
    : spec_(std::move(spec)), rows_(param("prompt_embeddings", {spec_.words, spec_.size})) {}

at::Tensor PromptRows::apply(const at::Tensor& id_T, const at::Tensor& y_TD, const at::Tensor& /*weight*/, const Step&,
                             Memo* /*memo*/) const {
  const at::Tensor row_T = id_T - int64_t{kFirstPromptWord};
  const at::Tensor own_TD = at::index_select(rows_.data, 0, row_T.clamp(0, spec_.words - 1)).to(y_TD.scalar_type());
  return at::where((row_T >= 0).unsqueeze(1), own_TD, y_TD);
}

at::Tensor PromptRows::merged_rows(const at::Tensor& /*rows*/, int64_t /*first*/) const {
  fail(Fault::Usage,
       "a trained prompt is no change of a weight and cannot be merged: use it as it is (--adapters), or train with "
       "--tuner_type lora");
}

std::pair<at::Tensor, at::Tensor> PromptRows::columns(const at::Tensor& /*x_TI*/, const Step&) const {
  fail(Fault::Bug, "a trained prompt is no product of low rank");
}

void PromptRows::begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) {
  if (how == "RANDOM") {
    rows_.data = normal_noise(rows_.full, 0, 1, seed).to(options);
    return;
  }
  const bool text = how == "TEXT";
  require(!text || !spec_.text.empty(), Fault::Usage, "--prompt_tuning_init_text has no tokens: give a text");
  std::vector<int64_t> ids;
  Random drawn(seed, stream_named("prompt rows"));
  for (int64_t i = 0; i < spec_.words; ++i)
    ids.push_back(text ? spec_.text[static_cast<size_t>(i) % spec_.text.size()]
                       : static_cast<int64_t>(drawn.uniform() * static_cast<double>(spec_.table)));
  const at::Tensor& table = layer.weight().data;
  rows_.data = ops::embedding(at::tensor(ids, at::kLong).to(table.device()), table).to(options).clone();
}

void PromptRows::settle(const at::Tensor& /*weight*/, at::ScalarType type) { rows_.data = rows_.data.to(type); }

}  // namespace apus
