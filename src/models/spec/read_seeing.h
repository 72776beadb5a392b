// SPDX-License-Identifier: Apache-2.0
// What config.json of Qwen's seeing models says in the same words: text at the top level or in text_config, the tower
// in vision_config.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// The part of the file that is about text: text_config, or the whole.
Config text_part(const Config& config);
// An object that must be there.
Config part_of(const Config& config, const char* key);

// What all of these towers say. `width`: the key of the tower's width.
VisionSpec read_vision(const Config& vision, const char* width);

// The rest of what Qwen2.5's tower says: gated feed-forwards, windows in most layers.
void use_windowed_tower(const Config& vision, VisionSpec& tower);

// Makes a decoder one that sees: its names, its tokens. The decoder's own part is read already.
void use_sight(const Config& config, DecoderSpec& spec, SeeingSpec seeing);

// The same where media count up as text does. The decoder has its names already; the tokens stand in `seeing`.
void use_sight_in_line(DecoderSpec& spec, SeeingSpec seeing);

// What sees pages, for a text part that has its names already; `token` stands for their rows. Its own names and forms
// are the caller's to say.
struct PageSpec;
SeeingSpec page_sight(const DecoderSpec& text, PageSpec page, int64_t token);

// The text part that a family of its own reads: config.json at `part`. Its tensors stand below `prefix`.
DecoderSpec read_language(const Config& part, const std::string& prefix);

// Files of transformers before 4.52, and those that it still writes: `visual.` and `model.` instead of `model.visual.`
// and `model.language_model.`.
DiskForm form_before_nesting();

}  // namespace apus
