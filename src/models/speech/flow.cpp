// SPDX-License-Identifier: Apache-2.0
// Shapes: T rows of mel, twice where what the codes say stands before what would be there without them; D width,
// N heads, H head size, M bands.
#include "models/speech/flow.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "nn/rope.h"
#include "ops/ops.h"

namespace apus {

Flow::Flow(const FlowSpec& spec) : spec_(spec), parts_(spec.parts) {}

namespace {
constexpr const char* kCodes = ".text_embed.codec_embed";
}  // namespace

at::Device Flow::device() const { return parts_.table(spec_.name + kCodes).weight().device(); }

at::Tensor Flow::linear(const std::string& name, const at::Tensor& x_TD) const {
  return parts_.linear(spec_.name + name)(x_TD, Step());
}

namespace {
at::Tensor normed(const at::Tensor& x_TD) { return at::layer_norm(x_TD, {x_TD.size(1)}, {}, {}, 1e-6); }

// Of the first head each pair of neighbours turns; the others do not.
at::Tensor turned(const at::Tensor& x_TNH, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor pairs = x_TNH.narrow(1, 0, 1).unflatten(2, {x_TNH.size(2) / 2, 2});
  const at::Tensor even = pairs.select(3, 0), odd = pairs.select(3, 1);
  const at::Tensor first = at::cat({even * cos - odd * sin, odd * cos + even * sin}, 2);
  return at::cat({first, x_TNH.narrow(1, 1, x_TNH.size(1) - 1)}, 1);
}
}  // namespace

Flow::Sight Flow::sight(int64_t rows, bool behind, bool ahead, at::Device device) const {
  const int64_t blocks = (rows + spec_.block - 1) / spec_.block;
  std::vector<int32_t> cu_q = {0}, cu_k = {0};
  std::vector<int64_t> keys;
  Sight out;
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t i = 0; i < blocks; ++i) {
      const auto begins = [&](int64_t block) { return std::clamp<int64_t>(block * spec_.block, 0, rows); };
      const int64_t count = begins(i + 1) - begins(i), first = begins(i - (behind ? 1 : 0)),
                    last = begins(i + (ahead ? 2 : 1));
      for (int64_t key = first; key < last; ++key) keys.push_back(half * rows + key);
      cu_q.push_back(cu_q.back() + static_cast<int32_t>(count));
      cu_k.push_back(cu_k.back() + static_cast<int32_t>(last - first));
      out.max_q = std::max(out.max_q, count), out.max_k = std::max(out.max_k, last - first);
    }
  out.cu_q = at::tensor(cu_q, at::kInt).to(device), out.cu_k = at::tensor(cu_k, at::kInt).to(device);
  if (behind || ahead) out.keys = at::tensor(keys, at::kLong).to(device);
  return out;
}

Flow::Told Flow::told(const at::Tensor& code_F, const Voice& voice) const {
  const int64_t rows = code_F.size(0) * spec_.repeats;
  const at::Tensor& table = parts_.table(spec_.name + kCodes).weight();
  const auto half = [&](const at::Tensor& codes, const at::Tensor& manner_E, const at::Tensor& own_V) {
    const at::Tensor code_TD = at::repeat_interleave(ops::embedding(codes, table), spec_.repeats, 0);
    return at::cat({manner_E.expand({rows, -1}), code_TD, own_V.expand({rows, -1})}, 1);
  };
  Told out;
  out.rest = at::cat({half(code_F, voice.manner_E, voice.own_V),
                      half(at::zeros_like(code_F), voice.no_manner_E, at::zeros_like(voice.own_V))},
                     0);
  const Turn turn = turn_at(spec_.rope, at::arange(rows, code_F.options()));
  const auto on_both = [&](const at::Tensor& x) { return at::cat({x, x}, 0).unsqueeze(1).to(table.scalar_type()); };
  out.cos = on_both(turn.cos), out.sin = on_both(turn.sin);
  for (const bool behind : {false, true})
    for (const bool ahead : {false, true}) out.sights[behind][ahead] = sight(rows, behind, ahead, table.device());
  return out;
}

at::Tensor Flow::attended(const std::string& name, const at::Tensor& x_TD, const Told& told, const Sight& sight) const {
  const auto heads = [&](const char* which) {
    return linear(name + which, x_TD).view({-1, spec_.heads, spec_.head_dim});
  };
  const at::Tensor q = turned(heads(".to_q"), told.cos, told.sin);
  at::Tensor k = turned(heads(".to_k"), told.cos, told.sin), v = heads(".to_v");
  if (sight.keys.defined()) k = at::index_select(k, 0, sight.keys), v = at::index_select(v, 0, sight.keys);
  const ops::AttentionRule rule{.scale = 1 / std::sqrt(static_cast<double>(spec_.head_dim)), .mask = {.causal = false}};
  const at::Tensor y = ops::attention(q, k, v, sight.cu_q, sight.cu_k, sight.max_q, sight.max_k, rule);
  return linear(name + ".to_out.0", y.flatten(1));
}

at::Tensor Flow::layer(int64_t i, const at::Tensor& x_TD, const at::Tensor& time_1D, const Told& told) const {
  const std::string name = str(".transformer_blocks.", i);
  // What the time says of both branches: a shift, a scale and a gate of each.
  const std::vector<at::Tensor> says = linear(name + ".attn_norm.linear", at::silu(time_1D)).chunk(6, 1);
  const Sight& sight = told.sights[spec_.behind.count(i)][spec_.ahead.count(i)];
  const at::Tensor x = x_TD + says[2] * attended(name + ".attn", normed(x_TD) * (1 + says[1]) + says[0], told, sight);
  const at::Tensor wide = linear(name + ".ff.ff.0", normed(x) * (1 + says[4]) + says[3]);
  return x + says[5] * linear(name + ".ff.ff.3", at::gelu(wide, "tanh"));
}

// Sines and cosines of a thousand times the time.
at::Tensor Flow::time_row(double time, const at::TensorOptions& options) const {
  const int64_t waves = kTimeWidth / 2;
  const at::Tensor slower = at::arange(waves, at::kFloat) * (-std::log(10000.0) / static_cast<double>(waves - 1));
  const at::Tensor angle = 1000 * time * slower.exp();
  const at::Tensor row = at::cat({angle.sin(), angle.cos()}, 0).unsqueeze(0).to(options.device(), options.dtype());
  return linear(".time_embed.time_mlp.2", at::silu(linear(".time_embed.time_mlp.0", row)));
}

at::Tensor Flow::direction(double time, const at::Tensor& mel_TM, const Told& told) const {
  const at::Tensor time_1D = time_row(time, mel_TM.options());
  at::Tensor x = linear(".input_embed.proj", at::cat({at::cat({mel_TM, mel_TM}, 0), told.rest}, 1));
  for (int64_t i = 0; i < spec_.layers; ++i) x = layer(i, x, time_1D, told);
  const std::vector<at::Tensor> says = linear(".norm_out.linear", at::silu(time_1D)).chunk(2, 1);
  const std::vector<at::Tensor> halves = linear(".proj_out", normed(x) * (1 + says[0]) + says[1]).chunk(2, 0);
  return halves[0] + (halves[0] - halves[1]) * spec_.guidance;
}

// Runge and Kutta's rule of three eighths. Time goes slowly at first.
at::Tensor Flow::mel(const at::Tensor& code_F, const Voice& voice, const at::Tensor& noise_TM) const {
  const int64_t rows = code_F.size(0) * spec_.repeats;
  require(rows <= spec_.most_rows, Fault::Data, "an answer of ", code_F.size(0),
          " codes is too long to be spoken: at most ", spec_.most_rows / spec_.repeats,
          " (dit_config.max_position_embeddings)");
  const Told all = told(code_F, voice);
  const auto f = [&](double time, const at::Tensor& at) { return direction(time, at, all); };
  const auto time_of = [&](int64_t i) {
    return 1 - std::cos(std::numbers::pi / 2 * static_cast<double>(i) / static_cast<double>(spec_.points - 1));
  };
  at::Tensor y = noise_TM;
  for (int64_t i = 0; i + 1 < spec_.points; ++i) {
    const double from = time_of(i), to = time_of(i + 1), step = to - from, third = 1.0 / 3;
    const at::Tensor k1 = f(from, y), k2 = f(from + step * third, y + step * third * k1);
    const at::Tensor k3 = f(from + 2 * step * third, y + step * (k2 - third * k1));
    const at::Tensor k4 = f(to, y + step * (k1 - k2 + k3));
    y = y + (k1 + 3 * (k2 + k3) + k4) * (step / 8);
  }
  return y;
}

}  // namespace apus
