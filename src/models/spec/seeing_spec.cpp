// SPDX-License-Identifier: Apache-2.0
#include "models/spec/seeing_spec.h"

#include "base/error.h"
#include "models/spec/hearing_spec.h"

namespace apus {

namespace {
using Kind = TowerPart::Kind;

class VisionParts {
 public:
  explicit VisionParts(const VisionSpec& spec) : s_(spec) {}

  std::vector<TowerPart> all() {
    add(Kind::Table, "patch_embed.proj", {s_.width, s_.channels, s_.time_patch, s_.patch, s_.patch}, s_.patch_bias);
    if (s_.table_side > 0) add(Kind::Table, "pos_embed", {s_.table_side * s_.table_side, s_.width}, false);
    for (int64_t i = 0; i < s_.layers; ++i) block(str("blocks.", i, "."));
    merger("merger.", s_.width);
    for (size_t i = 0; i < s_.deep_layers.size(); ++i)
      merger(str(s_.names.deep_mergers, ".", i, "."), s_.width * s_.merge * s_.merge);
    return std::move(parts_);
  }

 private:
  void add(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias) {
    parts_.push_back({kind, s_.name + "." + name, std::move(shape), bias, s_.norm});
  }
  void linear(const std::string& name, int64_t in, int64_t out) { add(Kind::Linear, name, {out, in}, true); }
  void norm(const std::string& name, int64_t size) { add(Kind::Norm, name, {size}, false); }
  void block(const std::string& b) {
    const VisionNames& n = s_.names;
    norm(b + "norm1", s_.width);
    norm(b + "norm2", s_.width);
    if (n.qkv) {
      linear(b + n.qkv, s_.width, 3 * s_.width);
    } else {
      for (const char* each : {n.q, n.k, n.v}) linear(b + each, s_.width, s_.width);
    }
    linear(b + "attn.proj", s_.width, s_.width);
    if (n.gate) linear(b + n.gate, s_.width, s_.ffn);
    linear(b + n.up, s_.width, s_.ffn);
    linear(b + n.down, s_.ffn, s_.width);
  }
  void merger(const std::string& m, int64_t normed) {
    const int64_t cell = s_.width * s_.merge * s_.merge;
    norm(m + s_.names.merger_norm, normed);
    linear(m + s_.names.merger_in, cell, cell);
    linear(m + s_.names.merger_out, cell, s_.out);
  }

  const VisionSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const VisionSpec& spec) { return VisionParts(spec).all(); }

std::vector<TowerPart> parts_of(const SeeingSpec& spec) {
  std::vector<TowerPart> all = parts_of(spec.vision);
  if (!spec.hearing) return all;
  for (TowerPart& part : parts_of(*spec.hearing)) all.push_back(std::move(part));
  return all;
}

}  // namespace apus
