// SPDX-License-Identifier: Apache-2.0
// The members of "model" by key, and the two simple models: WordPiece and WordLevel.
#include "text/token_model.h"

#include "text/vocabulary_model.h"

namespace apus {

ModelSource::ModelSource(std::string_view text, const std::string& name) : name_(name) {
  JsonCursor cursor(text, name + ": model");
  cursor.object([&](std::string_view key) {
    std::string owned(key);
    members_.emplace_back(std::move(owned), cursor.skip());
  });
}

std::optional<std::string_view> ModelSource::find(const std::string& key) const {
  for (const auto& [name, value] : members_)
    if (name == key && value != "null") return value;
  return std::nullopt;
}

void ModelSource::error(const std::string& key, std::string_view why) const {
  fail(Fault::Model, where(key), ": ", why);
}

JsonCursor ModelSource::cursor(const std::string& key) const {
  const auto value = find(key);
  if (!value) error(key, "is missing");
  return JsonCursor(*value, where(key));
}

std::string ModelSource::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? std::string(cursor(key).string()) : otherwise;
}

bool ModelSource::flag(const std::string& key, bool otherwise) const {
  const auto value = find(key);
  if (!value) return otherwise;
  if (*value != "true" && *value != "false") error(key, "true or false is needed");
  return *value == "true";
}

std::optional<int64_t> ModelSource::integer(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  return cursor(key).integer();
}

std::string model_type(const ModelSource& source) {
  if (source.has("type")) return source.text("type", "");
  if (source.has("merges")) return "BPE";  // old files do not say
  if (source.has("unk_id")) return "Unigram";
  if (source.has("max_input_chars_per_word")) return "WordPiece";
  return "WordLevel";
}

namespace {

class WordVocabulary : public VocabularyModel {
 public:
  explicit WordVocabulary(const ModelSource& source) {
    JsonCursor cursor = source.cursor("vocab");
    cursor.object([&](std::string_view key) {
      const std::string token(key);
      const int64_t id = cursor.integer();
      if (id < 0 || id > kMaxId) cursor.error(str("the id ", id, " is not between 0 and ", kMaxId));
      vocabulary_.add(token, static_cast<int32_t>(id));
    });
    vocabulary_.finish();
    unknown_ = vocabulary_.find(source.text("unk_token", "[UNK]"));
  }
};

class WordLevel final : public WordVocabulary {
 public:
  using WordVocabulary::WordVocabulary;
  void encode(std::string_view piece, TokenSink& out) const override {
    const int32_t id = vocabulary_.find(piece);
    out.add(id < 0 ? unknown(piece) : id, 0, piece.size());
  }
};

// The longest token at each place; one unknown token for a word that cannot be covered.
class WordPieceModel final : public WordVocabulary {
 public:
  explicit WordPieceModel(const ModelSource& source)
      : WordVocabulary(source), prefix_(source.text("continuing_subword_prefix", "##")) {
    longest_word_ = static_cast<size_t>(std::max<int64_t>(0, source.integer("max_input_chars_per_word").value_or(100)));
  }
  void encode(std::string_view piece, TokenSink& out) const override {
    size_t chars = 0;
    for (const char c : piece) chars += !unicode::is_continuation(c);
    if (chars > longest_word_) return out.add(unknown(piece), 0, piece.size());
    const size_t ids = out.ids.size();
    std::string token;
    for (size_t begin = 0; begin < piece.size();) {
      size_t end = std::min(piece.size(), begin + vocabulary_.longest());
      int32_t id = -1;
      for (; end > begin; --end) {
        if (end < piece.size() && unicode::is_continuation(piece[end])) continue;
        token.assign(begin > 0 ? prefix_ : "").append(piece.substr(begin, end - begin));
        if ((id = vocabulary_.find(token)) >= 0) break;
      }
      if (id < 0) {
        out.ids.resize(ids);
        if (out.spans) out.spans->resize(ids);
        return out.add(unknown(piece), 0, piece.size());
      }
      out.add(id, begin, end);
      begin = end;
    }
  }

 private:
  std::string prefix_;
  size_t longest_word_;
};

}  // namespace

std::unique_ptr<const TokenModel> make_word_piece(const ModelSource& source) {
  return std::make_unique<WordPieceModel>(source);
}
std::unique_ptr<const TokenModel> make_word_level(const ModelSource& source) {
  return std::make_unique<WordLevel>(source);
}

}  // namespace apus
