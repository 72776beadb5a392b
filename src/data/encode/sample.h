// SPDX-License-Identifier: Apache-2.0
// One encoded sequence: what a model reads, which of it is learnt, and what an algorithm needs beside it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/prompt_words.h"
#include "media/media_item.h"

namespace apus {

// A column of a sample that is two texts: where the second begins.
inline constexpr const char* kSecondText = "second_text";

struct Sample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> trained;  // per token: 1 where it is a label. The first is never one.
  std::vector<float> weights;    // per token: the factor on its loss; empty: all 1
  std::string channel;
  // In one group with the sample before it: a pair, the answers to one prompt. Groups are never divided, neither by
  // packing nor between micro-batches.
  bool grouped = false;
  // Numbers that a loss needs, by name: one for the sequence (label, margin), or one for each token.
  std::map<std::string, float> columns;
  std::map<std::string, std::vector<float>> token_columns;
  std::vector<MediaItem> media;  // in the order in which they begin
  std::vector<int16_t> experts;  // that each token met in all mixtures (nn/expert_choices.h); empty: nobody knows
  std::string row;               // JSON of the row's columns, where an algorithm's rewards read them

  int64_t length() const { return static_cast<int64_t>(ids.size()); }
  int64_t trained_tokens() const {
    int64_t count = 0;
    for (const uint8_t t : trained) count += t;
    return count;
  }
};

using Samples = std::vector<Sample>;

// Puts the words of a trained prompt before a text: they are read, and not learnt to be said.
inline void put_prompt_before(Sample& sample, int64_t words) {
  const auto count = static_cast<size_t>(words);
  put_prompt_before(sample.ids, words);
  sample.trained.insert(sample.trained.begin(), count, 0);
  if (!sample.weights.empty()) sample.weights.insert(sample.weights.begin(), count, 1);
  for (auto& [name, values] : sample.token_columns) values.insert(values.begin(), count, 0);
}

// The media that end before this token, as those of a prompt do.
inline std::vector<MediaItem> media_before(const Sample& sample, size_t token) {
  std::vector<MediaItem> out;
  for (const MediaItem& item : sample.media)
    if (item.begin + item.length <= static_cast<int64_t>(token)) out.push_back(item);
  return out;
}

inline int64_t tokens_of(const Samples& samples) {
  int64_t tokens = 0;
  for (const Sample& sample : samples) tokens += sample.length();
  return tokens;
}

// The same samples group by group; one that belongs to no other is a group of its own.
inline std::vector<Samples> groups_of(Samples samples) {
  std::vector<Samples> groups;
  for (Sample& sample : samples) {
    if (!sample.grouped || groups.empty()) groups.emplace_back();
    groups.back().push_back(std::move(sample));
  }
  return groups;
}

}  // namespace apus
