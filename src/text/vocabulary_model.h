// SPDX-License-Identifier: Apache-2.0
// What the models share that spell their tokens as the text has them: WordLevel, WordPiece, Unigram.
#pragma once

#include "base/error.h"
#include "text/token_model.h"
#include "text/vocabulary.h"

namespace apus {

class VocabularyModel : public TokenModel {
 public:
  int32_t size() const override { return vocabulary_.size(); }
  bool has(int32_t id) const override { return vocabulary_.has(id); }
  std::string_view raw(int32_t id) const override { return vocabulary_[id]; }
  std::string piece(int32_t id) const override { return std::string(vocabulary_[id]); }
  std::optional<int32_t> id(std::string_view piece) const override {
    const int32_t found = vocabulary_.find(piece);
    return found < 0 ? std::nullopt : std::optional(found);
  }

 protected:
  // The token that stands for what no other one spells. Fault::Data where the model has none.
  int32_t unknown(std::string_view piece) const {
    require(unknown_ >= 0, Fault::Data, "the tokenizer has no token for '", piece.substr(0, 80),
            "' and no unknown-token");
    return unknown_;
  }
  Vocabulary vocabulary_;
  int32_t unknown_ = -1;
};

}  // namespace apus
