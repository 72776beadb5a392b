// SPDX-License-Identifier: Apache-2.0
#include "models/spec/cutting.h"

#include <algorithm>
#include <numeric>

#include "models/spec/seeing_spec.h"

namespace apus {

namespace {
// Why each process must have all heads of attention; empty: it need not.
std::string why_heads_stay(const DecoderSpec& spec) {
  if (!spec.attention.slopes.empty()) return "each head of their attention has a slope of its own";
  if (spec.attention.qk_norm == QkNorm::EachHead) return "queries and keys of each head have norms of their own";
  return "";
}
}  // namespace

TokenSharing token_sharing(const DecoderSpec& spec) {
  TokenSharing out;
  if (spec.pooled) out.no_way = "their attention looks at keys that several tokens share";
  if (spec.latent && spec.latent->index.heads > 0) out.no_way = "each of their tokens chooses those that it looks at";
  if (spec.seeing && spec.seeing->sees_ahead) out.stay = "the tokens of their pictures look ahead";
  if (spec.latent || !why_heads_stay(spec).empty()) return out;
  out.divisible = 0;  // and stays so where no layer has heads of attention: then nothing need go round
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    if (keeps_tokens(spec.shape.keeps_in(i))) out.divisible = std::gcd(out.divisible, spec.heads_in(i).kv_heads);
  return out;
}

TokenSharers token_sharers(const TokenSharing& model, int64_t ranks, int64_t tensor) {
  if (!model.stay.empty()) return {.heads = ranks};
  const int64_t divisible = model.divisible % tensor == 0 ? model.divisible / tensor : 1;
  const int64_t heads = std::gcd(ranks, divisible);
  return {.heads = heads, .groups = ranks / heads};
}

std::string why_uncut(const DecoderSpec& spec) {
  const auto fused = [](const FeedForwardSpec& kind) {
    const auto* dense = std::get_if<DenseSpec>(&kind);
    const auto* mixture = std::get_if<MixtureSpec>(&kind);
    return (dense && dense->kind == FeedForwardKind::FusedGate) ||
           (mixture && mixture->shared_ffn > 0 && mixture->names.shared_kind == FeedForwardKind::FusedGate);
  };
  if (spec.latent || spec.pooled) return "all heads of their attention share one vector a token";
  if (spec.state) return "some of their layers keep a state instead of keys and values";
  if (spec.attention.fused != Fused::No) return "one matrix makes queries, keys and values";
  if (spec.attention.qk_norm == QkNorm::AllHeads) return "queries and keys of all heads are normalised together";
  if (spec.hands_on_more()) return "their layers are given more than the hidden state of the layer before";
  if (!spec.heads_of.empty() || spec.attention.value_dim > 0) return "their layers have heads of several sizes";
  if (const std::string stay = why_heads_stay(spec); !stay.empty()) return stay;
  if (spec.attention.experts > 0) return "experts make the queries of their attention";
  if (spec.head_dense) return "a matrix stands before their head";
  if (spec.head_norm != DecoderSpec::HeadNorm::None) return "rows or columns of their head are brought to length 1";
  if (spec.head_bias) return "their head has a bias";
  if (spec.attention.sinks) return "each head of their attention has a sink, which is kept whole";
  const auto by_kind = [](const FeedForwardSpec& kind) {
    const auto* mixture = std::get_if<MixtureSpec>(&kind);
    return mixture && mixture->media_ffn > 0;
  };
  if (std::any_of(spec.feed_forward.begin(), spec.feed_forward.end(), by_kind))
    return "their experts have two widths, one for text and one for what is seen";
  if (std::any_of(spec.feed_forward.begin(), spec.feed_forward.end(), fused))
    return "one matrix makes gate and values of the feed-forward";
  return "";
}

}  // namespace apus
