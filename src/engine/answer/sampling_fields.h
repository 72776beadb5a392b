// SPDX-License-Identifier: Apache-2.0
// Everything that can be asked of the sampler, described once: the flags of commands, the fields of requests, the keys
// of generation_config.json and what the engine works with all come from each_sampling_field(). A new wish is a member
// of Sampling, one of SamplingWishes and an entry here, and a rule in sampling_rules.cpp. No tensor library.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace apus {

// How one answer is sampled. The initial values change nothing: they are what holds when nobody wishes otherwise.
struct Sampling {
  double temperature = 1, top_p = 1, min_p = 0, epsilon_cutoff = 0;  // temperature 0: greedy
  int64_t top_k = 0;                                                 // 0: all
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int64_t no_repeat_ngram_size = 0;  // n: no n tokens in a row occur twice; 0: they may
  uint64_t seed = 0;
  int64_t max_new_tokens = 512, min_new_tokens = 0;
  std::vector<int32_t> stop_ids;  // end-of-sequence tokens; not part of the text
  bool ignore_eos = false;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> never, never_first;  // tokens that no answer has, and that none begins with
  int64_t top_logprobs = -1;                // -1: no log-probs; 0: the sampled token's; n: and the n best
  int64_t prompt_logprobs = -1;
  bool tempered_logprobs = false;  // log-probs of the answer under the distribution divided by the temperature
};

// What a request, a command line or a checkpoint says about it. Absent: not stated.
struct SamplingWishes {
  std::optional<bool> do_sample;  // of checkpoints only: draw, or take the likeliest
  std::optional<double> temperature, top_p, min_p, epsilon_cutoff, repetition_penalty, presence_penalty,
      frequency_penalty;
  // max_new_tokens is no field below: each API has rules of its own for how long an answer may be.
  std::optional<int64_t> top_k, max_new_tokens, min_new_tokens, no_repeat_ngram_size;
  // Of checkpoints only: their suppress_tokens and begin_suppress_tokens.
  std::vector<int32_t> never, never_first;
};

template <class T>
struct SamplingField {
  const char* name;  // the flag --name, the key of generation_config.json, and the field of requests ...
  std::optional<T> SamplingWishes::*wish;
  T Sampling::*value;
  T least, most;
  const char* help;
  const char* request_name = nullptr;  // ... unless they call it otherwise
  bool of_checkpoints = true;          // generation_config.json may say it

  const char* in_requests() const { return request_name ? request_name : name; }
};

// Calls visit(field) with the description of each.
template <class Visit>
void each_sampling_field(const Visit& visit) {
  using Wishes = SamplingWishes;
  using Number = SamplingField<double>;
  using Whole = SamplingField<int64_t>;
  visit(Number{.name = "temperature",
               .wish = &Wishes::temperature,
               .value = &Sampling::temperature,
               .least = 0,
               .most = 100,
               .help = "0 is greedy; higher is more varied"});
  visit(Whole{.name = "top_k",
              .wish = &Wishes::top_k,
              .value = &Sampling::top_k,
              .least = -1,
              .most = INT32_MAX,
              .help = "choose among the k likeliest tokens; -1 or 0: all"});
  visit(Number{.name = "top_p",
               .wish = &Wishes::top_p,
               .value = &Sampling::top_p,
               .least = 0,
               .most = 1,
               .help = "choose among the likeliest tokens that hold this share of probability; 0 is greedy"});
  visit(Number{.name = "min_p",
               .wish = &Wishes::min_p,
               .value = &Sampling::min_p,
               .least = 0,
               .most = 1,
               .help = "leave out tokens below this share of the likeliest one's probability"});
  visit(Number{.name = "epsilon_cutoff",
               .wish = &Wishes::epsilon_cutoff,
               .value = &Sampling::epsilon_cutoff,
               .least = 0,
               .most = 1,
               .help = "leave out tokens below this probability, once the other filters have chosen; 0: none"});
  visit(Number{.name = "repetition_penalty",
               .wish = &Wishes::repetition_penalty,
               .value = &Sampling::repetition_penalty,
               .least = 1e-3,
               .most = 1e3,
               .help = "above 1 makes tokens that occurred less likely"});
  visit(Number{.name = "presence_penalty",
               .wish = &Wishes::presence_penalty,
               .value = &Sampling::presence_penalty,
               .least = -2,
               .most = 2,
               .help = "taken off the logit of tokens that were generated before",
               .of_checkpoints = false});
  visit(Number{.name = "frequency_penalty",
               .wish = &Wishes::frequency_penalty,
               .value = &Sampling::frequency_penalty,
               .least = -2,
               .most = 2,
               .help = "taken off the logit of a token for each time that it was generated before",
               .of_checkpoints = false});
  visit(Whole{.name = "no_repeat_ngram_size",
              .wish = &Wishes::no_repeat_ngram_size,
              .value = &Sampling::no_repeat_ngram_size,
              .least = 0,
              .most = 1024,
              .help = "n: no n tokens in a row occur twice; 0: they may"});
  visit(Whole{.name = "min_new_tokens",
              .wish = &Wishes::min_new_tokens,
              .value = &Sampling::min_new_tokens,
              .least = 0,
              .most = INT32_MAX,
              .help = "no answer ends before so many tokens",
              .request_name = "min_tokens"});
}

// Keys of generation_config.json that change answers elsewhere and that nothing here follows, each with the JSON value
// with which it asks for nothing. One that becomes a field moves up.
struct UnfollowedKey {
  const char *name, *harmless;
};
inline constexpr UnfollowedKey kUnfollowedKeys[] = {{"num_beams", "1"},
                                                    {"num_beam_groups", "1"},
                                                    {"num_return_sequences", "1"},
                                                    {"early_stopping", "false"},
                                                    {"length_penalty", "1"},
                                                    {"diversity_penalty", "0"},
                                                    {"typical_p", "1"},
                                                    {"eta_cutoff", "0"},
                                                    {"top_h", "null"},
                                                    {"encoder_repetition_penalty", "1"},
                                                    {"exponential_decay_length_penalty", "null"},
                                                    {"penalty_alpha", "null"},
                                                    {"guidance_scale", "1"},
                                                    {"bad_words_ids", "[]"},
                                                    {"force_words_ids", "[]"},
                                                    {"sequence_bias", "null"},
                                                    {"constraints", "null"},
                                                    {"forced_bos_token_id", "null"},
                                                    {"forced_eos_token_id", "null"},
                                                    {"min_length", "0"},
                                                    {"max_time", "null"},
                                                    {"max_new_tokens", "null"},
                                                    {"stop_strings", "[]"},
                                                    {"watermarking_config", "null"}};

// What `wishes` leave open is taken from `fallback`.
SamplingWishes with_fallback(SamplingWishes wishes, const SamplingWishes& fallback);

// What the request says, else what the checkpoint says, else neutral. Without a temperature from the request the
// checkpoint's do_sample decides between drawing and greedy; without any statement it is greedy, as in transformers.
// Without max_new_tokens an answer may take what the context leaves.
Sampling resolve(const SamplingWishes& request, const SamplingWishes& checkpoint);

}  // namespace apus
