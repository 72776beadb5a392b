// SPDX-License-Identifier: Apache-2.0
// What a decoder's layers are made of, from its description.
#pragma once

#include <memory>
#include <string>

#include "models/spec/decoder_spec.h"
#include "nn/mixer.h"
#include "nn/mlp.h"
#include "nn/moe.h"

namespace apus {

std::unique_ptr<MoeMlp> make_mixture(const DecoderSpec& spec, int64_t layer);
// How many experts a token meets in the mixtures before a layer, as they are written down (nn/expert_choices.h): of
// those whose router chooses, and by the token alone.
int64_t experts_met_before(const DecoderSpec& spec, int64_t layer);
// Of a layer; null: it has none. And its name there.
std::unique_ptr<FeedForward> make_feed_forward(const DecoderSpec& spec, int64_t layer);
std::string block_name(const DecoderSpec& spec, int64_t layer);
std::unique_ptr<Mixer> make_attention(const DecoderSpec& spec, int64_t layer);
// To the sound (DecoderSpec::sound).
std::unique_ptr<Mixer> make_sound_attention(const DecoderSpec& spec, int64_t layer);

}  // namespace apus
