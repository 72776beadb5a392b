// SPDX-License-Identifier: Apache-2.0
// What a decoder hears with, as data: the tower that makes rows of log-mel spectrograms, or of the samples themselves.
// Beside a SeeingSpec. No tensor library.
#pragma once

#include <algorithm>

#include "models/spec/config.h"
#include "models/spec/seeing_spec.h"

namespace apus {

struct ConformerSpec;  // models/spec/conformer_spec.h
struct CascadeSpec;    // models/spec/cascade_spec.h

// Whisper's encoder as Qwen's models and Voxtral have it: a spectrogram is cut into chunks, each goes through
// convolutions for itself, and layers look at one chunk or at blocks of some.
struct HearingSpec {
  // Line: two convolutions over time, of which the second halves it; neighbouring rows become one behind the layers.
  // Plane: three over bands and time, each of which halves both. Bare: none, and no layers; a frame is so many
  // samples, as many as `mels` says, and becomes a row by a norm without weights and one projection. Conformer,
  // Cascade: towers of other kinds, which `conformer` and `cascade` say all of.
  enum class Front { Line, Plane, Bare, Conformer, Cascade };
  Front front = Front::Line;
  std::string name = "thinker.audio_tower";
  int64_t mels = 128, width = 0, layers = 0, heads = 0, ffn = 0;
  // The width of the rows that it gives: that of the decoder.
  int64_t out = 0;
  // Frames of a chunk.
  int64_t chunk = 200;
  // Above 0: a sound is one chunk, and so many frames come with it that are heard at its end alone.
  int64_t tail = 0;
  // Of Line: how many neighbours stand side by side in one row behind the last norm, all chunks being whole; 0: two
  // become their mean before it.
  int64_t beside = 0;
  // Layers of the decoder read its rows beside the text, in which one token stands for a sound (DecoderSpec::sound).
  bool beside_text = false;
  // Positions are rows of a table instead of sines.
  bool position_table = false;
  // Of Bare: what its norm adds.
  double eps = 1e-6;
  // The norm behind the layers, and the whole names of what follows it.
  std::string last_norm = "ln_post";
  std::vector<std::string> projections = {};
  bool projection_bias = true;
  // Between two projections; 0: as wide as what the first one reads.
  int64_t inner = 0;
  // Never used: other parts of the model, which make speech, read it.
  bool has_speech_marks = false;
  std::shared_ptr<const ConformerSpec> conformer = nullptr;
  std::shared_ptr<const CascadeSpec> cascade = nullptr;
  // Of its layers, in the tower.
  std::string layers_name = "layers";
  // Plane: channels of its convolutions, and how many whole chunks a block is that layers look at.
  int64_t channels = 0, chunks_seen = 1;

  int64_t head_size() const { return width / heads; }
  // Processors give [sounds, frames, bands], elsewhere [sounds, bands, frames].
  bool comes_by_frame() const { return front != Front::Line && front != Front::Plane; }
  // Numbers of a row that the first projection reads.
  int64_t joined_width() const { return width * std::max<int64_t>(beside, 1); }
  // Rows of so many frames, at most a chunk, behind the convolutions.
  int64_t rows_of_chunk(int64_t frames) const;
  // Rows that the tower gives for a sound: as many tokens stand for it.
  int64_t tokens(int64_t frames) const;
};

// In the order of the tower's own modules.
std::vector<TowerPart> parts_of(const HearingSpec& spec);

// audio_config of an Omni model.
HearingSpec read_hearing(const Config& audio, HearingSpec::Front front);
// Of Qwen2-Audio, which hears half a minute as a whole; `out`: the decoder's width.
HearingSpec read_whole_hearing(const Config& audio, int64_t out);
// Of Voxtral, which hears half a minute after the other, each filled up with silence.
HearingSpec read_filled_hearing(const Config& audio, int64_t out);
// Of Whisper itself: half a minute, filled up with silence, which a decoder of its width reads beside the text.
HearingSpec read_half_minute_hearing(const Config& config);
// Of Gemma 3n; of Phi-4-multimodal.
HearingSpec hearing_of(const ConformerSpec& spec);
HearingSpec hearing_of(const CascadeSpec& spec);
// Of Gemma 4 that hears samples; `projection`: the whole name of its one layer.
HearingSpec read_bare_hearing(const Config& audio, int64_t out, const std::string& projection);

}  // namespace apus
