// SPDX-License-Identifier: Apache-2.0
// Baichuan 1 and 2: queries, keys and values in one matrix. The 13B ones are told positions by slopes; the second
// generation brings the rows of its head to length 1.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::baichuan {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"model_max_length", "max_position_embeddings"}});
  DecoderSpec spec = read_decoder(Config(all), {.positions = 4096});
  spec.attention.fused = Fused::Blocks, spec.attention.fused_name = "W_pack";
  // What the two sizes' own code does.
  if (spec.shape.heads == 40 || c.flag("alibi", false)) use_slopes(spec, usual_slopes(spec.shape.heads));
  if (spec.shape.vocab == 125696 || c.flag("norm_head", false)) spec.head_norm = DecoderSpec::HeadNorm::Rows;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"baichuan-7b", 4096, 32, 32, 32, 0, 11008, 64000, 4096, 1e4, false},
    {"baichuan2-7b", 4096, 32, 32, 32, 0, 11008, 125696, 4096, 1e4, false},
    {"baichuan2-13b", 5120, 40, 40, 40, 0, 13696, 125696, 4096, 1e4, false},
};

// How it stands in GGUF files.
GgufTurn::Rows turning_queries(const GgufSizes& s, int64_t all) { return as_neighbours(query_block(s, all), s.heads); }
GgufTurn::Rows turning_keys(const GgufSizes& s, int64_t all) { return as_neighbours(key_block(s, all), s.kv_heads); }

const GgufForm gguf = {.architecture = "baichuan",
                       .names = {{"self_attn.W_pack", "attn_q", {.rows = turning_queries}},
                                 {"self_attn.W_pack", "attn_k", {.rows = turning_keys}},
                                 {"self_attn.W_pack", "attn_v", {.rows = value_block}}}};

const RegisterFamily baichuan("baichuan", {.title = "Baichuan 1 and 2",
                                           .architecture = "BaichuanForCausalLM",
                                           .read = read,
                                           .presets = presets,
                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::baichuan
