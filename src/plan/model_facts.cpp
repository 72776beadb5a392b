// SPDX-License-Identifier: Apache-2.0
#include "plan/model_facts.h"

#include <algorithm>

#include "base/error.h"
#include "models/spec/cutting.h"
#include "models/spec/family.h"
#include "models/spec/score_head.h"
#include "plan/parameter_list.h"
#include "quant/size.h"

namespace apus {
namespace {

// What nn/delta_net, nn/mamba and nn/lightning_attention leave on the tape, in f32; and what ops/state_scan makes of
// its inputs again with its gradients, measured: of every head so many queries, keys and values, rows of a chunk, and
// sums between chunks.
double scanned_again(int64_t heads, int64_t keys, int64_t values, bool corrects) {
  constexpr int64_t kChunk = 64;
  const int64_t rows = corrects ? 16 * keys + 12 * values : 10 * keys + 6 * values;
  return static_cast<double>(heads * (rows + 8 * kChunk + 6 * keys * values / kChunk));
}
void add_state(const DeltaForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(8 * f.key_heads * f.key_dim + 6 * f.value_heads * f.value_dim);
  m.state_again = scanned_again(f.value_heads, f.key_dim, f.value_dim, true);
}
void add_state(const MambaForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(6 * f.inner() + 3 * f.mixed() + 2 * f.groups * f.state);
  m.state_again = scanned_again(f.heads, f.state, f.head_dim, false);
}
void add_state(const LightningForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(10 * f.heads * f.head_dim);
  m.state_again = scanned_again(f.heads, f.head_dim, f.head_dim, false);
}
void add_state(const TurnedLightningForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(12 * f.width());
  m.state_again = scanned_again(f.heads, f.head_dim, f.head_dim, false);
}
void add_state(const SelectiveForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(8 * f.inner + 2 * f.inner * f.state + 2 * f.state);
  m.state_again = static_cast<double>(6 * f.inner * f.state);
}
void add_state(const ConvForm& f, ModelFacts& m) { m.state_kept = static_cast<double>(6 * f.width); }
void add_state(const FadingForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(12 * f.width);
  m.state_again = static_cast<double>(6 * f.width);
}
void add_state(const KimiDeltaForm& f, ModelFacts& m) {
  m.state_kept = static_cast<double>(14 * f.width());
  m.state_again = static_cast<double>(6 * f.width() * f.head_dim);
}

// Of a pool: values, gates and shares, in f32.
void add_state(const PooledForm& f, const ModelShape& shape, ModelFacts& m) {
  for (const PooledForm::Pool& pool : f.pools)
    if (pool.tokens > 0) m.state_kept = std::max(m.state_kept, static_cast<double>(3 * pool.made(shape.head_dim)));
}

// The widest feed-forward of each kind, which is that of every layer in the known families.
void add_feed_forward(const FeedForwardSpec& kind, ModelFacts& m) {
  const auto* mixture = std::get_if<MixtureSpec>(&kind);
  m.sparse.push_back(mixture != nullptr);
  if (const auto* dense = std::get_if<DenseSpec>(&kind)) m.ffn = std::max(m.ffn, dense->ffn);
  if (!mixture) return;
  if (mixture->beside) m.ffn = std::max(m.ffn, mixture->beside->ffn);
  m.expert_ffn = std::max(m.expert_ffn, mixture->ffn);
  m.shared_ffn = std::max(m.shared_ffn, mixture->shared_ffn);
}

}  // namespace

int64_t ParamFacts::numel() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t ModelFacts::parameters() const {
  int64_t n = 0;
  for (const ParamFacts& p : params) n += p.numel();
  return n;
}

int64_t ModelFacts::active_parameters() const {
  int64_t n = 0;
  for (const ParamFacts& p : params) n += p.stacked ? p.numel() / experts * per_token : p.numel();
  return n;
}

int64_t ModelFacts::matrix_elements() const {
  int64_t n = tied ? vocab * hidden : 0;  // the head; the embedding only looks up
  for (const ParamFacts& p : params) n += p.stacked ? p.numel() / experts * per_token : p.linear ? p.numel() : 0;
  return n;
}

std::vector<std::string> ModelFacts::linear_modules() const {
  std::vector<std::string> names;
  for (const ParamFacts& p : params)
    if (p.linear) {
      names.push_back(p.module());
    } else {  // of stacked experts the first
      for (const std::string& piece : p.pieces) names.push_back(str(p.module(), ".0.", piece));
    }
  return names;
}

ModelFacts model_facts(const Json& config) {
  const DecoderSpec spec = describe_model(config, natural_head(config));
  const ModelShape& shape = spec.shape;
  const Config c(config);
  ModelFacts m;
  m.type = c.text("model_type", ""), m.dtype = weights_dtype(config);
  m.backbone = spec.backbone;
  m.embedding = str(spec.backbone, ".", spec.embed_name), m.layer = str(spec.backbone, ".", spec.layers_name, ".");
  m.encoder = spec.encoder.has_value();
  m.seeing = spec.seeing, m.seen_layers = shape.seen_layers;
  m.layers = shape.layers, m.hidden = shape.hidden, m.vocab = shape.vocab, m.positions = shape.max_positions;
  m.heads = shape.heads, m.kv_heads = shape.kv_heads, m.head_dim = shape.head_dim, m.latent = shape.latent;
  m.position_numbers = shape.position_numbers;
  m.tied = spec.tied, m.qk_norm = spec.attention.qk_norm != QkNorm::None, m.act = spec.act;
  m.uncut = why_uncut(spec);
  m.quantised = quant::bits_of_weight(config, {}).has_value();
  m.experts = shape.experts, m.per_token = shape.experts_per_token;
  if (spec.state) std::visit([&](const auto& form) { add_state(form, m); }, *spec.state);
  if (spec.pooled) add_state(*spec.pooled, shape, m);
  for (int64_t i = 0; i < shape.layers; ++i) {
    m.keeps.push_back(shape.keeps_in(i));
    m.token_layers += keeps_tokens(shape.keeps_in(i));
    m.state_layers += keeps_state(shape.keeps_in(i));
  }
  m.state_numbers = shape.state.numbers();
  m.sharing = shape.sharing, m.by_distance = spec.attention.by_distance;
  m.cached = shape.cached, m.hands_on_more = spec.hands_on_more(), m.takes_no_prompt = spec.takes_no_prompt(),
  m.pooled = shape.pooled;
  for (const FeedForwardSpec& kind : spec.feed_forward) add_feed_forward(kind, m);
  if (spec.guess) m.guess_like = spec.guess->like;
  m.params = parameters_of(spec);
  return m;
}

ModelFacts with_guess_head(ModelFacts m) {
  require(m.guess_like >= 0, Fault::Bug, m.type, " models have no head that guesses");
  const std::string like = str(m.layer, m.guess_like, "."), own = str(m.layer, m.layers, ".");
  const auto place = static_cast<size_t>(m.guess_like);
  for (size_t i = 0, n = m.params.size(); i < n; ++i) {
    if (!m.params[i].name.starts_with(like)) continue;
    ParamFacts p = m.params[i];
    p.name = own + p.name.substr(like.size());
    m.params.push_back(std::move(p));
  }
  m.params.push_back({.name = own + "eh_proj.weight", .shape = {m.hidden, 2 * m.hidden}, .linear = true});
  ++m.layers, ++m.token_layers;
  m.keeps.push_back(m.keeps[place]), m.sparse.push_back(m.sparse[place]);
  if (!m.cached.empty()) m.cached.push_back(m.cached[place]);
  return m;
}

}  // namespace apus
