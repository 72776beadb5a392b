// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace apus {
namespace {

// One call of encode.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, bool split_special, bool spans_wanted)
      : parts_(parts), split_special_(split_special), spans_wanted_(spans_wanted) {}

  // `text` is valid UTF-8. Tokens of the post-processor stand outside.
  void run(std::string_view text) {
    ids.reserve(text.size() / 4 + 16);
    parts_.raw_finder.split(
        text, split_special_, [&](size_t begin, size_t end) { segment(text.substr(begin, end - begin), begin); },
        [&](const AddedToken& token, size_t begin, size_t end) { add(token.id, begin, end); });
  }

  std::vector<int32_t> ids;
  std::vector<Span> spans;

 private:
  void add(int32_t id, size_t begin, size_t end) {
    ids.push_back(id);
    if (spans_wanted_) spans.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  TokenSink out() { return {ids, spans_wanted_ ? &spans : nullptr}; }

  // Text between added tokens.
  void segment(std::string_view text, size_t at) {
    const bool as_it_is = !parts_.normalizer || parts_.normalizer->leaves(text);
    if (as_it_is && parts_.pre_tokenizers.only && parts_.normalized_finder.empty()) {
      const size_t first = spans.size();
      cut_and_encode(text);
      for (size_t i = first; i < spans.size(); ++i) spans[i] = whole_characters(text, spans[i], at);
      return;
    }
    TokenText owned = TokenText::of(text, at, spans_wanted_ || parts_.pre_tokenizers.by_origin);
    if (!as_it_is) parts_.normalizer->apply(owned);
    if (parts_.normalized_finder.empty()) return normalized(std::move(owned), at == 0);
    parts_.normalized_finder.split(
        owned.text, split_special_,
        [&](size_t begin, size_t end) { normalized(owned.slice(begin, end), at == 0 && begin == 0); },
        [&](const AddedToken& token, size_t begin, size_t end) {
          const Span from = source(owned, {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
          add(token.id, from.begin, from.end);
        });
  }

  void normalized(TokenText text, bool at_start) {
    const size_t first = spans.size();
    if (parts_.pre_tokenizers.only) {
      cut_and_encode(text.text);
    } else {
      const Cuts cuts = parts_.pre_tokenizers.apply(text, at_start);
      TokenSink to = out();
      for (const Span cut : cuts) {
        to.base = cut.begin;
        parts_.model->encode(std::string_view(text.text).substr(cut.begin, cut.end - cut.begin), to);
      }
    }
    for (size_t i = first; i < spans.size(); ++i) spans[i] = source(text, spans[i]);
  }

  void cut_and_encode(std::string_view text) {
    const auto& table = unicode::CharTable::get();
    const Splitter splitter = parts_.pre_tokenizers.only;
    const TokenModel& model = *parts_.model;
    TokenSink to = out();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = splitter(table, text, begin);
      to.base = static_cast<uint32_t>(begin);
      model.encode(text.substr(begin, end - begin), to);
      begin = end;
    }
  }

  // The input that a span of a rewritten text stands for.
  static Span source(const TokenText& text, Span span) {
    if (!text.tracked) return {0, 0};
    const size_t n = text.origin.size(), begin = std::min<size_t>(span.begin, n - 1);
    const size_t last = span.end > span.begin ? std::min<size_t>(span.end, n) - 1 : begin;
    return {text.origin[begin].begin, std::max(text.origin[begin].begin, text.origin[last].end)};
  }
  static Span whole_characters(std::string_view text, Span span, size_t at) {
    while (span.begin > 0 && unicode::is_continuation(text[span.begin])) --span.begin;
    while (span.end < text.size() && unicode::is_continuation(text[span.end])) ++span.end;
    return {static_cast<uint32_t>(span.begin + at), static_cast<uint32_t>(span.end + at)};
  }

  const TokenizerParts& parts_;
  bool split_special_, spans_wanted_;
};

// For each byte of lossy(text), and its end, the byte of `text` it comes from.
std::vector<uint32_t> lossy_source(std::string_view text) {
  std::vector<uint32_t> from;
  for (size_t i = 0; i < text.size();) {
    const int n = unicode::sequence(text.substr(i));
    const size_t made = n > 0 ? static_cast<size_t>(n) : 3;  // U+FFFD has three bytes
    for (size_t k = 0; k < made; ++k) from.push_back(static_cast<uint32_t>(i + (n > 0 ? k : 0)));
    i += static_cast<size_t>(std::abs(n));
  }
  from.push_back(static_cast<uint32_t>(text.size()));
  return from;
}

constexpr size_t kMaxText = size_t{1} << 31;

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  return std::make_shared<const Tokenizer>(read_tokenizer(path));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_file(std::string_view bytes, const std::string& name,
                                                      std::string_view config) {
  return std::make_shared<const Tokenizer>(read_tokenizer_file(bytes, name, config));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view tokenizer, std::string_view config,
                                                      const std::string& name) {
  return std::make_shared<const Tokenizer>(read_tokenizer(tokenizer, config, name));
}

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, bool split_special) const {
  require(text.size() < kMaxText, Fault::Data, "a text of ", text.size(), " bytes; at most ", kMaxText - 1,
          " can be tokenised at once");
  Encoding encoding(*parts_, split_special, false);
  if (add_special) encoding.ids = parts_->marks.before;
  if (unicode::valid_prefix(text) == text.size())
    encoding.run(text);
  else
    encoding.run(unicode::lossy(text));
  const std::vector<int32_t>& after = parts_->marks.after;
  if (add_special) encoding.ids.insert(encoding.ids.end(), after.begin(), after.end());
  return std::move(encoding.ids);
}

const Tokenizer::Marks& Tokenizer::marks(bool pair) const {
  if (!pair) return parts_->marks;
  require(parts_->of_pair.has_value(), Fault::Model,
          "tokenizer.json does not say how two texts are joined (post_processor: pair)");
  return *parts_->of_pair;
}

std::vector<Tokenizer::Piece> Tokenizer::encode_offsets(std::string_view text, bool add_special,
                                                        bool split_special) const {
  require(text.size() < kMaxText, Fault::Data, "a text of ", text.size(), " bytes; at most ", kMaxText - 1,
          " can be tokenised at once");
  Encoding encoding(*parts_, split_special, true);
  if (unicode::valid_prefix(text) == text.size()) {
    encoding.run(text);
  } else {
    encoding.run(unicode::lossy(text));
    const std::vector<uint32_t> from = lossy_source(text);
    for (Span& span : encoding.spans) span = {from[span.begin], from[span.end]};
  }
  std::vector<Piece> pieces;
  pieces.reserve(encoding.ids.size() + 2);
  const auto size = static_cast<uint32_t>(text.size());
  if (add_special)
    for (const int32_t id : parts_->marks.before) pieces.push_back({id, 0, 0});
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    pieces.push_back({encoding.ids[i], encoding.spans[i].begin, encoding.spans[i].end});
  if (add_special)
    for (const int32_t id : parts_->marks.after) pieces.push_back({id, size, size});
  return pieces;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special, std::optional<bool> clean_up) const {
  const TokenizerParts& p = *parts_;
  std::string text;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const AddedToken* added = p.added_token(id);
    if (added ? skip_special && added->special : !p.model->has(id)) continue;
    if (p.byte_decoder)
      text += added ? std::string_view(added->bytes) : p.model->raw(id);
    else
      tokens.push_back(added ? added->shown : p.model->piece(id));
  }
  if (p.byte_decoder) {
    if (unicode::valid_prefix(text) != text.size()) text = unicode::lossy(text);
  } else {
    if (p.decoder) p.decoder->apply(tokens);
    for (size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !p.decoder ? " " : "") + tokens[i];
  }
  // Where tokens are bytes the spaces are the text's own, whatever tokenizer_config.json says (Llama 3's asks for it):
  // "a != b" would become "a!= b".
  return clean_up.value_or(p.clean_up && !p.byte_decoder) ? clean_up_spaces(std::move(text)) : text;
}

std::string Tokenizer::piece(int32_t id) const {
  if (const AddedToken* added = parts_->added_token(id)) return added->content;
  return parts_->model->has(id) ? parts_->model->piece(id) : std::string();
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const TokenizerParts& p = *parts_;
  const AddedToken* added = p.added_token(id);
  if (added) return p.byte_decoder ? added->bytes : added->shown;
  if (!p.model->has(id)) return {};
  const std::string_view raw = p.model->raw(id);
  if (p.model->works_on_bytes()) return std::string(raw);
  if (const int byte = byte_of(raw); byte >= 0) return std::string(1, static_cast<char>(byte));
  static constexpr std::string_view kMetaspace = "▁";
  std::string text;
  for (size_t i = 0; i < raw.size();) {
    const bool space = raw.substr(i).starts_with(kMetaspace);
    text += space ? ' ' : raw[i];
    i += space ? kMetaspace.size() : 1;
  }
  return text;
}

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  const auto it = parts_->added_id.find(std::string(token));
  return it != parts_->added_id.end() ? std::optional(it->second) : parts_->model->id(token);
}

int32_t Tokenizer::vocab_size() const { return parts_->size; }
bool Tokenizer::has(int32_t id) const { return is_added(id) || parts_->model->has(id); }
bool Tokenizer::is_added(int32_t id) const { return parts_->added_token(id) != nullptr; }
bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_->added_token(id);
  return added && added->special;
}

const std::map<std::string, std::string>& Tokenizer::special_tokens() const { return parts_->special_tokens; }
const std::vector<std::string>& Tokenizer::additional_special_tokens() const {
  return parts_->additional_special_tokens;
}
int64_t Tokenizer::model_max_length() const { return parts_->model_max_length; }

std::string Tokenizer::special_token(const std::string& name) const {
  const auto it = parts_->special_tokens.find(name);
  return it == parts_->special_tokens.end() ? std::string() : it->second;
}

std::optional<int32_t> Tokenizer::special_id(const std::string& name) const {
  const std::string token = special_token(name);
  return token.empty() ? std::nullopt : id(token);
}

std::string Tokenizer::normalize(std::string_view text) const {
  TokenText owned = TokenText::of(unicode::lossy(text), 0, false);
  if (parts_->normalizer) parts_->normalizer->apply(owned);
  return owned.text;
}

std::vector<std::string> Tokenizer::pre_tokenize(std::string_view text) const {
  TokenText owned = TokenText::of(unicode::lossy(text), 0, true);
  if (parts_->normalizer) parts_->normalizer->apply(owned);
  std::vector<std::string> pieces;
  for (const Span cut : parts_->pre_tokenizers.apply(owned, true))
    pieces.push_back(owned.text.substr(cut.begin, cut.end - cut.begin));
  return pieces;
}

}  // namespace apus
