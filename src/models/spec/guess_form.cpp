// SPDX-License-Identifier: Apache-2.0
#include "models/spec/guess_form.h"

#include <utility>

#include "base/error.h"

namespace apus {

void use_guess_head(DecoderSpec& spec, GuessForm form) {
  for (int64_t i = spec.shape.layers; i-- > 0;) {
    if (spec.shape.keeps_in(i) != Keeps::Tokens) continue;
    form.like = i;
    spec.guess = std::move(form);
    return;
  }
}

void use_layers_ahead(const Config& config, DecoderSpec& spec, GuessForm form) {
  spec.shape.unread_layers = config.integer("num_nextn_predict_layers", 0);
  if (spec.shape.unread_layers == 0) return;
  form.name = str(spec.layers_name, ".", spec.shape.layers);
  use_guess_head(spec, std::move(form));
}

DecoderSpec one_layer(const DecoderSpec& spec, int64_t layer) {
  DecoderSpec one = spec;
  const auto i = static_cast<size_t>(layer);
  one.shape.layers = 1, one.shape.unread_layers = 0, one.shape.seen_layers = 0;
  one.shape.keeps.clear();
  if (!spec.shape.cached.empty()) one.shape.cached = {spec.shape.cached[i]};
  one.rope_of = {spec.rope_of[i]}, one.window = {spec.window[i]};
  one.feed_forward = {spec.feed_forward[i]};
  if (!spec.heads_of.empty()) one.heads_of = {spec.heads_of[i]};
  one.seeing = nullptr, one.guess.reset();
  return one;
}

}  // namespace apus
