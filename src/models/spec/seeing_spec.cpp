// SPDX-License-Identifier: Apache-2.0
#include "models/spec/seeing_spec.h"

#include <utility>

#include "base/error.h"
#include "models/spec/canvas_spec.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/mobile_spec.h"
#include "models/spec/page_spec.h"

namespace apus {

namespace {
using Kind = TowerPart::Kind;

class VisionParts {
 public:
  explicit VisionParts(const VisionSpec& spec) : s_(spec) {}

  std::vector<TowerPart> all() {
    const VisionNames& n = s_.names;
    std::vector<int64_t> patch = {s_.width, s_.channels, s_.time_patch, s_.patch, s_.patch};
    if (!s_.patch_has_time) patch.erase(patch.begin() + 2);
    const int64_t cells = s_.table_side * s_.table_side;
    const bool bare_table = s_.bare_table();
    for (const std::string& row : {s_.newline, s_.separator})
      if (!row.empty()) put(Kind::Bare, row, {s_.out}, false);
    if (!s_.line_end.empty()) put(Kind::Bare, s_.line_end, {1, 1, 1, cell()}, false);
    if (!s_.between.empty()) put(Kind::Bare, s_.between, {1, 1, cell()}, false);
    if (s_.resampler.queries > 0) resampler_bare(s_.merger_name() + ".");
    if (s_.lines.cell > 0) lines_bare(s_.merger_name() + ".");
    if (n.merger_matrix) put(Kind::Bare, str(s_.merger_name(), ".", n.merger_matrix), {cell(), s_.out}, false);
    if (n.first) add(Kind::Bare, n.first, s_.first_in_table ? one_row() : std::vector<int64_t>{1, 1, s_.width}, false);
    if (n.first_angles) add(Kind::Fixed, n.first_angles, {1, s_.head_size() / 2}, false);
    if (bare_table) add(Kind::Bare, n.table, {1, (n.first ? 1 : 0) + cells, s_.width}, false);
    for (int64_t i = 0; i < s_.layers; ++i)
      for (const char* scale : {n.scale1, n.scale2})
        if (scale) add(Kind::Bare, str(n.blocks, ".", i, ".", scale), {s_.width}, false);
    const bool axes = s_.table_form == TableForm::Axes;
    std::vector<int64_t> of_axes = {2, s_.table_side, s_.width};
    if (s_.axes_side_by_side) std::swap(of_axes[0], of_axes[1]);
    if (axes) add(Kind::Bare, n.table, std::move(of_axes), false);
    for (const char* each : {n.cells_minus, n.cells_times})
      if (each) add(Kind::Fixed, each, {s_.width}, false);
    if (s_.clipped)
      for (int64_t i = 0; i < s_.layers; ++i) limits(str(n.blocks, ".", i, "."));
    if (s_.patch_by_pixel || s_.patch_is_matrix) patch = {s_.width, s_.patch_numbers()};
    if (n.norm_patches) norm(n.norm_patches, s_.patch_numbers());
    if (!s_.reads_rows) add(Kind::Table, n.patches, std::move(patch), s_.patch_bias);
    if (cells > 0 && !bare_table && !axes) add(Kind::Table, n.table, table(), false);
    if (n.norm_in) norm(n.norm_in, s_.width);
    for (int64_t i = 0; i < s_.layers + s_.unread_layers; ++i) block(str(n.blocks, ".", i, "."), i >= s_.layers);
    if (s_.halved_behind >= 0) halving();
    if (n.norm_out) norm(n.norm_out, s_.width);
    if (n.idle_norm) add(Kind::Idle, n.idle_norm, {s_.width}, s_.norm.kind == NormKind::MeanAndBias);
    if (n.narrow) {
      add(Kind::Table, n.narrow, {2 * s_.width, s_.width, 3, 3}, true);
      add(Kind::Table, n.narrower, {4 * s_.width, 2 * s_.width, 3, 3}, true);
    }
    if (n.merger_conv) add(Kind::Table, n.merger_conv, {s_.out, s_.width, s_.merge, s_.merge}, true);
    if (s_.pooler.heads > 0)
      pooler();
    else if (s_.lines.cell > 0)
      lines(s_.merger_name() + ".");
    else if (s_.pairs.cell > 0)
      pairs(s_.merger_name() + ".");
    else if (s_.resampler.queries > 0)
      resampler(s_.merger_name() + ".");
    else if (s_.words > 0)
      words();
    else
      merger(s_.merger_name() + ".", s_.merger_norm_first);
    for (size_t i = 0; i < s_.deep_layers.size(); ++i) merger(str(s_.name, ".", n.deep_mergers, ".", i, "."), false);
    return std::move(parts_);
  }

 private:
  void put(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias, NormSpec norm = {}) {
    parts_.push_back({kind, name, std::move(shape), bias, norm});
  }
  void add(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias) {
    put(kind, s_.name + "." + name, std::move(shape), bias, s_.norm);
  }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true) {
    add(Kind::Linear, name, {out, in}, bias);
  }
  void norm(const std::string& name, int64_t size) { add(Kind::Norm, name, {size}, false); }
  std::vector<int64_t> one_row() const { return {s_.width}; }
  std::vector<int64_t> table() const {
    if (s_.table_is_plane) return {s_.table_side, s_.table_side, s_.width};
    return {s_.table_before + s_.table_side * s_.table_side + (s_.names.first ? 1 : 0), s_.width};
  }
  // unread: it stands in the file, and nothing reads it.
  void block(const std::string& b, bool unread) {
    const size_t before = parts_.size();
    parts_of_block(b);
    for (size_t i = before; unread && i < parts_.size(); ++i) {
      TowerPart& part = parts_[i];
      part.bias |= part.kind == Kind::Norm && part.norm.kind == NormKind::MeanAndBias;
      part.kind = Kind::Idle;
    }
  }
  void parts_of_block(const std::string& b) {
    const VisionNames& n = s_.names;
    norm(b + n.norm1, s_.width);
    norm(b + n.norm2, s_.width);
    for (const char* each : {n.after_attention, n.after_feed_forward})
      if (each) norm(b + each, s_.width);
    if (n.qkv) {
      linear(b + n.qkv, s_.width, s_.width + 2 * s_.kv_width(), s_.qkv_bias);
    } else {
      for (const char* each : {n.q, n.k, n.v}) linear(b + each, s_.width, s_.width, s_.qkv_bias);
    }
    for (const char* each : {n.q_norm, n.k_norm})
      if (each)
        put(Kind::Norm, str(s_.name, ".", b, each), {s_.qk_norm_of_heads ? s_.head_size() : s_.width}, false,
            s_.qk_norm);
    linear(b + n.proj, s_.width, s_.width, s_.block_bias);
    if (n.gate) linear(b + n.gate, s_.width, s_.ffn, s_.block_bias);
    linear(b + n.up, s_.width, s_.ffn, s_.block_bias);
    linear(b + n.down, s_.ffn, s_.width, s_.block_bias);
  }
  void limits(const std::string& b) {
    const VisionNames& n = s_.names;
    for (const char* each : {n.q, n.k, n.v, n.proj, n.gate, n.up, n.down})
      for (const char* limit : kLimitNames) add(Kind::Fixed, b + limit_name(each, limit), {1}, false);
  }
  void halving() {
    const VisionNames& n = s_.names;
    norm(n.half_norm, s_.width);
    for (const char* each : {n.half_q, n.half_k, n.half_v, n.half_proj}) linear(each, s_.width, s_.width);
    norm(n.half_cell_norm, 4 * s_.width);
    linear(n.half_in, 4 * s_.width, 4 * s_.ffn);
    linear(n.half_out, 4 * s_.ffn, s_.width);
  }
  int64_t cell() const { return s_.cell_width(); }
  void gated_merger(const std::string& m) {
    const VisionNames& n = s_.names;
    put(Kind::Linear, m + n.merger_before, {s_.out, s_.out}, s_.merger_bias);
    put(Kind::Norm, m + n.merger_norm, {s_.out}, false, s_.merger_norm.value_or(s_.norm));
    for (const char* each : {n.merger_gate, n.merger_in})
      put(Kind::Linear, m + each, {s_.merger_inner, s_.out}, s_.merger_bias);
    put(Kind::Linear, m + n.merger_out, {s_.out, s_.merger_inner}, s_.merger_bias);
  }
  void merger(const std::string& m, bool norm_first) {
    const VisionNames& n = s_.names;
    if (n.merger_conv) return gated_merger(m);
    if (!n.merger_in) return;
    const int64_t read = n.merger_cells ? s_.width : cell();
    const int64_t inner = !n.merger_out ? s_.out : s_.merger_inner > 0 ? s_.merger_inner : read;
    if (n.merger_norm)
      put(Kind::Norm, m + n.merger_norm, {norm_first ? s_.width : cell()}, false, s_.merger_norm.value_or(s_.norm));
    if (n.merger_cells) put(Kind::Linear, m + n.merger_cells, {s_.width, cell()}, false);
    if (n.merger_matrix) return;
    put(Kind::Linear, m + n.merger_in, {inner, read}, s_.merger_bias);
    const int64_t out = s_.merger_end.empty() ? s_.out : s_.merger_rows;
    if (n.merger_out) put(Kind::Linear, m + n.merger_out, {out, inner}, s_.merger_bias);
    if (!s_.merger_end.empty()) put(Kind::Linear, s_.merger_end, {s_.out, out}, s_.merger_bias);
  }
  void resampler_bare(const std::string& r) {
    put(Kind::Bare, r + "query", {s_.resampler.queries, s_.out}, false);
    put(Kind::Bare, r + "attn.in_proj_weight", {3 * s_.out, s_.out}, false);
    put(Kind::Bare, r + "attn.in_proj_bias", {3 * s_.out}, false);
    put(Kind::Bare, r + "proj", {s_.out, s_.out}, false);
  }
  void resampler(const std::string& r) {
    if (s_.width != s_.out) put(Kind::Linear, r + "kv_proj", {s_.out, s_.width}, false);
    put(Kind::Linear, r + "attn.out_proj", {s_.out, s_.out}, true);
    for (const char* norm : {"ln_q", "ln_kv", "ln_post"})
      put(Kind::Norm, r + norm, {s_.out}, false, {NormKind::MeanAndBias, 1e-6});
  }
  void lines(const std::string& m) {
    const LinesForm& l = s_.lines;
    put(Kind::Norm, m + l.before, {s_.width}, false, l.norm);
    put(Kind::Table, m + l.narrow, {l.cell / 2, s_.width, s_.merge, s_.merge}, true);
    put(Kind::Table, m + l.wide, {l.cell, l.cell / 2, 1, 1}, true);
    put(Kind::Linear, m + l.linear, {s_.out, l.cell}, true);
    put(Kind::Norm, m + l.behind, {s_.out}, false, l.norm);
  }
  void pairs(const std::string& m) {
    const PairsForm& p = s_.pairs;
    const auto block = [&](const char* name, int64_t in) {
      put(Kind::Linear, m + name + p.in, {p.cell, in}, true);
      put(Kind::Linear, m + name + p.out, {p.cell, p.cell}, true);
      put(Kind::Norm, m + name + p.norm, {p.cell}, false, s_.norm);
    };
    block(p.spatial, p.cell);
    block(p.temporal, s_.time_merge * p.cell);
    put(Kind::Linear, m + p.last, {s_.out, p.cell}, true);
    put(Kind::Norm, m + p.last_norm, {s_.out}, false, p.behind);
  }
  void lines_bare(const std::string& m) {
    const LinesForm& l = s_.lines;
    put(Kind::Bare, m + l.newline, {l.cell}, false);
    for (const char* each : {l.begin, l.end}) put(Kind::Bare, m + each, {s_.out}, false);
    put(Kind::Fixed, m + l.idle, {s_.out}, false);
  }
  void pooler() {
    const PoolerForm& p = s_.pooler;
    for (const char* each : {".wq", ".wk", ".wv"})
      put(Kind::Linear, p.attention + each, {p.width, s_.taken_width()}, p.bias);
    put(Kind::Linear, p.attention + ".wo", {p.width, p.width}, p.bias);
    for (const char* each : {".w1", ".w3"}) put(Kind::Linear, p.feed_forward + each, {p.ffn, p.width}, p.ffn_bias);
    put(Kind::Linear, p.feed_forward + ".w2", {s_.out, p.ffn}, false);
  }
  void words() {
    const int64_t known = s_.words - s_.marks();
    put(Kind::Linear, s_.merger_name() + "." + s_.names.merger_in, {known, cell()}, false);
    put(Kind::Norm, s_.merger_name() + "." + s_.names.merger_norm, {known}, false, *s_.merger_norm);
    put(Kind::Table, s_.word_table, {s_.words, s_.out}, false);
  }

  const VisionSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const VisionSpec& spec) { return VisionParts(spec).all(); }

std::vector<TowerPart> parts_of(const SeeingSpec& spec) {
  std::vector<TowerPart> all;
  if (spec.page)
    all = parts_of(*spec.page);
  else if (spec.canvas)
    all = parts_of(*spec.canvas);
  else if (spec.mobile)
    all = parts_of(*spec.mobile);
  else if (spec.vision.width > 0)
    all = parts_of(spec.vision);
  if (const auto& more = spec.media_words; more.count > 0)
    all.insert(all.begin(), {Kind::Bare, more.table, {more.count, spec.vision.out}, false});
  if (!spec.hearing) return all;
  for (TowerPart& part : parts_of(*spec.hearing)) all.push_back(std::move(part));
  // Bare ones of all towers come before those of modules.
  std::stable_partition(all.begin(), all.end(),
                        [](const TowerPart& part) { return part.kind == Kind::Bare || part.kind == Kind::Fixed; });
  return all;
}

}  // namespace apus
