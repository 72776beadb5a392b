// SPDX-License-Identifier: Apache-2.0
#include "train/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/upload.h"

namespace apus {

Batch Batch::to(at::Device device) const {
  Batch out = *this;
  std::vector<at::Tensor*> all{&out.id_T,      &out.label_T,   &out.weight_T, &out.step.position,
                               &out.step.cu_q, &out.step.cu_k, &out.expert_TW};
  for (auto* columns : {&out.token_columns, &out.sequence_columns})
    for (auto& [name, values] : *columns) all.push_back(&values);
  move_together(all, device, {&out.step.cu_q, &out.step.cu_k, &out.label_T});
  return out;
}

Inputs Batch::inputs() const {
  Inputs in(id_T, media);
  const auto column = sequence_columns.find(kSecondText);
  if (column == sequence_columns.end()) return in;
  const at::Tensor second_S = column->second.to(at::kCPU);  // nan: one text
  for (int64_t s = 0; s < second_S.numel(); ++s) {
    const float second = second_S.data_ptr<float>()[s];
    in.second.push_back(std::isnan(second) ? 0 : static_cast<int32_t>(second));
  }
  return in;
}

namespace {

void add_columns(Batch& batch, const std::vector<Sample>& samples, int64_t tokens) {
  const auto missing = [](int64_t count) { return at::full({count}, NAN, at::kFloat); };
  const auto sequences = static_cast<int64_t>(samples.size());
  int64_t first = 0;  // token of the sample
  for (int64_t s = 0; s < sequences; ++s) {
    const Sample& sample = samples[static_cast<size_t>(s)];
    for (const auto& [name, value] : sample.columns) {
      at::Tensor& column_S = batch.sequence_columns[name];
      if (!column_S.defined()) column_S = missing(sequences);
      column_S.data_ptr<float>()[s] = value;
    }
    for (const auto& [name, values] : sample.token_columns) {
      require(values.size() == sample.ids.size(), Fault::Bug, "the column ", name, " has ", values.size(),
              " values for ", sample.ids.size(), " tokens");
      at::Tensor& column_T = batch.token_columns[name];
      if (!column_T.defined()) column_T = missing(tokens);
      std::copy(values.begin(), values.end(), column_T.data_ptr<float>() + first);
    }
    first += sample.length();
  }
}

// Of each token as many.
void add_experts(Batch& batch, const std::vector<Sample>& samples) {
  std::vector<int16_t> all;
  for (const Sample& sample : samples) all.insert(all.end(), sample.experts.begin(), sample.experts.end());
  if (all.empty()) return;
  const int64_t tokens = batch.id_T.size(0);
  require(std::ssize(all) % tokens == 0, Fault::Bug, "experts of some tokens of a batch are known");
  batch.expert_TW = at::empty({tokens, std::ssize(all) / tokens}, at::kShort);
  std::copy(all.begin(), all.end(), batch.expert_TW.data_ptr<int16_t>());
}

}  // namespace

Batch collate(const std::vector<Sample>& samples) {
  int64_t tokens = 0;
  std::vector<int32_t> lengths;
  bool channels = false, media = false;
  for (const Sample& sample : samples) {
    require(sample.length() > 0 && sample.trained.size() == sample.ids.size(), Fault::Bug, "an empty sample");
    tokens += sample.length();
    lengths.push_back(static_cast<int32_t>(sample.length()));
    channels = channels || !sample.channel.empty();
    media = media || !sample.media.empty();
  }
  Batch batch;
  batch.id_T = at::empty({tokens}, at::kLong);
  batch.label_T = at::empty({tokens}, at::kLong);
  batch.weight_T = at::empty({tokens}, at::kFloat);
  auto* id = batch.id_T.data_ptr<int64_t>();
  auto* label = batch.label_T.data_ptr<int64_t>();
  auto* weight = batch.weight_T.data_ptr<float>();
  for (const Sample& sample : samples) {
    const size_t count = sample.ids.size();
    for (size_t i = 0; i < count; ++i) {
      const bool learnt = i + 1 < count && sample.trained[i + 1];
      *id++ = sample.ids[i];
      *label++ = learnt ? sample.ids[i + 1] : -100;
      *weight++ = !learnt ? 0.0f : sample.weights.empty() ? 1.0f : sample.weights[i + 1];
      batch.trained += learnt;
    }
    if (channels) batch.channels.push_back(sample.channel);
    if (media) batch.media.push_back(sample.media);
    const bool joins = sample.grouped && !batch.groups.empty();
    batch.groups.push_back(batch.groups.empty() ? 0 : batch.groups.back() + !joins);
  }
  add_columns(batch, samples, tokens);
  add_experts(batch, samples);
  batch.step = packed_step(lengths, at::kCPU);
  return batch;
}

}  // namespace apus
