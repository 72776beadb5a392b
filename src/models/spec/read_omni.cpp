// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_omni.h"

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

Config thinker_part(const Config& config) {
  return config.find("thinker_config") ? part_of(config, "thinker_config") : config;
}

void use_senses(const Config& c, DecoderSpec& spec, SeeingSpec seeing, HearingSpec hearing, const char* tokens) {
  const auto token = [&](const std::string& of) { return c.integer((of + tokens).c_str()); };
  seeing.image_token = token("image"), seeing.video_token = token("video"), seeing.sound_token = token("audio");
  seeing.sound_begin = c.integer("audio_start_token_id");
  for (const int64_t each : {seeing.image_token, seeing.video_token, seeing.sound_token, seeing.sound_begin})
    require(each >= 0 && each < spec.shape.vocab, Fault::Model, "config.json: the token ", each,
            " of images, videos or sounds lies outside the vocabulary of ", spec.shape.vocab);
  require(seeing.vision.out == spec.shape.hidden && hearing.out == spec.shape.hidden, Fault::Model,
          "config.json: the towers give rows of ", seeing.vision.out, " (seen) and ", hearing.out,
          " (heard) numbers, the text part reads ", spec.shape.hidden);
  require(!spec.ropes.front().sections.empty(), Fault::Model,
          "config.json: the rotary settings lack 'mrope_section', by which this model places images");
  seeing.vision.name = "thinker.visual";
  spec.tied = c.flag("tie_word_embeddings", spec.tied);
  spec.backbone = "thinker.model", spec.head_name = "thinker.lm_head";
  seeing.language = {"thinker.model", "thinker.lm_head"};
  seeing.tower = {seeing.vision.name, hearing.name};
  seeing.aligner = {seeing.vision.name + ".merger", seeing.vision.name + "." + seeing.vision.names.deep_mergers};
  for (const char* last : {".proj", ".proj1", ".proj2"}) seeing.aligner.push_back(hearing.name + last);
  seeing.hearing = std::make_shared<const HearingSpec>(std::move(hearing));
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
}

}  // namespace apus
