// SPDX-License-Identifier: Apache-2.0
// What Ovis 1.6 and 2 have in both layouts: towers whose rows are shares of words.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// AIMv2's sizes and switches, without names. `bias`: the key that says whether what follows attention and the
// feed-forward have biases.
VisionSpec read_aimv2(const Config& vision, const char* bias);
// Its parts' names in its authors' files.
void use_own_aimv2_names(VisionSpec& tower);
// `said`: the file's part that has hidden_stride, vocab_size and tokenize_function.
void use_visual_words(const Config& said, VisionSpec& tower, std::vector<int64_t> marks);
// A decoder whose media are the token `atom` and the tower's marks.
DecoderSpec with_visual_words(DecoderSpec text, SeeingSpec seeing, int64_t atom);

}  // namespace apus
