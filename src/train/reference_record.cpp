// SPDX-License-Identifier: Apache-2.0
#include "train/reference_record.h"

#include <ATen/ops/zeros.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/random.h"
#include "device/agree.h"

namespace apus {
namespace {

// Calls visit(digest, places of the labels in the batch) for each sequence.
void each_sequence(const Batch& batch, const std::function<void(uint64_t, const std::vector<int64_t>&)>& visit) {
  const at::Tensor id_T = batch.id_T.cpu().contiguous(), label_T = batch.label_T.cpu().contiguous();
  const auto *id = id_T.data_ptr<int64_t>(), *label = label_T.data_ptr<int64_t>();
  int64_t at = 0;
  for (const int32_t length : batch.step.length_q) {
    uint64_t digest = stream_named("reference record");
    std::vector<int64_t> places;
    for (const int64_t end = at + length; at < end; ++at) {
      digest = mix(digest, static_cast<uint64_t>(id[at]), label[at] >= 0);
      if (label[at] >= 0) places.push_back(at);
    }
    visit(digest, places);
  }
}

template <class Number>
void append(std::string& text, const Number* numbers, size_t count) {
  text.append(reinterpret_cast<const char*>(numbers), count * sizeof(Number));
}

}  // namespace

void ReferenceRecord::add(const Batch& batch, const at::Tensor& logprob_T) {
  const at::Tensor host_T = logprob_T.cpu().to(at::kFloat).contiguous();
  const float* logprob = host_T.data_ptr<float>();
  each_sequence(batch, [&](uint64_t digest, const std::vector<int64_t>& places) {
    std::vector<float>& values = known_[digest];
    values.clear();
    for (const int64_t place : places) values.push_back(logprob[place]);
  });
}

at::Tensor ReferenceRecord::logprobs(const Batch& batch) const {
  at::Tensor out_T = at::zeros(batch.id_T.sizes(), at::TensorOptions().dtype(at::kFloat));
  float* out = out_T.data_ptr<float>();
  each_sequence(batch, [&](uint64_t digest, const std::vector<int64_t>& places) {
    const auto found = known_.find(digest);
    require(found != known_.end() && found->second.size() == places.size(), Fault::Bug,
            "the reference was not asked of a sequence before the run");
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = found->second[i];
  });
  return out_T.to(batch.id_T.device());
}

void ReferenceRecord::share(Comm& ranks) {
  if (ranks.size() == 1) return;
  std::string mine;
  for (const auto& [digest, values] : known_) {
    const uint64_t count = values.size();
    append(mine, &digest, 1), append(mine, &count, 1), append(mine, values.data(), values.size());
  }
  for (const std::string& text : gather_text(mine, ranks)) {
    for (size_t at = 0; at < text.size();) {
      uint64_t head[2];
      std::memcpy(head, text.data() + at, sizeof(head));
      std::vector<float>& values = known_[head[0]];
      values.resize(head[1]);
      std::memcpy(values.data(), text.data() + at + sizeof(head), values.size() * sizeof(float));
      at += sizeof(head) + values.size() * sizeof(float);
    }
  }
}

}  // namespace apus
