// SPDX-License-Identifier: Apache-2.0
// From canonical rows to samples: template, tokens, which of them are learnt and how much, truncation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/encode/loss_scale.h"
#include "data/encode/sample.h"
#include "data/rows/dialogue.h"
#include "data/rows/row.h"
#include "text/chat_template.h"
#include "text/marked_text.h"
#include "text/tokenizer.h"

namespace apus {

// What samples a row gives: one, a pair, a group, a prompt. An algorithm decides.
using EncodeRow = std::function<Samples(const Row& row)>;

enum class Truncation { Delete, Left, Right, Split };
Truncation truncation_named(const std::string& name);  // Fault::Usage

class MediaReader;
struct RowMedium;  // data/encode/row_media.h

struct EncodeOptions {
  bool use_chat_template = true;      // false: the bare text and an end token
  bool encoder = false;               // the model is one (text/marked_text.h)
  std::optional<std::string> system;  // of rows without one
  int64_t max_length = 0;             // 0: no limit
  int64_t vocabulary = 0;             // the model's tokens are below this; 0: not known
  Truncation truncation = Truncation::Delete;
  std::string loss_scale = "default";
  // Weights that are all 0 or 1 are said by the labels alone, without factors; absent: if there are no other weights.
  std::optional<bool> binary_loss_scale;
  bool add_non_thinking_prefix = true;
  bool ignore_empty_think = true;  // of templates that can think or not
  std::optional<bool> preserve_thinking;
  Json chat_template_kwargs;
  std::set<int32_t> uncut;  // truncation keeps these, and the tokens of media
  Json media;               // how media are prepared, for made_with(); null: the model reads text only
};

class Encoder {
 public:
  // `media` null: the model reads text only.
  Encoder(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat, EncodeOptions options,
          std::shared_ptr<const MediaReader> media = nullptr);

  // One sample, or several with Truncation::Split. Throws RowError for a row that gives none. Thread-safe.
  std::vector<Sample> encode(const Row& row) const;
  // The row as a question: up to the turn that is to be answered, answers at its end left out. Nothing is learnt;
  // Sample::row holds all columns. Throws RowError for one that is longer than max_length, unless it may be cut.
  Sample encode_prompt(const Row& row) const;
  // A talk of the row (data/rows/documents.h) as a text that is read and not continued: all of it, and where it ends
  // with a question the call for an answer; without a template its texts and an end mark. Nothing is learnt. `words`
  // are told to the template besides, `key` is the row's column, for errors.
  Sample encode_text(const Row& row, const Json& talk, const Json& words = nullptr,
                     const std::string& key = "messages") const;
  // Another conversation of the row ("rejected_messages") in the same way.
  Sample encode_messages(const Row& row, const Json& messages) const;

  // Makes the contents of a sample's media that was stored without them.
  void load_media(Sample& sample) const;

  using Remark = std::function<void(const Origin&, const std::string&)>;
  void on_remark(Remark remark) { remark_ = std::move(remark); }  // told of rows that are used but look wrong

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const EncodeOptions& options() const { return options_; }
  // All that the samples depend on, by the names of the options: tells whether a cache was made in the same way.
  Json made_with() const;

 private:
  // Of the columns of `row`; tags in `messages` become the texts that stand for them, and those that lack are added.
  std::vector<RowMedium> read_media(const Row& row, Json& messages) const;
  Sample already_encoded(const Row& row) const;
  Sample bare(const Row& row, const Json& messages) const;
  Sample templated(const Row& row, const Json& messages) const;
  Json prepared(const Json& messages) const;
  Dialogue dialogue_of(const Row& row, const Json& messages, const Json* tools) const;
  std::string prompt_text(const Row& row) const;
  MarkedText text_ids(const Row& row, const Json& messages, const Json& words, size_t second) const;
  // The whole text in stretches that count alike; `said`: by the assistant.
  struct Stretch {
    size_t begin, end;
    float weight;
    bool said;
  };
  std::vector<Stretch> weighed(const Dialogue& dialogue) const;
  void tokenize(const Dialogue& dialogue, bool blocks, Sample& sample) const;
  std::vector<Sample> fitted(Sample sample, const Row& row) const;
  void remark_cut_beginning(const Row& row) const;
  void add_extras(Sample& sample, const Row& row) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  EncodeOptions options_;
  std::shared_ptr<const MediaReader> media_;
  LossScale scale_;
  bool hybrid_ = false, binary_ = true;
  Remark remark_;
};

// What the first sample of a run looks like, for the log: [INPUT_IDS], [INPUT], [LABELS_IDS], [LABELS], [LOSS_SCALE].
std::string sample_dump(const Sample& sample, const Tokenizer& tokenizer);

}  // namespace apus
