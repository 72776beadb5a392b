// SPDX-License-Identifier: Apache-2.0
#include "models/spec/canvas_spec.h"

#include "base/error.h"

namespace apus {

int64_t CanvasSpec::shapes() const {
  int64_t count = 0;
  for (int64_t high = 1; high <= tiles; ++high) count += tiles / high;
  return count;
}

int64_t CanvasSpec::shape_number(CanvasTiles own) const {
  require(own.high > 0 && own.wide > 0 && own.high <= tiles && own.wide <= tiles / own.high, Fault::Data,
          "an image of ", own.high, " x ", own.wide, " tiles (height, width): this model looks at ", tiles, " at most");
  int64_t before = 0;
  for (int64_t line = 1; line < own.high; ++line) before += tiles / line;
  return before + own.wide;
}

CanvasTiles CanvasSpec::tiles_of(int64_t shape) const {
  require(shape > 0 && shape <= shapes(), Fault::Data, "an image of the shape ", shape, ": there are 1 to ", shapes());
  CanvasTiles own{1, shape};
  for (; own.wide > tiles / own.high; ++own.high) own.wide -= tiles / own.high;
  return own;
}

CanvasTiles canvas_tiles(const MediaContent& content, const CanvasSpec& spec) {
  const CanvasTiles tiles{content.came_as[0], content.came_as[1]};
  spec.shape_number(tiles);
  const std::vector<int64_t> wanted{tiles.count(), spec.channels, spec.side, spec.side};
  require(content.type == MediaType::Image && content.shape == wanted, Fault::Data, "the image of ", tiles.high, " x ",
          tiles.wide, " tiles does not come as so many squares of ", spec.side, " pixels");
  return tiles;
}

namespace {
// Files may name the shapes that a picture can have: they must be all.
void check_shapes(const Config& v, const CanvasSpec& spec) {
  const Json* named = v.find("supported_aspect_ratios");
  if (!named) return;
  Json all = Json::array();
  for (int64_t high = 1; high <= spec.tiles; ++high)
    for (int64_t wide = 1; wide <= spec.tiles / high; ++wide) all.push_back({high, wide});
  require(*named == all, Fault::Model,
          "config.json: vision_config: supported_aspect_ratios must be all shapes of up to max_num_tiles ", spec.tiles,
          " tiles, which are ", all.dump());
}
}  // namespace

CanvasSpec read_canvas(const Config& v, int64_t out) {
  CanvasSpec s;
  s.width = v.integer("hidden_size", 1280), s.layers = v.integer("num_hidden_layers", 32);
  s.heads = v.integer(v.find("attention_heads") ? "attention_heads" : "num_attention_heads", 16);
  s.global_layers = v.integer("num_global_layers", 8), s.ffn = v.integer("intermediate_size", 5120);
  s.channels = v.integer("num_channels", 3), s.patch = v.integer("patch_size", 14);
  s.side = v.integer("image_size", 448), s.tiles = v.integer("max_num_tiles", 4);
  s.norm.eps = v.number("norm_eps", 1e-5), s.out = out;
  s.taken_layers = v.find("intermediate_layers_indices") ? v.integers("intermediate_layers_indices")
                                                         : std::vector<int64_t>{3, 7, 15, 23, 30};
  require(s.layers > 0 && s.layers <= 4096 && s.global_layers >= 0 && s.global_layers <= 4096 && s.heads > 0 &&
              s.width > 0 && s.width % s.heads == 0 && s.ffn > 0 && s.channels > 0 && s.patch > 0 &&
              s.side >= s.patch && s.side < (1 << 16) && s.tiles > 0 && s.tiles <= 1024,
          Fault::Model, "config.json: vision_config: ", s.layers, " and ", s.global_layers, " layers, ", s.heads,
          " heads, hidden_size ", s.width, ", intermediate_size ", s.ffn, ", patch_size ", s.patch, ", image_size ",
          s.side, " and max_num_tiles ", s.tiles, " do not fit together");
  for (const int64_t layer : s.taken_layers)
    require(layer >= 0 && layer < s.layers, Fault::Model,
            "config.json: vision_config: intermediate_layers_indices: ", layer, " is none of the ", s.layers,
            " layers");
  const int64_t given = v.integer("vision_output_dim", 7680);
  require(given == s.taken_width(), Fault::Model, "config.json: vision_config: vision_output_dim ", given,
          " must be hidden_size times the layers that are taken and one, ", s.taken_width());
  const std::string act = v.text("hidden_act", "gelu");
  require(act == "gelu", Fault::Model, "config.json: vision_config: hidden_act '", act,
          "' is not supported, only gelu");
  check_shapes(v, s);
  return s;
}

namespace {
using Kind = TowerPart::Kind;

class CanvasParts {
 public:
  explicit CanvasParts(const CanvasSpec& spec) : s_(spec) {}
  // Bare ones are the tower's own, and come before those of modules.
  std::vector<TowerPart> all() {
    put(Kind::Bare, "class_embedding", {s_.width});
    put(Kind::Bare, "gated_positional_embedding.embedding", {s_.tile_rows(), s_.width});
    for (const char* each : {"gated_positional", "pre_tile_positional", "post_tile_positional"})
      put(Kind::Bare, str(each, "_embedding.gate"), {1});
    for (int64_t i = 0; i < s_.global_layers; ++i)
      for (const char* gate : {"gate_attn", "gate_ffn"})
        put(Kind::Bare, str("global_transformer.layers.", i, ".", gate), {1});
    const int64_t rows = s_.shapes() + 1;
    put(Kind::Table, "patch_embedding", {s_.width, s_.channels, s_.patch, s_.patch});
    put(Kind::Table, "gated_positional_embedding.tile_embedding", {rows, s_.rows() * s_.width});
    for (const char* each : {"pre", "post"})
      put(Kind::Table, str(each, "_tile_positional_embedding.embedding"), {rows, s_.tiles * s_.width});
    const NormSpec usual{NormKind::MeanAndBias, 1e-5};
    for (const char* each : {"layernorm_pre", "layernorm_post"}) put(Kind::Norm, each, {s_.width}, false, usual);
    for (int64_t i = 0; i < s_.layers; ++i) layer(str("transformer.layers.", i, "."));
    for (int64_t i = 0; i < s_.global_layers; ++i) layer(str("global_transformer.layers.", i, "."));
    parts_.push_back({Kind::Linear, s_.projector, {s_.out, s_.taken_width()}, true, {}});
    return std::move(parts_);
  }

 private:
  void put(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias = false, NormSpec norm = {}) {
    parts_.push_back({kind, s_.name + "." + name, std::move(shape), bias, norm});
  }
  void layer(const std::string& name) {
    put(Kind::Norm, name + "input_layernorm", {s_.width}, false, s_.norm);
    for (const char* each : {"q_proj", "k_proj", "v_proj", "o_proj"})
      put(Kind::Linear, str(name, "self_attn.", each), {s_.width, s_.width});
    put(Kind::Norm, name + "post_attention_layernorm", {s_.width}, false, s_.norm);
    put(Kind::Linear, name + "mlp.fc1", {s_.ffn, s_.width}, true);
    put(Kind::Linear, name + "mlp.fc2", {s_.width, s_.ffn}, true);
  }

  const CanvasSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const CanvasSpec& spec) { return CanvasParts(spec).all(); }

VisionSpec vision_of(const CanvasSpec& s) {
  VisionSpec v;
  v.name = s.name, v.merger = s.projector;
  v.width = s.width, v.layers = s.layers + s.global_layers, v.heads = s.heads, v.ffn = s.ffn, v.out = s.out;
  v.channels = s.channels, v.patch = s.patch, v.merge = v.time_patch = 1, v.patch_has_time = false, v.turned = false;
  v.tile = s.side, v.act = s.act;
  v.names.blocks = "transformer.layers";
  return v;
}

}  // namespace apus
