// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4: several hidden states side by side, mixed among themselves; attention to a window and to keys pooled of
// several tokens, of which an index chooses in every second layer; experts by the root of softplus, of the first layers
// by the word.
#include <algorithm>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::deepseek_v4 {

namespace {
const char* const kSliding = "sliding_attention";
const char* const kChosen = "compressed_sparse_attention";
const char* const kPooled = "heavily_compressed_attention";

// Per layer, by names or by the number of tokens in a pool; a file that says neither has all pooled and chosen by turns
// behind two that are all pooled.
std::vector<std::string> read_types(const Config& c, int64_t layers) {
  std::vector<std::string> types = c.texts("layer_types");
  for (const int64_t ratio : types.empty() ? c.integers("compress_ratios") : std::vector<int64_t>()) {
    require(ratio == 0 || ratio == 4 || ratio == 128, Fault::Model, "config.json: compress_ratios has ", ratio,
            "; known: 0, 4 and 128");
    types.push_back(ratio == 0 ? kSliding : ratio == 4 ? kChosen : kPooled);
  }
  const bool said = !types.empty();
  for (int64_t i = 0; !said && i < layers; ++i) types.push_back(i < 2 || i % 2 == 0 ? kPooled : kChosen);
  require(std::ssize(types) >= layers, Fault::Model, "config.json: layer_types has ", types.size(),
          " entries, the model ", layers, " layers");
  types.resize(static_cast<size_t>(layers));
  return types;
}

std::vector<PooledForm::Pool> read_pools(const Config& c, int64_t layers) {
  const Json* said = c.find("compress_rates");
  const Json none = Json::object();
  const Config rates(said ? *said : none);
  const PooledForm::Pool chosen{c.integer("compress_rate_csa", rates.integer(kChosen, 4)), true},
      pooled{c.integer("compress_rate_hca", rates.integer(kPooled, 128)), false};
  constexpr int64_t kMost = 1 << 16;
  for (const auto& pool : {chosen, pooled})
    require(pool.tokens > 0 && pool.tokens <= kMost, Fault::Model,
            "config.json: compress_rates must be above 0 and at most ", kMost);
  std::vector<PooledForm::Pool> pools;
  for (const std::string& type : read_types(c, layers)) {
    require(type == kSliding || type == kChosen || type == kPooled, Fault::Model, "config.json: layer type '", type,
            "' is not known in this family; known: ", kSliding, ", ", kChosen, ", ", kPooled);
    pools.push_back(type == kSliding ? PooledForm::Pool{} : type == kChosen ? chosen : pooled);
  }
  return pools;
}

// Two sets in newer files; one in others, which is that of the layers that pool, on a base of their own and without
// yarn's factor.
RopeSpec read_turn(const Config& c, bool pools, int64_t turned, int64_t positions) {
  Json says = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* found = c.find(key); found && found->is_object()) says = *found;
  const char* const name = pools ? "compress" : "main";
  if (says.contains("main") && says.contains("compress") && says[name].is_object()) {
    says = says[name];
  } else {
    if (!pools) says = Json::object();
    says["rope_theta"] = pools ? c.number("compress_rope_theta", 160000) : c.number("rope_theta", 10000);
    const bool yarn = says.value("rope_type", says.value("type", std::string("default"))) == "yarn";
    if (yarn && !says.contains("attention_factor")) says["attention_factor"] = 1.0;
  }
  says.erase("partial_rotary_factor");
  const Json settings = {{"rope_parameters", says}};
  RopeSpec rope = read_rope(Config(settings), turned, positions);
  require(!follows_length(rope), Fault::Model, "config.json: rotary settings of type '", rope.type,
          "' are not known in this family");
  rope.neighbours = true;
  return rope;
}

int64_t read_turned(const Config& c, int64_t head_dim) {
  const auto dim = static_cast<double>(head_dim);
  const double part = c.number("partial_rotary_factor", static_cast<double>(c.integer("qk_rope_head_dim", 0)) / dim);
  return static_cast<int64_t>(dim * (part > 0 ? part : 64.0 / 512));
}

void use_pooled_attention(const Config& c, DecoderSpec& spec) {
  ModelShape& shape = spec.shape;
  const PooledForm form{.pools = read_pools(c, shape.layers),
                        .query_rank = c.integer("q_lora_rank", 1024),
                        .turned = read_turned(c, shape.head_dim),
                        .groups = c.integer("o_groups", 8),
                        .group_rank = c.integer("o_lora_rank", 1024),
                        .index = {.heads = c.integer("index_n_heads", 64),
                                  .dim = c.integer("index_head_dim", 128),
                                  .chosen = c.integer("index_topk", 512)}};
  require(form.turned > 0 && form.turned % 2 == 0 && form.turned <= std::min(shape.head_dim, form.index.dim),
          Fault::Model, "config.json: the ", form.turned,
          " numbers that turn must be even, above 0, and no more than head_dim and index_head_dim");
  require(
      form.query_rank > 0 && form.groups > 0 && form.group_rank > 0 && shape.heads % form.groups == 0 &&
          form.index.heads > 0 && form.index.chosen > 0,
      Fault::Model,
      "config.json: q_lora_rank, o_lora_rank, index_n_heads and index_topk must be above 0, and num_attention_heads a "
      "multiple of o_groups");
  const int64_t window = c.integer("sliding_window", 128);
  require(window > 0, Fault::Model, "config.json: sliding_window must be above 0");
  spec.window.assign(spec.window.size(), window);
  spec.ropes = {read_turn(c, false, form.turned, shape.max_positions),
                read_turn(c, true, form.turned, shape.max_positions)};
  shape.pooled = true;
  for (size_t i = 0; i < form.pools.size(); ++i) {
    const PooledForm::Pool& pool = form.pools[i];
    const bool pools = pool.tokens > 0;
    spec.rope_of[i] = pools ? 1 : 0;
    shape.keeps.push_back(pools ? Keeps::Both : Keeps::Tokens);
    shape.latent = std::max(shape.latent, shape.head_dim + form.beside_token(pool, shape.head_dim));
    if (pools)
      shape.state = {.before = 1,
                     .channels = std::max(shape.state.channels, pool.kept() * form.made(pool, shape.head_dim))};
  }
  if (shape.state.before == 0) shape.keeps.clear();
  spec.pooled = form;
}

MixtureSpec read_mixture(const Config& c) {
  require(c.integer("n_shared_experts", 1) == 1 && !c.flag("mlp_bias", false), Fault::Model,
          "config.json: this family has one shared expert and no biases; n_shared_experts or mlp_bias says otherwise");
  MixtureSpec mixture = read_routed_experts(c, {.experts = 256, .per_token = 6, .ffn = 2048, .scale = 1.5});
  mixture.limit = mixture.shared_limit = c.number("swiglu_limit", 10);
  require(mixture.limit > 0, Fault::Model, "config.json: swiglu_limit must be above 0");
  const std::string scores = c.text("scoring_func", "sqrtsoftplus");
  require(scores == "sqrtsoftplus" || scores == "sigmoid" || scores == "softmax", Fault::Model,
          "config.json: scoring_func '", scores, "' is not known; known: sqrtsoftplus, sigmoid, softmax");
  mixture.router = {.sigmoid = scores == "sigmoid",
                    .root_softplus = scores == "sqrtsoftplus",
                    .normalise = true,
                    .scale = mixture.router.scale};
  mixture.names.gate = "w1", mixture.names.up = "w3", mixture.names.down = "w2";
  return mixture;
}

void use_words(const Config& c, DecoderSpec& spec) {
  std::vector<std::string> types = c.texts("mlp_layer_types");
  const int64_t by_word = c.integer("num_hash_layers", 3);
  for (int64_t i = std::ssize(types); !c.find("mlp_layer_types") && i < spec.shape.layers; ++i)
    types.push_back(i < by_word ? "hash_moe" : "moe");
  require(std::ssize(types) >= spec.shape.layers, Fault::Model, "config.json: mlp_layer_types has ", types.size(),
          " entries, the model ", spec.shape.layers, " layers");
  for (size_t i = 0; i < spec.feed_forward.size(); ++i) {
    require(types[i] == "hash_moe" || types[i] == "moe", Fault::Model, "config.json: mlp_layer_types names '", types[i],
            "'; known: hash_moe, moe");
    if (types[i] == "moe") continue;
    MixtureNames& names = std::get<MixtureSpec>(spec.feed_forward[i]).names;
    names.correction = nullptr, names.by_word = "gate.tid2eid";
  }
}

StreamsForm read_streams(const Config& c) {
  const StreamsForm form{
      .count = c.integer("hc_mult", 4), .eps = c.number("hc_eps", 1e-6), .rounds = c.integer("hc_sinkhorn_iters", 20)};
  require(form.count > 0 && form.count <= 64 && form.rounds > 0 && form.rounds <= 1000, Fault::Model,
          "config.json: hc_mult must be above 0 and at most 64, hc_sinkhorn_iters above 0 and at most 1000");
  return form;
}

// The names of the published files; and those that transformers gives when it saves, which keep the backbone's name and
// call the norm of keys otherwise.
DiskForm names_in_files(bool published) {
  DiskForm form{.renames = {{"lm_head.", "head."}},
                .inside = {{".compressor.indexer.scorer.weights_proj.", ".indexer.weights_proj."},
                           {".compressor.indexer.q_b_proj.", ".indexer.wq_b."},
                           {".compressor.indexer.", ".indexer.compressor."},
                           {".compressor.kv_norm.", ".compressor.norm."},
                           {".compressor.gate_proj.", ".compressor.wgate."},
                           {".position_bias", ".ape"},
                           {".self_attn.sinks", ".self_attn.attn_sink"},
                           {".self_attn.q_a_proj.", ".self_attn.wq_a."},
                           {".self_attn.q_a_norm.", ".self_attn.q_norm."},
                           {".self_attn.q_b_proj.", ".self_attn.wq_b."},
                           {".self_attn.o_a_proj.", ".self_attn.wo_a."},
                           {".self_attn.o_b_proj.", ".self_attn.wo_b."},
                           {".kv_proj.", ".wkv."},
                           {".self_attn.", ".attn."},
                           {".gate.e_score_correction_bias", ".gate.bias"},
                           {".shared_experts.gate_proj.", ".shared_experts.w1."},
                           {".shared_experts.up_proj.", ".shared_experts.w3."},
                           {".shared_experts.down_proj.", ".shared_experts.w2."},
                           {".mlp.", ".ffn."},
                           {".input_layernorm.", ".attn_norm."},
                           {".post_attention_layernorm.", ".ffn_norm."},
                           {".attn_hc.", ".hc_attn_"},
                           {".ffn_hc.", ".hc_ffn_"}}};
  if (published) {
    form.renames.push_back({"model.embed_tokens.", "embed."});
    form.renames.push_back({"model.hc_head.hc_", "hc_head_"});
    form.renames.push_back({"model.", ""});
  } else {
    form.inside.insert(form.inside.begin(), {".self_attn.kv_norm.", ".self_attn.norm."});
  }
  return form;
}

// Dense weights in FP8 with scales that are powers of two, and experts in FP4, have tensors that no reader here knows.
void refuse_published_codes(const Config& c) {
  const Json* codes = c.find("quantization_config");
  if (!codes || !codes->is_object()) return;
  const Config says(*codes);
  require(
      says.text("scale_fmt", "") != "ue8m0" && !says.find("expert_dtype") && !c.find("expert_dtype"), Fault::Model,
      "config.json: the FP8 and FP4 codes in which DeepSeek-V4 is published (scale_fmt ue8m0, expert_dtype) are not "
      "read: take a copy in bfloat16 (transformers: FineGrainedFP8Config(dequantize=True), then save_pretrained)");
}

DecoderSpec read(const Config& c) {
  refuse_published_codes(c);
  Json words =
      in_usual_words(c, {{"num_local_experts", "n_routed_experts"}, {"intermediate_size", "moe_intermediate_size"}});
  for (const char* key : {"rope_scaling", "rope_parameters"}) words.erase(key);
  words["num_key_value_heads"] = 1;
  const Config usual(words);
  DecoderSpec spec = read_decoder(usual, {.kv_heads = 1, .positions = 1048576, .ffn = 2048, .head_dim = 512});
  use_pooled_attention(c, spec);
  spec.streams = read_streams(c);
  use_experts(usual, spec, read_mixture(usual), [](int64_t) { return true; });
  use_words(c, spec);
  spec.forms = {names_in_files(true), names_in_files(false), {}};
  return spec;
}

const Json kYarn = {
    {"type", "yarn"}, {"factor", 16}, {"beta_fast", 32}, {"beta_slow", 1}, {"original_max_position_embeddings", 65536}};

// Of each layer: what its file says where it leaves it out.
Json usual_ratios(int64_t layers) {
  Json ratios = Json::array();
  for (int64_t i = 0; i < layers; ++i) ratios.push_back(i < 2 || i % 2 == 0 ? 128 : 4);
  return ratios;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-v4-flash",
     4096,
     43,
     64,
     1,
     512,
     2048,
     129280,
     1048576,
     1e4,
     false,
     {},
     {{"rope_scaling", kYarn}, {"compress_ratios", usual_ratios(43)}}},
};

const RegisterFamily deepseek_v4("deepseek_v4", {.title = "DeepSeek-V4",
                                                 .architecture = "DeepseekV4ForCausalLM",
                                                 .read = read,
                                                 .says = {{"q_lora_rank", 1024},
                                                          {"qk_rope_head_dim", 64},
                                                          {"o_groups", 8},
                                                          {"o_lora_rank", 1024},
                                                          {"index_n_heads", 64},
                                                          {"index_head_dim", 128},
                                                          {"index_topk", 512},
                                                          {"compress_rope_theta", 160000},
                                                          {"compress_rates", {{kChosen, 4}, {kPooled, 128}}},
                                                          {"sliding_window", 128},
                                                          {"n_routed_experts", 256},
                                                          {"n_shared_experts", 1},
                                                          {"num_experts_per_tok", 6},
                                                          {"num_hash_layers", 3},
                                                          {"moe_intermediate_size", 2048},
                                                          {"routed_scaling_factor", 1.5},
                                                          {"scoring_func", "sqrtsoftplus"},
                                                          {"norm_topk_prob", true},
                                                          {"swiglu_limit", 10.0},
                                                          {"hc_mult", 4},
                                                          {"hc_sinkhorn_iters", 20},
                                                          {"hc_eps", 1e-6}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::deepseek_v4
