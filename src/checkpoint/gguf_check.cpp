// SPDX-License-Identifier: Apache-2.0
// Whether who reads a GGUF file gets the model that was meant: its settings are read back before it is written.
#include <cmath>

#include "base/error.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/import.h"
#include "models/spec/family.h"

namespace apus {

namespace {

// As f32 holds them.
bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::max({1.0, std::fabs(a), std::fabs(b)}); }

bool same_turns(const RopeSpec& a, const RopeSpec& b) {
  if (a.dim != b.dim || a.neighbours != b.neighbours || a.backwards != b.backwards ||
      !near(a.query_beta, b.query_beta) || a.sections != b.sections)
    return false;
  for (const int64_t length : {int64_t{1}, int64_t{1} << 24}) {
    const RopeFrequencies one = rope_frequencies(a, length), other = rope_frequencies(b, length);
    if (!near(one.scale, other.scale) || one.inverse.size() != other.inverse.size()) return false;
    for (size_t i = 0; i < one.inverse.size(); ++i)
      if (std::fabs(one.inverse[i] - other.inverse[i]) > 1e-5F * std::fabs(one.inverse[i])) return false;
  }
  return true;
}

bool same_positions(const DecoderSpec& a, const DecoderSpec& b) {
  if (a.position_table.has_value() != b.position_table.has_value()) return false;
  for (size_t i = 0; i < a.rope_of.size() && i < b.rope_of.size(); ++i) {
    const int one = a.rope_of[i], other = b.rope_of[i];
    if ((one == kNoRope) != (other == kNoRope)) return false;
    if (one != kNoRope && !same_turns(a.ropes[static_cast<size_t>(one)], b.ropes[static_cast<size_t>(other)]))
      return false;
  }
  return true;
}

bool same_slopes(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!near(a[i], b[i])) return false;
  return true;
}

bool same_router(const RouterForm& a, const RouterForm& b) {
  // What is added to a sum is too small to matter between the two that are usual.
  return a.sigmoid == b.sigmoid && a.normalise == b.normalise && near(a.scale, b.scale) && a.groups == b.groups &&
         a.open_groups == b.open_groups && (a.groups == 1 || a.two_best == b.two_best) && near(a.nearness, b.nearness);
}

bool same_feed_forward(const FeedForwardSpec& a, const FeedForwardSpec& b, bool folds) {
  if (a.index() != b.index()) return false;
  if (const auto* one = std::get_if<DenseSpec>(&a)) {
    const auto& other = std::get<DenseSpec>(b);
    return one->ffn == other.ffn && one->bias == other.bias &&
           (one->kind == FeedForwardKind::Plain) == (other.kind == FeedForwardKind::Plain) &&
           (folds || (near(one->gate_scale, other.gate_scale) && near(one->out_scale, other.out_scale)));
  }
  const auto* one = std::get_if<MixtureSpec>(&a);
  if (!one) return true;
  const auto& other = std::get<MixtureSpec>(b);
  return one->experts == other.experts && one->per_token == other.per_token && one->ffn == other.ffn &&
         one->shared_ffn == other.shared_ffn && near(one->out_scale, other.out_scale) &&
         near(one->clamp, other.clamp) && one->gated == other.gated && one->latent == other.latent &&
         one->weighs_input == other.weighs_input && same_router(one->router, other.router);
}

bool same_latent(const std::optional<LatentForm>& a, const std::optional<LatentForm>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->query_rank == b->query_rank && a->rank == b->rank && a->still == b->still && a->turned == b->turned &&
         a->value == b->value && a->index.heads == b->index.heads && a->index.dim == b->index.dim &&
         a->index.chosen == b->index.chosen;
}

bool same_state(const std::optional<StateForm>& a, const std::optional<StateForm>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  const StateShape one = state_shape(*a), other = state_shape(*b);
  const auto *mamba = std::get_if<MambaForm>(&*a), *seen = std::get_if<MambaForm>(&*b);
  return a->index() == b->index() && one.before == other.before && one.channels == other.channels &&
         one.heads == other.heads && one.rows == other.rows && one.columns == other.columns &&
         (!mamba || (mamba->norm == seen->norm && mamba->norm_groups == seen->norm_groups &&
                     mamba->groups == seen->groups && near(mamba->least_step, seen->least_step)));
}

}  // namespace

GgufHeader planned_header(const std::vector<std::pair<std::string, GgufValue>>& settings,
                          const std::vector<GgufSource>& sources, const std::string& where) {
  GgufHeader header;
  header.where = where;
  for (const auto& [key, value] : settings) header.settings[key] = value;
  for (const GgufSource& source : sources)
    header.tensors.push_back({source.tensor.name, GgmlType::F32, source.tensor.shape});
  return header;
}

void refuse_what_is_lost(const GgufSettings& settings, const DecoderSpec& spec, const DecoderSpec& seen,
                         const std::string& where) {
  const auto keep = [&](bool same, const char* what) {
    require(same, Fault::Model, where, ": ", what, ", which a GGUF file of the architecture ",
            settings.facts.architecture, " cannot say");
  };
  const ModelShape &a = spec.shape, &b = seen.shape;
  keep(a.layers == b.layers && a.hidden == b.hidden && a.heads == b.heads && a.kv_heads == b.kv_heads &&
           a.head_dim == b.head_dim && a.vocab == b.vocab && a.keeps == b.keeps && spec.tied == seen.tied,
       "its layers or heads have another shape than is usual");
  keep(spec.norm.kind == seen.norm.kind && near(1e6 * spec.norm.eps, 1e6 * seen.norm.eps) &&
           spec.parallel == seen.parallel && spec.normed_sums.has_value() == seen.normed_sums.has_value(),
       "its norms are not the usual ones, or stand elsewhere");
  const AttentionForm &one = spec.attention, &other = seen.attention;
  keep(one.qkv_bias == other.qkv_bias && one.out_bias == other.out_bias && spec.head_bias == seen.head_bias,
       "its matrices have biases where they usually have none, or none where they usually have them");
  keep(spec.act == seen.act, "its activation is not the usual one");
  keep(spec.window == seen.window, "its layers look back through other windows than is usual");
  keep(same_positions(spec, seen), "its layers are told positions in another way than is usual");
  const bool folds = settings.family.form.folds_scales;
  keep((folds || near(one.scale, other.scale)) && near(one.softcap, other.softcap) &&
           same_slopes(one.slopes, other.slopes) && near(one.clip, other.clip),
       "its attention scores are scaled in another way than is usual");
  keep(one.qk_norm == other.qk_norm && one.sinks == other.sinks && one.gated == other.gated &&
           (one.gate_name == nullptr) == (other.gate_name == nullptr) && one.value_dim == other.value_dim &&
           near(one.value_scale, other.value_scale) && same_latent(spec.latent, seen.latent) &&
           same_state(spec.state, seen.state),
       "its attention is of another form than is usual");
  keep(folds || (near(one.in_scale, other.in_scale) && near(one.out_scale, other.out_scale)),
       "its attention's input or result is scaled in another way than is usual");
  keep(near(spec.logit_softcap, seen.logit_softcap) && spec.head_norm == seen.head_norm &&
           (folds || (near(spec.logit_scale, seen.logit_scale) && near(spec.branch_scale, seen.branch_scale) &&
                      near(spec.embedding_scale, seen.embedding_scale))),
       "its logits, branches or embeddings are scaled in another way than is usual");
  for (size_t i = 0; i < spec.feed_forward.size(); ++i)
    keep(same_feed_forward(spec.feed_forward[i], seen.feed_forward[i], folds),
         "the feed-forwards of some layers, or their experts, are others than is usual");
}

}  // namespace apus
