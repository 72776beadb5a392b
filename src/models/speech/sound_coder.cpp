// SPDX-License-Identifier: Apache-2.0
// Shapes: C channels, T time, D width of the layers, F frames.
#include "models/speech/sound_coder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "models/speech/sound_parts.h"
#include "nn/rope.h"
#include "ops/ops.h"

namespace apus {

namespace {
class Coder {
 public:
  Coder(const SoundCoderSpec& spec, const TowerParts& parts) : spec_(spec), parts_(parts) {}

  at::Tensor narrowed(const at::Tensor& sample_N) const {
    const auto layer = [](size_t i) { return str(".encoder.layers.", i); };
    at::Tensor x = convolved(sample_N.view({1, 1, -1}), layer(0) + ".conv");
    size_t at = 1;
    for (const int64_t rate : spec_.rates) {
      const std::string block = layer(at) + ".block.";
      const at::Tensor near = convolved(at::elu(x), block + "1.conv");
      x = x + convolved(at::elu(near), block + "3.conv");
      x = convolved(at::elu(x), layer(at + 2) + ".conv", rate);
      at += 3;
    }
    return convolved(at::elu(x), layer(at + 1) + ".conv");
  }

  at::Tensor attended(at::Tensor x_TD) const {
    const int64_t rows = x_TD.size(0);
    const Turn turn = turn_at(spec_.rope, at::arange(rows, at::kLong));
    const at::Tensor ends = at::tensor({int64_t{0}, rows}, at::kInt);
    const ops::AttentionRule rule{.scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim)),
                                  .mask = {.causal = true, .window = spec_.window}};
    for (int64_t i = 0; i < spec_.layers; ++i) {
      const std::string in = str(".encoder_transformer.layers.", i, ".");
      const at::Tensor normed = parts_.norm(spec_.name + in + "input_layernorm")(x_TD);
      const auto heads = [&](const char* which) {
        return linear(in + "self_attn." + which, normed).view({rows, spec_.heads, spec_.head_dim});
      };
      const auto [q, k] = ops::rope(heads("q_proj"), heads("k_proj"), turn.cos, turn.sin);
      const at::Tensor y = ops::attention(q, k, heads("v_proj"), ends, ends, rows, rows, rule);
      x_TD = x_TD + linear(in + "self_attn.o_proj", y.flatten(1)) * bare(in + "self_attn_layer_scale.scale");
      const at::Tensor wide = linear(in + "mlp.fc1", parts_.norm(spec_.name + in + "post_attention_layernorm")(x_TD));
      x_TD = x_TD + linear(in + "mlp.fc2", at::gelu(wide)) * bare(in + "mlp_layer_scale.scale");
    }
    return x_TD;
  }

  // Time is halved; at the ends it stands still.
  at::Tensor halved(const at::Tensor& x_TD) const {
    return convolved(x_TD.t().unsqueeze(0), ".downsample.conv", 2, /*stands_still=*/true).squeeze(0).t();
  }

  // Of `count` books the words that are nearest, each to what those before it left over -> [F] each.
  void look_up(const at::Tensor& x_FD, const char* kind, int64_t count, std::vector<at::Tensor>& words) const {
    const std::string in = str(".quantizer.", kind, "_residual_vector_quantizer.");
    at::Tensor left = x_FD;
    if (spec_.projects) left = ops::linear(x_FD, parts_.table(spec_.name + in + "input_proj").weight().squeeze(2), {});
    for (int64_t i = 0; i < count; ++i) {
      const std::string book = str(in, "layers.", i, ".codebook.");
      const at::Tensor rows = book_rows(bare(book + "embed_sum"), bare(book + "cluster_usage"));
      words.push_back(at::argmin(at::cdist(left, rows), 1));
      left = left - ops::embedding(words.back(), rows);
    }
  }

 private:
  const at::Tensor& bare(const std::string& name) const { return parts_.bare(spec_.name + name).data; }
  at::Tensor linear(const std::string& name, const at::Tensor& x_TD) const {
    return parts_.linear(spec_.name + name)(x_TD, Step());
  }
  // Each moment is made of itself and of those before it; a begun step counts as one.
  at::Tensor convolved(const at::Tensor& x_1CT, const std::string& name, int64_t step = 1,
                       bool stands_still = false) const {
    const Table& by = parts_.table(spec_.name + name);
    const int64_t before = by.weight().size(2) - step, behind = (step - x_1CT.size(2) % step) % step;
    const at::Tensor padded =
        stands_still ? at::replication_pad1d(x_1CT, {before, behind}) : at::constant_pad_nd(x_1CT, {before, behind});
    return at::conv1d(padded, by.weight(), by.bias(), /*stride=*/at::IntArrayRef{step});
  }

  const SoundCoderSpec& spec_;
  const TowerParts& parts_;
};
}  // namespace

at::Tensor codes_of(const SoundCoderSpec& spec, const TowerParts& parts, const at::Tensor& sample_N) {
  const Coder coder(spec, parts);
  const at::Tensor x_FD = coder.halved(coder.attended(coder.narrowed(sample_N).squeeze(0).t().contiguous()));
  std::vector<at::Tensor> words;
  coder.look_up(x_FD, "semantic", 1, words);
  coder.look_up(x_FD, "acoustic", spec.books - 1, words);
  return at::stack(words, 1);
}

}  // namespace apus
