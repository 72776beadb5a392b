// SPDX-License-Identifier: Apache-2.0
#include "models/spec/mobile_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace apus {

namespace {
using Block = MobileBlock;

// Channels come in whole eights, and are never a tenth fewer than asked for.
int64_t in_eights(double channels) {
  const auto whole = static_cast<int64_t>(channels + 4) / 8 * 8;
  const int64_t rounded = std::max<int64_t>(8, whole);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

Block edge(int64_t out, int64_t step) {
  return {.kind = Block::Kind::Edge, .out = out, .step = step, .wide = 4, .among = 3};
}
Block inverted(int64_t out, int64_t before, int64_t among, int64_t step, int64_t wide) {
  return {.out = out, .step = step, .wide = wide, .before = before, .among = among};
}
Block attention(int64_t out, int64_t heads, int64_t dim, int64_t key_step) {
  return {.kind = Block::Kind::Attention,
          .out = out,
          .among = 3,
          .heads = heads,
          .key = dim,
          .value = dim,
          .key_step = key_step};
}

// mobilenetv5_300m_enc. `wide` is still how many times the channels here.
std::vector<std::vector<Block>> usual_stages() {
  std::vector<Block> third{inverted(640, 5, 5, 2, 6)}, fourth{inverted(1280, 5, 5, 2, 6)};
  for (int i = 0; i < 7; ++i) third.push_back(inverted(640, 5, 0, 1, 4));
  third.push_back(inverted(640, 0, 0, 1, 1));
  for (int i = 0; i < 14; ++i) third.push_back(attention(640, 12, 64, 2)), third.push_back(inverted(640, 0, 0, 1, 2));
  for (int i = 0; i < 19; ++i)
    fourth.push_back(attention(1280, 16, 96, 1)), fourth.push_back(inverted(1280, 0, 0, 1, 2));
  return {{edge(128, 2), edge(128, 1), edge(128, 1)},
          {inverted(256, 3, 5, 2, 6), inverted(256, 5, 0, 1, 4), inverted(256, 3, 0, 1, 4), inverted(256, 5, 0, 1, 4),
           inverted(256, 3, 0, 1, 4)},
          std::move(third),
          std::move(fourth)};
}

// A block as timm's model_args says it.
Block read_block(const Config& b, double& wide) {
  const std::string type = b.text("block_type", "");
  require(b.number("se_ratio", 0) == 0 && !b.flag("noskip", false) && b.integer("force_in_chs", 0) == 0 &&
              b.integer("pw_kernel_size", 1) == 1 && b.integer("num_repeat", 1) == 1 && !b.find("act_layer") &&
              !b.find("group_size"),
          Fault::Model, "config.json: vision_config: model_args: block_args: a block of the type '", type,
          "' says what is not supported: se_ratio, noskip, force_in_chs, pw_kernel_size, act_layer or group_size");
  Block out{.out = in_eights(b.number("out_chs", 0)), .step = b.integer("stride", 1)};
  wide = b.number("exp_ratio", 1);
  if (type == "er") {
    out.kind = Block::Kind::Edge, out.among = b.integer("exp_kernel_size", 3);
  } else if (type == "uir") {
    out.before = b.integer("dw_kernel_size_start", 0), out.among = b.integer("dw_kernel_size_mid", 3);
    out.behind = b.integer("dw_kernel_size_end", 0);
  } else if (type == "mqa") {
    out.kind = Block::Kind::Attention, out.among = b.integer("dw_kernel_size", 3);
    out.heads = b.integer("num_heads"), out.key = b.integer("key_dim", 64), out.value = b.integer("value_dim", 64);
    out.key_step = b.integer("kv_stride", 1);
  } else {
    fail(Fault::Model, "config.json: vision_config: model_args: block_args: a block of the type '", type,
         "' is not supported, only er, uir and mqa");
  }
  return out;
}

void check_block(const Block& b) {
  const auto side = [](int64_t n) { return n >= 0 && n <= 15 && (n == 0 || n % 2 == 1); };
  const bool attends = b.kind == Block::Kind::Attention;
  require(b.out > 0 && b.out <= 1 << 16 && (b.step == 1 || b.step == 2) && side(b.before) && side(b.among) &&
              side(b.behind) && (b.kind != Block::Kind::Edge || b.among > 0) &&
              (b.step == 1 || (!attends && b.before + b.among + b.behind > 0)) &&
              (!attends || (b.heads > 0 && b.heads <= 1024 && b.key > 0 && b.value > 0 && b.among > 0 &&
                            b.key == b.value && b.key_step > 0 && b.key_step <= 16)),
          Fault::Model, "config.json: vision_config: model_args: a block of ", b.out, " channels, step ", b.step,
          ", sides ", b.before, ", ", b.among, ", ", b.behind, " and ", b.heads, " heads cannot be");
}

// What goes in and lies between, of each from those before it.
void tell_channels(MobileSpec& s, const std::vector<std::vector<double>>& wide) {
  int64_t in = s.stem;
  for (size_t i = 0; i < s.stages.size(); ++i)
    for (size_t k = 0; k < s.stages[i].size(); ++k) {
      Block& block = s.stages[i][k];
      block.in = in, block.wide = in_eights(static_cast<double>(in) * wide[i][k]);
      check_block(block);
      require((block.step == 2) == (k == 0), Fault::Model,
              "config.json: vision_config: model_args: block_args: the first block of each stage, and no other, must "
              "have stride 2");
      in = block.out;
    }
}
}  // namespace

int64_t MobileSpec::fused_wide() const { return in_eights(2.0 * static_cast<double>(fused_in())); }

MobileSpec read_mobile(const Config& v, int64_t out, int64_t tokens) {
  const std::string made = v.text("architecture", "mobilenetv5_300m_enc");
  require(made == "mobilenetv5_300m_enc", Fault::Model, "config.json: vision_config: architecture '", made,
          "' is not supported, only mobilenetv5_300m_enc");
  MobileSpec s;
  s.embedder = read_embedder(v, "model.embed_vision", 262144, 2048, out);
  s.stages = usual_stages();
  std::vector<std::vector<double>> wide;
  const Json* said = v.find("model_args");
  const Json args = said ? *said : Json::object();
  for (const auto& [key, value] : args.items())
    require(key == "block_args" || key == "stem_size" || key == "msfa_output_resolution", Fault::Model,
            "config.json: vision_config: model_args: '", key,
            "' is not supported, only block_args, stem_size and msfa_output_resolution");
  if (args.contains("block_args")) {
    s.stages.clear();
    for (const Json& stage : args["block_args"]) {
      s.stages.emplace_back(), wide.emplace_back();
      for (const Json& block : stage) {
        double times = 1;
        s.stages.back().push_back(read_block(Config(block), times));
        wide.back().push_back(times);
      }
      require(!s.stages.back().empty(), Fault::Model, "config.json: vision_config: model_args: a stage without blocks");
    }
  } else {
    for (const auto& stage : s.stages) {
      wide.emplace_back();
      for (const Block& block : stage) wide.back().push_back(static_cast<double>(block.wide));
    }
  }
  s.stem = in_eights(static_cast<double>(Config(args).integer("stem_size", 64)));
  s.side = Config(args).integer("msfa_output_resolution", 16);
  // A fifth stage would be looked at in steps, and not over fewer lines.
  require(s.stages.size() >= 2 && s.stages.size() <= 4 && s.side > 0 && s.side <= 1 << 10 && s.stem <= 1 << 16,
          Fault::Model, "config.json: vision_config: model_args: ", s.stages.size(), " stages (2 to 4), stem_size ",
          s.stem, " and msfa_output_resolution ", s.side, " do not fit together");
  tell_channels(s, wide);
  require(s.embedder.width == s.width, Fault::Model, "config.json: vision_config: hidden_size ", s.embedder.width,
          " must be ", s.width, ", as this tower gives it");
  require(tokens == s.tokens(), Fault::Model, "config.json: vision_soft_tokens_per_image ", tokens,
          ": the tower gives ", s.side, " x ", s.side, " rows of a picture");
  return s;
}

namespace {
using Kind = TowerPart::Kind;

class MobileParts {
 public:
  explicit MobileParts(const MobileSpec& spec) : s_(spec) {}
  // Bare ones come before those of modules.
  std::vector<TowerPart> all() {
    each_block([&](const std::string& name, const Block& b) {
      if (b.kind != Block::Kind::Edge) put(Kind::Bare, name + "layer_scale.gamma", {b.out});
    });
    put(Kind::Table, "conv_stem.conv", {s_.stem, 3, 3, 3}, true);
    norm("conv_stem.bn", s_.stem);
    each_block([&](const std::string& name, const Block& b) {
      if (b.kind == Block::Kind::Edge)
        edge(name, b);
      else if (b.kind == Block::Kind::Inverted)
        inverted(name, b);
      else
        attention(name, b);
    });
    with_norm("msfa.ffn.pw_exp.", s_.fused_in(), s_.fused_wide());
    with_norm("msfa.ffn.pw_proj.", s_.fused_wide(), s_.width);
    norm("msfa.norm", s_.width);
    for (TowerPart& part : parts_of(s_.embedder)) parts_.push_back(std::move(part));
    return std::move(parts_);
  }

 private:
  template <class F>
  void each_block(const F& f) {
    for (size_t i = 0; i < s_.stages.size(); ++i)
      for (size_t k = 0; k < s_.stages[i].size(); ++k) f(str("blocks.", i, ".", k, "."), s_.stages[i][k]);
  }
  void put(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias = false) {
    parts_.push_back({kind, s_.name + "." + name, std::move(shape), bias, {NormKind::Rms, 1e-6}});
  }
  void norm(const std::string& name, int64_t channels) { put(Kind::Norm, name, {channels}); }
  void convolution(const std::string& name, int64_t in, int64_t out, int64_t side = 1) {
    put(Kind::Table, name, {out, in, side, side});
  }
  void with_norm(const std::string& name, int64_t in, int64_t out, int64_t side = 1) {
    convolution(name + "conv", in, out, side);
    norm(name + "bn", out);
  }
  void edge(const std::string& name, const Block& b) {
    convolution(name + "conv_exp", b.in, b.wide, b.among);
    norm(name + "bn1", b.wide);
    convolution(name + "conv_pwl", b.wide, b.out);
    norm(name + "bn2", b.out);
  }
  void inverted(const std::string& name, const Block& b) {
    if (b.before > 0) with_norm(name + "dw_start.", 1, b.in, b.before);
    with_norm(name + "pw_exp.", b.in, b.wide);
    if (b.among > 0) with_norm(name + "dw_mid.", 1, b.wide, b.among);
    with_norm(name + "pw_proj.", b.wide, b.out);
    if (b.behind > 0) with_norm(name + "dw_end.", 1, b.out, b.behind);
  }
  void attention(const std::string& name, const Block& b) {
    norm(name + "norm", b.in);
    convolution(name + "attn.query.proj", b.in, b.heads * b.key);
    for (const auto& [part, out] : {std::pair{"attn.key.", b.key}, std::pair{"attn.value.", b.value}}) {
      if (b.key_step > 1) {
        convolution(str(name, part, "down_conv"), 1, b.in, b.among);
        norm(str(name, part, "norm"), b.in);
      }
      convolution(str(name, part, "proj"), b.in, out);
    }
    convolution(name + "attn.output.proj", b.heads * b.value, b.out);
  }

  const MobileSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const MobileSpec& spec) { return MobileParts(spec).all(); }

VisionSpec vision_of(const MobileSpec& s) {
  VisionSpec v;
  v.name = "model.vision_tower", v.merger = s.embedder.name;
  v.width = s.width, v.heads = 1, v.ffn = 2 * s.width, v.out = s.embedder.out;
  for (const auto& stage : s.stages) v.layers += std::ssize(stage);
  v.patch = s.pixels_a_cell() / s.side, v.merge = v.time_patch = 1, v.patch_has_time = false, v.turned = false;
  v.tile = s.pixels_a_cell();
  v.names.blocks = "timm_model.blocks";
  return v;
}

int64_t mobile_tokens(const MediaContent& content, const MobileSpec& spec) {
  const auto& shape = content.shape;
  const int64_t step = spec.pixels_a_cell();
  const auto fits = [&](int64_t side) { return side > 0 && side < 1 << 16 && side % step == 0; };
  require(content.type == MediaType::Image && shape.size() == 4 && shape[0] == 1 && shape[1] == 3 && fits(shape[2]) &&
              fits(shape[3]),
          Fault::Data, "an image is looked at as [1, 3, height, width] with whole multiples of ", step,
          " lines and columns");
  return spec.tokens();
}

}  // namespace apus
