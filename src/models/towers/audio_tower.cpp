// SPDX-License-Identifier: Apache-2.0
// Shapes: B chunks, M mel bands, F frames of a chunk, H bands or 1 and W time on the way through convolutions, C their
// channels, N rows of all sounds, D width.
#include "models/towers/audio_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/towers/convolution.h"
#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

namespace {
// So many chunks go through the convolutions at once: what they gather is many times larger than what they give.
constexpr int64_t kChunksAtOnce = 8;

at::Tensor convolution(const at::Tensor& x_BHWC, const Table& table, int64_t stride) {
  // As rows: libtorch's gelu loses gradients of other shapes.
  const at::Tensor y = convolved(x_BHWC, table, stride);
  return at::gelu(y.flatten(0, 2)).reshape(y.sizes());
}

at::Tensor on_device(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}
}  // namespace

// All sounds cut into chunks, the last of each filled up with zeros.
struct AudioTower::Chunks {
  at::Tensor chunk_BFM, heard_BF;   // heard: 1 where there is sound
  std::vector<int64_t> rows;        // that stay of each chunk behind the convolutions
  std::vector<int64_t> rows_of;     // of each sound
  std::vector<int32_t> ends = {0};  // of the runs of rows that see each other
  int64_t longest = 0;
};

AudioTower::AudioTower(const HearingSpec& spec, const TowerParts& parts) : spec_(spec) {
  const auto name = [&](const std::string& part) { return spec.name + "." + part; };
  if (spec.front == HearingSpec::Front::Bare) {
    projections_.push_back(&parts.linear(spec.projections.front()));
    return;
  }
  const bool line = spec.front == HearingSpec::Front::Line;
  for (const char* each :
       line ? std::vector<const char*>{"conv1", "conv2"} : std::vector<const char*>{"conv2d1", "conv2d2", "conv2d3"})
    convolutions_.push_back(&parts.table(name(each)));
  if (!line) join_ = &parts.linear(name("conv_out"));
  for (int64_t i = 0; i < spec.layers; ++i) {
    const auto of_layer = [&](const char* what) { return name(str("layers.", i, ".", what)); };
    layers_.push_back({.before_attention = &parts.norm(of_layer("self_attn_layer_norm")),
                       .before_feed_forward = &parts.norm(of_layer("final_layer_norm")),
                       .q = &parts.linear(of_layer("self_attn.q_proj")),
                       .k = &parts.linear(of_layer("self_attn.k_proj")),
                       .v = &parts.linear(of_layer("self_attn.v_proj")),
                       .out = &parts.linear(of_layer("self_attn.out_proj")),
                       .up = &parts.linear(of_layer("fc1")),
                       .down = &parts.linear(of_layer("fc2"))});
  }
  norm_ = &parts.norm(name(spec.last_norm));
  for (const std::string& each : spec.projections) projections_.push_back(&parts.linear(each));
  if (spec.position_table) positions_ = &parts.table(name("embed_positions"));
}

namespace {
// [B, chunk, M] of one sound.
at::Tensor cut_into_chunks(const at::Tensor& sound_MF, int64_t chunk) {
  const int64_t frames = sound_MF.size(1), count = (frames + chunk - 1) / chunk;
  return at::constant_pad_nd(sound_MF.t(), {0, 0, 0, count * chunk - frames}).reshape({count, chunk, -1});
}
}  // namespace

at::Tensor AudioTower::line_front(const at::Tensor& chunk_BFM, const at::Tensor& heard_BF) const {
  const at::Tensor x = convolution(chunk_BFM.unsqueeze(1), *convolutions_[0], 1);
  // What the bias leaves behind a sound's end is not heard.
  return convolution(x * heard_BF.unsqueeze(1).unsqueeze(3), *convolutions_[1], 2).squeeze(1);
}

at::Tensor AudioTower::plane_front(const at::Tensor& chunk_BFM) const {
  at::Tensor x_BHWC = chunk_BFM.transpose(1, 2).unsqueeze(3);
  for (const Table* each : convolutions_) x_BHWC = convolution(x_BHWC, *each, 2);
  // Of each moment all channels, of each channel all bands.
  return x_BHWC.permute({0, 2, 3, 1}).reshape({x_BHWC.size(0), x_BHWC.size(2), -1});
}

// Sines of a row's place in its chunk, then cosines.
at::Tensor AudioTower::places(int64_t rows, const at::Tensor& like) const {
  const int64_t half = spec_.width / 2;
  at::Tensor place = at::empty({rows, 2 * half}, at::kFloat);
  const auto slower = static_cast<float>(std::log(10000.0) / static_cast<double>(half - 1));
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t k = 0; k < half; ++k) {
      const float angle = static_cast<float>(t) * std::exp(-slower * static_cast<float>(k));
      place.data_ptr<float>()[t * 2 * half + k] = std::sin(angle);
      place.data_ptr<float>()[t * 2 * half + half + k] = std::cos(angle);
    }
  return place.to(like.device(), like.scalar_type());
}

at::Tensor AudioTower::convolved(const Chunks& c, const StepOf& step_of) const {
  std::vector<at::Tensor> pieces;
  for (int64_t first = 0; first < c.chunk_BFM.size(0); first += kChunksAtOnce) {
    const int64_t count = std::min(kChunksAtOnce, c.chunk_BFM.size(0) - first);
    const at::Tensor chunk = c.chunk_BFM.narrow(0, first, count);
    pieces.push_back(join_ ? plane_front(chunk) : line_front(chunk, c.heard_BF.narrow(0, first, count)));
  }
  const at::Tensor all = at::cat(pieces, 0);  // [B, rows of a chunk, D or channels x bands]
  const int64_t each = all.size(1);
  std::vector<int64_t> kept, place;
  for (size_t b = 0; b < c.rows.size(); ++b)
    for (int64_t t = 0; t < c.rows[b]; ++t) kept.push_back(static_cast<int64_t>(b) * each + t), place.push_back(t);
  at::Tensor x_ND = at::index_select(all.reshape({-1, all.size(2)}), 0, on_device(kept, all.device()));
  if (join_) x_ND = (*join_)(x_ND, step_of(x_ND.size(0)));
  const at::Tensor table = positions_ ? positions_->weight() : places(each, x_ND);
  return x_ND + at::index_select(table, 0, on_device(place, x_ND.device()));
}

// A row for each frame of samples.
at::Tensor AudioTower::bare(const std::vector<at::Tensor>& sounds_SF, const StepOf& step_of) const {
  const at::Tensor frames_NS = at::cat(sounds_SF, 1).t().contiguous();
  return (*projections_[0])(rms_alone(frames_NS, spec_.eps), step_of(frames_NS.size(0)));
}

at::Tensor AudioTower::operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of, bool again) const {
  if (spec_.front == HearingSpec::Front::Bare) return bare(sounds_MF, step_of);
  Chunks c;
  std::vector<at::Tensor> chunks, heard;
  int64_t chunk = spec_.chunk;
  if (spec_.tail > 0) {  // which are one chunk each, and go no further than the longest
    chunk = 0;
    for (const at::Tensor& sound : sounds_MF) chunk = std::max(chunk, sound.size(1));
  }
  for (const at::Tensor& sound : sounds_MF) {
    const int64_t frames = sound.size(1);
    chunks.push_back(cut_into_chunks(sound, chunk));
    heard.push_back(cut_into_chunks(at::zeros({1, frames}, sound.options()) + 1, chunk).squeeze(2));
    const auto run = [&](int64_t rows) {
      c.ends.push_back(c.ends.back() + static_cast<int32_t>(rows)), c.longest = std::max(c.longest, rows);
    };
    int64_t block = 0, all = 0;
    for (int64_t first = 0, number = 1; first < frames; first += chunk, ++number) {
      const int64_t rows = spec_.rows_of_chunk(std::min(chunk, frames - first));
      c.rows.push_back(rows), block += rows, all += rows;
      if (number % spec_.chunks_seen == 0) run(std::exchange(block, 0));
    }
    if (block > 0) run(block);
    c.rows_of.push_back(all);
  }
  c.chunk_BFM = at::cat(chunks, 0), c.heard_BF = at::cat(heard, 0);

  at::Tensor x_ND = convolved(c, step_of);
  const int64_t rows = x_ND.size(0), h = spec_.head_size();
  const Step s = step_of(rows);
  const at::Tensor ends = at::tensor(c.ends, at::kInt).to(x_ND.device());
  for (const Layer& l : layers_) {
    // What it reads is its own: it may run again when this has returned.
    const RunPart part = [this, &l, ends, rows, h, longest = c.longest](const at::Tensor& x, const Step& own) {
      const at::Tensor read = (*l.before_attention)(x);
      const auto heads = [&](const Linear& linear) { return linear(read, own).reshape({rows, spec_.heads, h}); };
      const at::Tensor y = ops::attention(heads(*l.q), heads(*l.k), heads(*l.v), ends, ends, longest, longest,
                                          {.scale = 1 / std::sqrt(static_cast<double>(h)), .mask = {.causal = false}});
      const at::Tensor sum_ND = x + (*l.out)(y.reshape({rows, -1}), own);
      return sum_ND + (*l.down)(at::gelu((*l.up)((*l.before_feed_forward)(sum_ND), own)), own);
    };
    x_ND = again ? run_again(x_ND, s, Memo::kNothing, part) : part(x_ND, s);
  }
  if (!join_ && spec_.beside == 0) {  // two neighbours become their mean; the last of an odd number is left out
    std::vector<at::Tensor> pairs;
    int64_t first = 0;
    for (const int64_t own : c.rows_of) {
      pairs.push_back(x_ND.narrow(0, first, own / 2 * 2).reshape({own / 2, 2, -1}).mean(1));
      first += own;
    }
    x_ND = at::cat(pairs, 0);
  }
  x_ND = (*norm_)(x_ND).reshape({-1, spec_.joined_width()});
  const Step behind = step_of(x_ND.size(0));
  for (size_t i = 0; i < projections_.size(); ++i) x_ND = (*projections_[i])(i > 0 ? at::gelu(x_ND) : x_ND, behind);
  return x_ND;
}

}  // namespace apus
