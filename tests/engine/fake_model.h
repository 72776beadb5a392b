// SPDX-License-Identifier: Apache-2.0
// A model whose next token is a hash of all tokens so far, which it reads back from the cache: a wrong slot, block
// table, position or length, other media, or keys of former weights give another answer. Token kPoison makes the step
// fail. And what requests to it need.
#pragma once

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "engine/engine.h"
#include "models/model.h"

namespace apus::testing_engine {

constexpr int32_t kVocab = 97, kPoison = 96;

inline int32_t next_token(const std::vector<int32_t>& tokens) {
  uint64_t h = 1;
  for (const int32_t t : tokens) h = mix(h, 0, static_cast<uint64_t>(t));
  return static_cast<int32_t>(h % 90);
}

// `weights`: as of FakeModel.
inline std::vector<int32_t> answer(std::vector<int32_t> tokens, int64_t count, int32_t weights = 0) {
  std::vector<int32_t> out;
  for (int32_t& t : tokens) t += weights;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(next_token(tokens));
    tokens.push_back(out.back() + weights);
  }
  return out;
}

using Media = std::vector<MediaItem>;

// What the model sees in place of a placeholder: which media it is of, and which part. Floats hold it exactly.
inline int32_t seen(const MediaItem& m, int64_t part) {
  return static_cast<int32_t>(
      1000 + mix(stream_named(m.digest), static_cast<uint64_t>(m.length), static_cast<uint64_t>(part)) % 1'000'000);
}
inline std::vector<int32_t> with_media(std::vector<int32_t> tokens, const Media& media) {
  for (const MediaItem& m : media)
    for (int64_t i = 0; i < m.length; ++i) tokens[static_cast<size_t>(m.begin + i)] = seen(m, i);
  return tokens;
}

class FakeModel : public Model {
 public:
  explicit FakeModel(int64_t head_dim = 1) { shape_.head_dim = head_dim; }
  const ModelShape& shape() const override { return shape_; }
  void begin(Step& s) const override {
    if (on_step && s.cache) on_step(s);  // without one, only tables are asked for
  }
  at::Tensor embed(const Inputs& in, const Step& s) const override {
    const auto* id = in.id_T.data_ptr<int64_t>();
    for (int64_t i = 0; i < in.id_T.size(0); ++i) require(id[i] != kPoison, Fault::Device, "poison");
    at::Tensor x_TD = in.id_T.to(at::kFloat).unsqueeze(1);
    for (size_t i = 0; i < in.media.size(); ++i) {
      const int64_t begin = s.begin_q[i], end = begin + s.length_q[i];
      float* row = x_TD.data_ptr<float>() + s.cu_q.data_ptr<int32_t>()[i];
      for (const MediaItem& m : in.media[i])
        for (int64_t t = std::max(begin, m.begin); t < std::min(end, m.begin + m.length); ++t)
          row[t - begin] = static_cast<float>(seen(m, t - m.begin));
    }
    return x_TD.add_(weights);
  }
  at::Tensor layer(int64_t, at::Tensor x_TD, const Step& s) const override {
    at::Tensor cache = s.cache->k(0).view({-1}), out = at::empty_like(x_TD);
    const int64_t size = s.cache->spec().block_size;
    const auto* slot = s.slot.data_ptr<int64_t>();
    const auto* position = s.position.data_ptr<int64_t>();
    const auto* table = s.block_table.data_ptr<int32_t>();
    const auto *cu_q = s.cu_q.data_ptr<int32_t>(), *cu_k = s.cu_k.data_ptr<int32_t>();
    float* cell = cache.data_ptr<float>();
    for (int64_t t = 0; t < x_TD.size(0); ++t) cell[slot[t]] = x_TD.data_ptr<float>()[t];
    for (size_t i = 0; i < s.length_q.size(); ++i) {
      const int64_t q = cu_q[i + 1] - cu_q[i], k = cu_k[i + 1] - cu_k[i];
      require(q == s.length_q[i] && q <= s.max_q && k <= s.max_k, Fault::Bug, "lengths");
      std::vector<int32_t> tokens;
      for (int64_t n = 0; n < k; ++n)
        tokens.push_back(static_cast<int32_t>(
            cell[table[static_cast<int64_t>(i) * s.block_table.size(1) + n / size] * size + n % size]));
      for (int64_t n = 0; n < q; ++n) {
        require(s.position.dim() == 2 || position[cu_q[i] + n] == k - q + n, Fault::Bug, "position");
        out.data_ptr<float>()[cu_q[i] + n] =
            static_cast<float>(next_token({tokens.begin(), tokens.begin() + (k - q + n + 1)}));
      }
    }
    return out;
  }
  at::Tensor final_norm(const at::Tensor& x_TD) const override { return x_TD; }
  at::Tensor head_weight() const override { return {}; }
  at::Tensor head(const at::Tensor& x_TD, const Step& s) const override {
    if (on_head) on_head(x_TD, s);
    at::Tensor logits = at::zeros({x_TD.size(0), kVocab}, at::kFloat);
    for (int64_t t = 0; t < x_TD.size(0); ++t) {
      const auto best = static_cast<int64_t>(x_TD.data_ptr<float>()[t]);
      logits[t][best] = 5;
      logits[t][(best + 1) % 90] = 4;
    }
    return logits;
  }
  int32_t weights = 0;  // added to everything that is embedded
  std::function<void(const Step&)> on_step;
  std::function<void(const at::Tensor&, const Step&)> on_head;

 private:
  ModelShape shape_{
      .layers = 1, .hidden = 1, .heads = 1, .kv_heads = 1, .head_dim = 1, .vocab = kVocab, .max_positions = 256};
};

// The model of these tests reads tensors by pointer: they are of the processor.
inline const at::TensorOptions kOptions = at::TensorOptions().dtype(at::kFloat).device(at::kCPU);

// A cache of `blocks` blocks of 4 tokens: one layer, one head of one float, keys and values.
inline EngineSpec spec(int64_t blocks = 64, int64_t budget = 16, int64_t sequences = 8) {
  return {.block_size = 4, .max_step_tokens = budget, .max_sequences = sequences, .cache_bytes = blocks * 4 * 2 * 4};
}

inline std::vector<int32_t> prompt(uint64_t seed, size_t length) {
  Random random(seed, "prompt");
  std::vector<int32_t> out;
  for (size_t i = 0; i < length; ++i) out.push_back(static_cast<int32_t>(random.below(90)));
  return out;
}
inline Sampling greedy(int64_t news) { return {.temperature = 0, .max_new_tokens = news}; }

}  // namespace apus::testing_engine
