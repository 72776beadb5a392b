// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "data/encode/encoder.h"

namespace apus {

namespace {

// How many words of a trained prompt begin here: they have numbers that rise, and no text.
size_t prompt_words_at(const std::vector<int64_t>& ids, size_t begin) {
  size_t end = begin;
  while (end < ids.size() && ids[end] >= kFirstPromptWord) ++end;
  return end - begin;
}

// Ids as text, runs of five or more alike as "[id * n]".
std::string ids_text(const std::vector<int64_t>& ids) {
  std::string out = "[";
  for (size_t i = 0; i < ids.size();) {
    if (const size_t words = prompt_words_at(ids, i); words > 0) {
      out += str("[prompt * ", words, "]"), i += words;
      continue;
    }
    size_t end = i;
    while (end < ids.size() && ids[end] == ids[i]) ++end;
    if (i) out += ", ";
    if (end - i >= 5) {
      out += str("[", ids[i], " * ", end - i, "]");
    } else {
      for (size_t k = i; k < end; ++k) out += str(k > i ? ", " : "", ids[k]);
    }
    i = end;
  }
  return out + "]";
}

// The text of a sequence; stretches of -100 and long runs of one id in brackets.
std::string tokens_text(const std::vector<int64_t>& ids, const Tokenizer& tokenizer) {
  std::string out;
  std::vector<int32_t> plain;
  const auto flush = [&] {
    out += tokenizer.decode(plain);
    plain.clear();
  };
  for (size_t i = 0; i < ids.size();) {
    if (const size_t words = prompt_words_at(ids, i); words > 0) {
      out += str("[prompt * ", words, "]"), i += words;
      continue;
    }
    size_t end = i;
    while (end < ids.size() && ids[end] == ids[i]) ++end;
    if (ids[i] < 0 || end - i >= 5) {
      flush();
      out += ids[i] < 0 ? str("[", ids[i], " * ", end - i, "]")
                        : str("[", tokenizer.piece(static_cast<int32_t>(ids[i])), " * ", end - i, "]");
    } else {
      plain.insert(plain.end(), ids.begin() + static_cast<long>(i), ids.begin() + static_cast<long>(end));
    }
    i = end;
  }
  flush();
  return out;
}

}  // namespace

std::string sample_dump(const Sample& sample, const Tokenizer& tokenizer) {
  const std::vector<int64_t> ids(sample.ids.begin(), sample.ids.end());
  std::vector<int64_t> labels = ids;
  for (size_t i = 0; i < labels.size(); ++i)
    if (!sample.trained[i]) labels[i] = -100;
  std::string out = "[INPUT_IDS] " + ids_text(ids) + "\n[INPUT] " + tokens_text(ids, tokenizer) + "\n[LABELS_IDS] " +
                    ids_text(labels) + "\n[LABELS] " + tokens_text(labels, tokenizer);
  if (sample.weights.empty()) return out;
  out += "\n[LOSS_SCALE] ";
  for (size_t i = 0; i < sample.weights.size();) {
    size_t end = i;
    while (end < sample.weights.size() && sample.weights[end] == sample.weights[i]) ++end;
    out += str(i ? ", " : "[", "[", sample.weights[i], " * ", end - i, "]");
    i = end;
  }
  return out + "]";
}

}  // namespace apus
