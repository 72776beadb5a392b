// SPDX-License-Identifier: Apache-2.0
// Shapes: F frames, G codebooks, C channels, T time, D width of the layers.
#include "models/speech/vocoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/gelu.h>

#include "models/speech/row_stepper.h"
#include "models/speech/sound_parts.h"
#include "ops/ops.h"

namespace apus {

Vocoder::Vocoder(VocoderSpec spec) : spec_(std::move(spec)), layers_(spec_.layers), parts_(spec_.parts) {}

namespace {
std::string book_name(const VocoderSpec& spec, int64_t book) {
  return spec.name +
         (book == 0 ? ".quantizer.rvq_first.vq.layers.0" : str(".quantizer.rvq_rest.vq.layers.", book - 1)) +
         "._codebook.";
}
}  // namespace

void Vocoder::settle() {
  for (int64_t book = 0; spec_.residual && book < spec_.books; ++book) {
    const at::Tensor& use = parts_.bare(book_name(spec_, book) + "cluster_usage").data;
    parts_.visit([&](const std::string& name, Param& p) {
      if (name == book_name(spec_, book) + "embedding_sum") p.data = book_rows(p.data, use);
    });
  }
  const std::string scale = "_layer_scale.scale";
  layers_.visit([&](const std::string& name, Param& p) {
    for (const auto& [branch, last] : {std::pair{"self_attn", ".o_proj."}, std::pair{"mlp", ".down_proj."}}) {
      const size_t at = name.find(str(".", branch, last));
      if (at == std::string::npos) continue;
      const at::Tensor& by = parts_.bare(str(name.substr(0, at + 1), branch, scale)).data;
      p.data = p.data * (p.data.dim() == 2 ? by.unsqueeze(1) : by);
    }
  });
}

at::Tensor Vocoder::sound(const at::Tensor& code_FG, const SoundWish&) const {
  std::vector<at::Tensor> pieces;
  for (int64_t first = 0; first < code_FG.size(0); first += spec_.frames) {
    const int64_t before = first > spec_.context ? spec_.context : first;
    const int64_t count = std::min(spec_.frames, code_FG.size(0) - first);
    const at::Tensor piece = decoded(code_FG.narrow(0, first - before, before + count));
    pieces.push_back(
        piece.narrow(0, before * spec_.samples_per_frame(), piece.size(0) - before * spec_.samples_per_frame()));
  }
  return at::cat(pieces, 0);
}

at::Tensor Vocoder::rows_of(const at::Tensor& code_FG) const {
  const at::Tensor first_G = at::arange(spec_.books, code_FG.options()) * spec_.words;
  const at::Tensor& table = parts_.table(spec_.name + ".code_embedding").weight();
  const at::Tensor row = ops::embedding((code_FG + first_G).flatten(), table);
  return row.reshape({code_FG.size(0), spec_.books, -1}).mean(1);
}

at::Tensor Vocoder::residual_rows(const at::Tensor& code_FG) const {
  const auto looked_up = [&](int64_t book) {
    return ops::embedding(code_FG.select(1, book), parts_.bare(book_name(spec_, book) + "embedding_sum").data);
  };
  const auto widened = [&](const at::Tensor& row_FD, const char* kind) {
    const at::Tensor& by = parts_.table(str(spec_.name, ".quantizer.rvq_", kind, ".output_proj")).weight();
    return ops::linear(row_FD, by.squeeze(2), {});
  };
  at::Tensor rest_FD = looked_up(1);
  for (int64_t book = 2; book < spec_.books; ++book) rest_FD = rest_FD + looked_up(book);
  const at::Tensor row_FD = widened(looked_up(0), "first") + widened(rest_FD, "rest");
  return convolved(row_FD.t().unsqueeze(0), spec_.name + ".pre_conv.conv").squeeze(0).t();
}

// Through the layers of attention -> [1, C, F].
at::Tensor Vocoder::through_layers(const at::Tensor& code_FG) const {
  if (!spec_.residual) return hidden_of_rows(layers_, rows_of(code_FG)).t().unsqueeze(0);
  const auto brought = [&](const char* name, const at::Tensor& row_FD) {
    return parts_.linear(spec_.layers.backbone + name)(row_FD, Step());
  };
  const at::Tensor row_FD = brought(".input_proj", residual_rows(code_FG));
  return brought(".output_proj", hidden_of_rows(layers_, row_FD)).t().unsqueeze(0);
}

at::Tensor Vocoder::decoded(const at::Tensor& code_FG) const {
  at::Tensor x = through_layers(code_FG);
  for (size_t i = 0; i < spec_.stretches.size(); ++i) {
    const std::string part = str(spec_.name, ".upsample.", i);
    x = mixed(stretched(x, part + ".0.conv", spec_.stretches[i]), part + ".1");
  }
  const auto part = [&](size_t i) { return str(spec_.name, ".decoder.", i); };
  x = convolved(x, part(0) + ".conv");
  for (size_t i = 1; i <= spec_.rates.size(); ++i) {
    const std::string block = part(i) + ".block.";
    x = stretched(bent(x, block + "0"), block + "1.conv", spec_.rates[i - 1]);
    for (int64_t unit = 2, dilation = 1; unit < 5; ++unit, dilation *= 3) {
      const std::string in = str(block, unit);
      const at::Tensor far = convolved(bent(x, in + ".act1"), in + ".conv1.conv", dilation);
      x = x + convolved(bent(far, in + ".act2"), in + ".conv2.conv");
    }
  }
  const size_t last = spec_.rates.size() + 1;
  return convolved(bent(x, part(last)), part(last + 1) + ".conv").flatten().clamp(-1, 1);
}

// Each moment sees itself and what was before it.
at::Tensor Vocoder::convolved(const at::Tensor& x_1CT, const std::string& name, int64_t dilation,
                              int64_t groups) const {
  const Table& by = parts_.table(name);
  const int64_t before = (by.weight().size(2) - 1) * dilation;
  return at::conv1d(at::constant_pad_nd(x_1CT, {before, 0}), by.weight(), by.bias(), /*stride=*/at::IntArrayRef{1},
                    /*padding=*/at::IntArrayRef{0}, dilation, groups);
}

// Each moment becomes `by` moments, and is heard in the `by` behind them too where the kernel is twice as long; what
// stands alone at the ends is cut off.
at::Tensor Vocoder::stretched(const at::Tensor& x_1CT, const std::string& name, int64_t by) const {
  const at::Tensor& kernel = parts_.table(name).weight();
  const int64_t cut = kernel.size(2) - by;
  const at::Tensor y = at::conv_transpose1d(x_1CT, kernel, parts_.bare(name + ".bias").data, by);
  const int64_t before = spec_.cuts_beginning ? cut : 0;
  return y.narrow(2, before, y.size(2) - cut - before);
}

// Neighbours within each channel, then the channels of each moment.
at::Tensor Vocoder::mixed(const at::Tensor& x_1CT, const std::string& name) const {
  const at::Tensor near = convolved(x_1CT, name + ".dwconv.conv", 1, x_1CT.size(1));
  const at::Tensor row_TC = parts_.norm(name + ".norm")(near.squeeze(0).t());
  const at::Tensor wide = at::gelu(parts_.linear(name + ".pwconv1")(row_TC, Step()));
  const at::Tensor back_TC = parts_.linear(name + ".pwconv2")(wide, Step()) * parts_.bare(name + ".gamma").data;
  return x_1CT + back_TC.t().unsqueeze(0);
}

at::Tensor Vocoder::bent(const at::Tensor& x_1CT, const std::string& name) const {
  return snake(x_1CT, parts_.bare(name + ".alpha").data, parts_.bare(name + ".beta").data);
}

}  // namespace apus
