// SPDX-License-Identifier: Apache-2.0
// What encoders' config.json files say in the same words, and BERT's layers under BERT's names.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// What a family's configuration class in transformers takes where the file leaves a key out; hidden_size, layers, heads
// and the feed-forward's width are BERT-base's.
struct EncoderDefaults {
  int64_t vocab = 30522, positions = 512, types = 2;
  // So many rows of the table of positions stand before that of the first.
  int64_t before = 0;
  int64_t pad = 0;
  const char* act = "gelu";
};

// The names of a head that stands inside a module `classifier`: RoBERTa's.
EncoderHead roberta_head();

// RoBERTa and what is made like it: BERT whose positions stand behind the padding's in their table.
DecoderSpec read_roberta(const Config& config, int64_t vocab);

// Positions out of a table, norms of sums, biases everywhere, a plain feed-forward.
DecoderSpec read_bert(const Config& config, const char* backbone, const EncoderDefaults& defaults);

// Sums with what branches give are normed, and nothing else is.
void norms_of_sums(DecoderSpec& spec, const char* of_attention, const char* of_feed_forward);

// Where the file leaves them out.
Json with_encoder_sizes(const Config& config, const EncoderDefaults& defaults);
// Attention looks both ways; no cache, no words. `defaults`: of the table of types.
void read_both_ways(const Config& config, DecoderSpec& spec, const EncoderDefaults& defaults);

}  // namespace apus
