// SPDX-License-Identifier: Apache-2.0
// The BPE model of tokenizer.json, on characters (SentencePiece style) or on bytes (GPT-2 style).
#include <array>
#include <atomic>

#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/token_model.h"
#include "text/tokenizer_source.h"

namespace apus {
namespace {

constexpr std::string_view kSpaceMark = kMetaspace;

std::string byte_token(unsigned char byte) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

class Bpe final : public TokenModel {
 public:
  Bpe(const ModelSource& source, bool bytes);
  void encode(std::string_view piece, TokenSink& out) const override;
  int32_t size() const override { return std::max(vocabulary_.size(), verbatim_.size()); }
  bool has(int32_t id) const override { return vocabulary_.has(id) || verbatim_.has(id); }
  std::string_view raw(int32_t id) const override { return vocabulary_.has(id) ? vocabulary_[id] : verbatim_[id]; }
  bool works_on_bytes() const override { return bytes_; }
  std::string piece(int32_t id) const override;
  std::optional<int32_t> id(std::string_view piece) const override;

 private:
  void read_vocabulary(const ModelSource& source);
  void read_merges(const ModelSource& source);
  void add_merge(JsonCursor& cursor, std::string_view left, std::string_view right);
  int32_t find(std::string_view spelling) const;
  void prepare();

  void encode_word(std::string_view word, TokenSink& out) const;
  void apply_merges(std::string_view word, TokenSink& out) const;
  void apply_merges_to_many(std::string_view word, size_t n, TokenSink& out) const;
  // Calls emit(id, begin, end) for the symbols a word begins as.
  template <class Emit>
  void symbols(std::string_view word, Emit&& emit) const;
  template <class Emit>
  void decorated_symbols(std::string_view word, Emit&& emit) const;
  bool stays_whole(int32_t id) const;

  bool bytes_;
  bool byte_fallback_, fuse_unknown_, ignore_merges_;
  int32_t unknown_ = -1;
  std::string prefix_, suffix_;  // of symbols that continue, or end, a word
  Vocabulary vocabulary_;        // as bytes if bytes_
  // If bytes_: tokens not spelt in the byte alphabet, which no text gives.
  Vocabulary verbatim_;
  MergeTable merges_;
  std::array<int32_t, 256> single_;    // ids of one-byte symbols; -1 for none
  std::array<int32_t, 256> fallback_;  // ids of <0x00> ... <0xFF>
  WholeCharacters characters_;         // if simple_
  bool simple_ = false;                // bytes_, every byte has its symbol
  // No merge reaches over the front of a ▁ that follows something else.
  bool words_apart_ = true;
  // Whether the merges lead from a token's own text to that token. Found out when first asked;
  // all threads find the same.
  enum : uint8_t { kUnasked, kWhole, kSplit };
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

Bpe::Bpe(const ModelSource& source, bool bytes)
    : bytes_(bytes),
      byte_fallback_(source.flag("byte_fallback", false)),
      fuse_unknown_(source.flag("fuse_unk", false)),
      ignore_merges_(source.flag("ignore_merges", false)),
      prefix_(source.text("continuing_subword_prefix", "")),
      suffix_(source.text("end_of_word_suffix", "")) {
  if (source.has("dropout") && source.cursor("dropout").number() != 0)
    source.error("dropout", "dropout makes encoding random, which is not supported; set it to null");
  read_vocabulary(source);
  read_merges(source);
  if (source.has("unk_token")) {
    const std::string name = source.text("unk_token", "");
    unknown_ = id(name).value_or(-1);
    if (unknown_ < 0 && !name.empty()) source.error("unk_token", str("'", name, "' is not in the vocabulary"));
  }
  prepare();
}

void Bpe::read_vocabulary(const ModelSource& source) {
  JsonCursor cursor = source.cursor("vocab");
  const size_t length = source.find("vocab")->size();
  vocabulary_.reserve(length / 24, length / 2);
  std::string token;
  cursor.object([&](std::string_view key) {
    token.clear();
    const bool spelt = !bytes_ || byte_alphabet::append_bytes(token, key);
    if (!bytes_ || !spelt) token.assign(key);
    const int64_t id = cursor.integer();
    if (id < 0 || id > kMaxId) cursor.error(str("the id ", id, " is not between 0 and ", kMaxId));
    (spelt ? vocabulary_ : verbatim_).add(token, static_cast<int32_t>(id));
  });
  vocabulary_.finish();
  if (verbatim_.size() > 0) verbatim_.finish();
}

int32_t Bpe::find(std::string_view spelling) const {
  if (!bytes_) return vocabulary_.find(spelling);
  std::string raw;
  return byte_alphabet::append_bytes(raw, spelling) ? vocabulary_.find(raw) : verbatim_.find(spelling);
}

void Bpe::read_merges(const ModelSource& source) {
  JsonCursor cursor = source.cursor("merges");
  merges_.reserve(std::min(source.find("merges")->size() / 6 + 1, MergeTable::kMaxRules));
  std::string left, right;
  cursor.array([&] {
    if (cursor.peek() == '[') {
      cursor.expect('[');
      left.assign(cursor.string());
      cursor.expect(',');
      right.assign(cursor.string());
      cursor.expect(']');
      return add_merge(cursor, left, right);
    }
    const std::string_view rule = cursor.string();
    const size_t blank = rule.find(' ');
    if (blank == std::string_view::npos || rule.find(' ', blank + 1) != std::string_view::npos)
      cursor.error(str("a merge is two tokens with one space between, this is '", rule, "'"));
    add_merge(cursor, rule.substr(0, blank), rule.substr(blank + 1));
  });
}

void Bpe::add_merge(JsonCursor& cursor, std::string_view left, std::string_view right) {
  const auto known = [&](std::string_view token) {
    const int32_t id = find(token);
    if (id < 0)
      cursor.error(
          str("the merge '", left, " ", right, "' needs the token '", token, "', which is not in the vocabulary"));
    return id;
  };
  if (right.size() < prefix_.size()) cursor.error(str("the merge '", left, " ", right, "' is shorter than the prefix"));
  std::string merged(left);
  merged += right.substr(prefix_.size());
  if (merges_.size() >= MergeTable::kMaxRules) cursor.error(str("more than ", MergeTable::kMaxRules, " merges"));
  merges_.add(known(left), known(right), known(merged));
  if (right.starts_with(kSpaceMark) && !left.ends_with(kSpaceMark)) words_apart_ = false;
}

void Bpe::prepare() {
  words_apart_ = words_apart_ && !bytes_ && prefix_.empty() && suffix_.empty() && vocabulary_.find(kSpaceMark) >= 0;
  simple_ = bytes_ && prefix_.empty() && suffix_.empty();
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    const auto at = static_cast<size_t>(b);
    single_[at] = bytes_ || b < 128 ? vocabulary_.find({&c, 1}) : -1;
    fallback_[at] = find(byte_token(static_cast<unsigned char>(b)));
    if (single_[at] < 0) simple_ = false;
  }
  if (simple_) characters_.build(vocabulary_, merges_);
  whole_ = std::make_unique<std::atomic<uint8_t>[]>(static_cast<size_t>(vocabulary_.size()) + 1);
}

std::string Bpe::piece(int32_t id) const {
  if (!bytes_ || !vocabulary_.has(id)) return std::string(raw(id));
  std::string spelt;
  byte_alphabet::append(spelt, vocabulary_[id]);
  return spelt;
}

std::optional<int32_t> Bpe::id(std::string_view piece) const {
  const int32_t found = find(piece);
  return found < 0 ? std::nullopt : std::optional(found);
}

void Bpe::encode(std::string_view piece, TokenSink& out) const {
  if (ignore_merges_ && piece.size() <= vocabulary_.longest())
    if (const int32_t id = vocabulary_.find(piece); id >= 0) return out.add(id, 0, piece.size());
  if (!words_apart_) return encode_word(piece, out);
  const uint32_t base = out.base;
  for (size_t begin = 0; begin < piece.size();) {
    size_t end = begin;
    while (piece.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
    end = std::min(piece.find(kSpaceMark, end), piece.size());
    out.base = base + static_cast<uint32_t>(begin);
    encode_word(piece.substr(begin, end - begin), out);
    begin = end;
  }
  out.base = base;
}

void Bpe::encode_word(std::string_view word, TokenSink& out) const {
  if (word.size() <= vocabulary_.longest())
    if (const int32_t id = vocabulary_.find(word); id >= 0 && stays_whole(id)) return out.add(id, 0, word.size());
  apply_merges(word, out);
}

bool Bpe::stays_whole(int32_t id) const {
  auto& known = whole_[static_cast<size_t>(id)];
  uint8_t state = known.load(std::memory_order_relaxed);
  if (state == kUnasked) {
    std::vector<int32_t> ids;
    TokenSink out{ids};
    apply_merges(vocabulary_[id], out);
    state = ids.size() == 1 && ids[0] == id ? kWhole : kSplit;
    known.store(state, std::memory_order_relaxed);
  }
  return state == kWhole;
}

void Bpe::apply_merges(std::string_view word, TokenSink& out) const {
  int32_t id[kFewSymbols];
  uint32_t begin[kFewSymbols + 1];
  size_t n = 0;
  begin[0] = 0;
  symbols(word, [&](int32_t symbol, size_t, size_t to) {
    if (n < kFewSymbols) id[n] = symbol, begin[n + 1] = static_cast<uint32_t>(to);
    ++n;
  });
  if (n > kFewSymbols) return apply_merges_to_many(word, n, out);
  n = merge_few(merges_, id, out.spans ? begin : nullptr, n);
  if (!out.spans)
    out.ids.insert(out.ids.end(), id, id + n);
  else
    for (size_t i = 0; i < n; ++i) out.add(id[i], begin[i], begin[i + 1]);
}

void Bpe::apply_merges_to_many(std::string_view word, size_t n, TokenSink& out) const {
  Symbols row;
  row.id.reserve(n);
  row.begin.reserve(n + 1);
  row.begin.push_back(0);
  symbols(word, [&](int32_t symbol, size_t, size_t to) {
    row.id.push_back(symbol);
    row.begin.push_back(static_cast<uint32_t>(to));
  });
  merge(merges_, row);
  for (size_t i = 0; i < row.id.size(); ++i) out.add(row.id[i], row.begin[i], row.begin[i + 1]);
}

template <class Emit>
void Bpe::symbols(std::string_view word, Emit&& emit) const {
  if (!simple_) return decorated_symbols(word, emit);
  for (size_t i = 0; i < word.size();) {
    const auto lead = static_cast<unsigned char>(word[i]);
    const size_t length = std::min<size_t>(static_cast<size_t>(unicode::utf8_length(lead)), word.size() - i);
    if (const int32_t whole = length > 1 ? characters_.symbol(word, i, length) : -1; whole >= 0) {
      emit(whole, i, i + length);
      i += length;
      continue;
    }
    for (const size_t end = i + length; i < end; ++i) emit(single_[static_cast<unsigned char>(word[i])], i, i + 1);
  }
}

template <class Emit>
void Bpe::decorated_symbols(std::string_view word, Emit&& emit) const {
  size_t unknown_from = 0, unknown_to = 0;  // an unknown symbol that waits for its neighbour, if not empty
  const auto flush = [&] {
    if (unknown_to > unknown_from) emit(unknown_, unknown_from, unknown_to);
    unknown_from = unknown_to = 0;
  };
  std::string decorated;
  for (size_t begin = 0, end; begin < word.size(); begin = end) {
    end = begin + (bytes_ ? 1 : static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(word[begin]))));
    std::string_view symbol = word.substr(begin, end - begin);
    int32_t id = -1;
    const bool continues = begin > 0 && !prefix_.empty(), ends = end == word.size() && !suffix_.empty();
    if (continues || ends) {
      decorated.assign(continues ? prefix_ : "").append(symbol).append(ends ? suffix_ : "");
      symbol = decorated;
      id = vocabulary_.find(symbol);
    } else {
      id = symbol.size() == 1 ? single_[static_cast<unsigned char>(symbol[0])] : vocabulary_.find(symbol);
    }
    if (id >= 0) {
      flush();
      emit(id, begin, end);
      continue;
    }
    std::string spelt;
    if (bytes_) byte_alphabet::append(spelt, symbol), symbol = spelt;
    const auto known = [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; };
    if (byte_fallback_ && std::all_of(symbol.begin(), symbol.end(), known)) {
      for (size_t i = 0; i < symbol.size(); ++i)
        emit(fallback_[static_cast<unsigned char>(symbol[i])], std::min(begin + i, end), std::min(begin + i + 1, end));
      continue;
    }
    if (unknown_ < 0) continue;
    if (!fuse_unknown_) flush();
    if (unknown_to == unknown_from) unknown_from = begin;
    unknown_to = end;
  }
  flush();
}

}  // namespace

std::unique_ptr<const TokenModel> make_bpe(const ModelSource& source, bool bytes) {
  return std::make_unique<Bpe>(source, bytes);
}

}  // namespace apus
