// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_state.h"

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace apus {

namespace {
constexpr int64_t kMost = int64_t{1} << 20;  // of heads, sizes and taps: more is no model

bool sensible(std::initializer_list<int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0 && n <= kMost; });
}

void check(const StateForm& form) {
  if (const auto* d = std::get_if<DeltaForm>(&form)) {
    require(sensible({d->key_heads, d->value_heads, d->key_dim, d->value_dim, d->taps}) &&
                d->value_heads % d->key_heads == 0,
            Fault::Model, "config.json: linear_num_value_heads ", d->value_heads,
            " must be a multiple of linear_num_key_heads ", d->key_heads,
            ", and both head sizes and linear_conv_kernel_dim above 0");
  } else if (const auto* m = std::get_if<MambaForm>(&form)) {
    require(sensible({m->heads, m->head_dim, m->groups, m->state, m->taps}) && m->heads % m->groups == 0, Fault::Model,
            "config.json: mamba_n_heads ", m->heads, " must be a multiple of mamba_n_groups ", m->groups,
            ", and mamba_d_head, mamba_d_state and mamba_d_conv above 0");
    require(m->inner() % m->norm_groups == 0, Fault::Model, "config.json: ", m->norm_groups,
            " groups do not share out the ", m->inner(), " values of a Mamba layer");
  } else if (const auto* s = std::get_if<SelectiveForm>(&form)) {
    require(sensible({s->inner, s->state, s->rank, s->taps}), Fault::Model,
            "config.json: the width of a Mamba layer, its state, the rank of its steps and its convolution's size must "
            "be above 0");
  } else if (const auto* conv = std::get_if<ConvForm>(&form)) {
    require(sensible({conv->width, conv->taps}), Fault::Model, "config.json: conv_L_cache must be above 0");
  } else if (const auto* f = std::get_if<FadingForm>(&form)) {
    require(sensible({f->width, f->blocks, f->taps}) && f->width % f->blocks == 0, Fault::Model,
            "config.json: num_attention_heads ", f->blocks, " must share out lru_width ", f->width,
            ", and conv1d_width be above 0");
  } else if (const auto* k = std::get_if<KimiDeltaForm>(&form)) {
    require(sensible({k->heads, k->head_dim, k->taps}), Fault::Model,
            "config.json: heads and sizes of linear attention must be above 0");
  } else if (const auto* t = std::get_if<TurnedLightningForm>(&form)) {
    require(sensible({t->heads, t->head_dim, t->norm_groups}) && t->width() % t->norm_groups == 0, Fault::Model,
            "config.json: group_norm_size ", t->norm_groups, " must share out the ", t->heads, " heads of ",
            t->head_dim, " numbers");
  } else {
    const auto& l = std::get<LightningForm>(form);
    require(sensible({l.heads, l.head_dim}), Fault::Model, "config.json: heads and head_dim must be above 0");
  }
}
}  // namespace

void use_states(const Config& c, DecoderSpec& spec, const StateForm& form, const std::function<Keeps(int64_t)>& keeps) {
  std::vector<Keeps> all;
  for (int64_t i = 0; i < spec.shape.layers; ++i) all.push_back(keeps(i));
  if (std::none_of(all.begin(), all.end(), keeps_state)) return;
  require(spec.act == Activation::Silu || std::holds_alternative<FadingForm>(form), Fault::Model,
          "config.json: hidden_act '", c.text("hidden_act", ""),
          "' is not supported in layers with a state, only silu");
  check(form);
  spec.state = form;
  spec.shape.keeps = std::move(all);
  spec.shape.state = state_shape(form);
}

std::function<Keeps(int64_t)> read_layer_types(const Config& c, int64_t layers,
                                               const std::function<Keeps(int64_t)>& unsaid) {
  const auto types = c.texts("layer_types");
  if (types.empty()) return unsaid;
  require(std::ssize(types) == layers, Fault::Model, "config.json: layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  std::vector<Keeps> all;
  for (const std::string& type : types) {
    const bool state = type == "linear_attention" || type == "mamba";
    require(state || type == "full_attention" || type == "attention", Fault::Model, "config.json: layer type '", type,
            "' is not supported in this family; it has linear_attention and full_attention");
    all.push_back(state ? Keeps::State : Keeps::Tokens);
  }
  return [all](int64_t layer) { return all[static_cast<size_t>(layer)]; };
}

DiskForm mixer_names(const std::string& disk) {
  return {.renames = {{"model.embed_tokens.", disk + ".embeddings."},
                      {"model.norm.", disk + ".norm_f."},
                      {"model.", disk + "."}},
          .inside = {{".input_layernorm.", ".norm."},
                     {".post_attention_layernorm.", ".norm."},
                     {".mamba.", ".mixer."},
                     {".self_attn.", ".mixer."},
                     {".mlp.", ".mixer."}}};
}

Json in_words_of_attention(const Config& c, int64_t heads, int64_t head_dim) {
  Json all = c.json();
  const int64_t kNoFeedForward = 1;
  all.update({{"num_attention_heads", heads},
              {"num_key_value_heads", heads},
              {"head_dim", head_dim},
              {"intermediate_size", kNoFeedForward},
              {"rms_norm_eps", c.number("layer_norm_epsilon", 1e-5)}});
  return all;
}

MambaForm read_mamba(const Config& c, const MambaDefaults& defaults) {
  const int64_t heads = c.integer("mamba_n_heads", defaults.heads);
  const Json* size = c.find("mamba_d_head");
  const bool shared_out = !size || (size->is_string() && *size == "auto");
  require(heads > 0 && (!shared_out || defaults.inner % heads == 0), Fault::Model, "config.json: mamba_n_heads ", heads,
          " do not share out the ", defaults.inner, " values of a Mamba layer");
  const MambaForm form{.heads = heads,
                       .head_dim = shared_out ? defaults.inner / heads : c.integer("mamba_d_head"),
                       .groups = c.integer("mamba_n_groups", defaults.groups),
                       .state = c.integer("mamba_d_state", defaults.state),
                       .taps = c.integer("mamba_d_conv", 4),
                       .conv_bias = c.flag("mamba_conv_bias", true),
                       .in_bias = c.flag("mamba_proj_bias", false),
                       .out_bias = c.flag("mamba_proj_bias", false)};
  require(form.heads <= kMost && form.head_dim <= kMost && form.inner() == defaults.inner, Fault::Model,
          "config.json: mamba_n_heads ", form.heads, " times mamba_d_head ", form.head_dim, " should be the ",
          defaults.inner, " values of a Mamba layer");
  return form;
}

}  // namespace apus
