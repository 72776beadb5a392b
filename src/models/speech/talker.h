// SPDX-License-Identifier: Apache-2.0
// What says the codes of a voice, as modules, and what it reads before it begins.
#pragma once

#include <optional>
#include <vector>

#include "models/decoder.h"
#include "models/spec/speech_spec.h"
#include "models/towers/parts.h"

namespace apus {

// What is to be spoken, as the model that answers knows it. Rows are its embeddings.
struct Spoken {
  std::vector<int32_t> tokens;  // of the whole chat, with the answer behind it but for its last mark
  int64_t prompt = 0;           // so many of them are not the answer's
  at::Tensor row_TD;
  // Where there are media: which tokens stand for them, and what all tokens were at SpeechSpec::sees_layer.
  std::vector<bool> is_medium;
  at::Tensor seen_TD;
  // Of a talker that reads the chat: what the model that answers made of each token in the end.
  at::Tensor hidden_TD = {};
};

// The voice of a recording: a row of the talker's width. Where its words are known: these, and its frames of codes,
// which speech then goes on from.
struct LearntVoice {
  at::Tensor row_1D;
  std::vector<int64_t> text = {};
  at::Tensor code_FG = {};
};

// The same where no model answers: words of instructions, and of a text as an answer in a chat, whose turn begins with
// three marks and is followed by five.
struct LoneText {
  std::vector<int64_t> instructions, text;
  int64_t language = -1, voice = -1;  // words of the talker; -1: none
  const LearntVoice* like = nullptr;  // instead of a word
};

// What the talker reads: rows of its own width, or those that for_first() makes such.
struct TalkerPrompt {
  at::Tensor row_TD;
  at::Tensor position;        // [3, T]; undefined: each stands behind the one before it
  std::vector<int64_t> from;  // which tokens of the chat the first rows are of; those behind them are of none
  // The text that is left: added to each further frame, one row each, and this one when there are no more.
  at::Tensor later_TD, none_D;
};

class Talker {
 public:
  explicit Talker(const SpeechSpec& spec);
  const SpeechSpec& spec() const { return spec_; }
  Decoder& says_first() { return first_; }
  Decoder* says_rest() { return rest_ ? &*rest_ : nullptr; }  // null: a frame is one code
  const Decoder& says_first() const { return first_; }
  const Decoder* says_rest() const { return rest_ ? &*rest_ : nullptr; }
  TowerParts& parts() { return parts_; }

  // `mark_3D`: the embeddings of SpeechSpec::text's begin (or of the voice, where that is a word of the text), end and
  // none. No rows where nothing was answered.
  TalkerPrompt prompt(const Spoken& what, const at::Tensor& mark_3D, int64_t voice) const;
  TalkerPrompt prompt(const LoneText& what) const;
  // Of code i of a frame.
  at::Tensor code_row(int64_t i, const at::Tensor& id_T) const;
  at::Tensor rest_logits(int64_t i, const at::Tensor& hidden_TD) const;
  // Rows of a prompt or of codes as the talker reads them, and rows of its width as the finisher does.
  at::Tensor for_first(const at::Tensor& row_TD) const;
  at::Tensor for_rest(const at::Tensor& row_TD) const;

 private:
  at::Tensor frame_rows(const at::Tensor& code_FG) const;
  TalkerPrompt whole_chat(const Spoken& what, const at::Tensor& mark_3D) const;
  at::Tensor projected(const at::Tensor& row_TD, const std::string& name) const;

  const SpeechSpec& spec_;
  Decoder first_;
  std::optional<Decoder> rest_;
  TowerParts parts_;
};

}  // namespace apus
