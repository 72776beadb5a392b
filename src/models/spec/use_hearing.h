// SPDX-License-Identifier: Apache-2.0
// A decoder with a tower that hears before it, and none that sees, as transformers lays Qwen2-Audio and Voxtral out.
#pragma once

#include <memory>
#include <utility>

#include "base/error.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/hearing_spec.h"

namespace apus {

// `token` stands for a row of a sound; `key` names it in config.json.
inline void use_hearing(DecoderSpec& spec, const HearingSpec& hearing, int64_t token, const char* key) {
  require(token >= 0 && token < spec.shape.vocab, Fault::Model, "config.json: ", key, " ", token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  SeeingSpec seeing;
  seeing.sound_token = token, seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name};
  seeing.tower = {hearing.name}, seeing.aligner = {"model.multi_modal_projector"};
  seeing.forms = {{.renames = {{"model.language_model.", "language_model.model."},
                               {"lm_head.", "language_model.lm_head."},
                               {"model.audio_tower.", "audio_tower."},
                               {"model.multi_modal_projector.", "multi_modal_projector."}}},
                  {}};
  seeing.hearing = std::make_shared<const HearingSpec>(hearing);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
}

}  // namespace apus
