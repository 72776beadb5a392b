// SPDX-License-Identifier: Apache-2.0
#include "text/token_decoder.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/replace_all.h"
#include "text/byte_alphabet.h"
#include "text/in_order.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace apus {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return all;
}

// Removes the space before punctuation and English contractions. Decoders also turn " do not" into " don't".
std::string without_spaces(std::string text, bool do_not) {
  static constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules)
    if (do_not || std::string_view(from) != " do not") replace_all(text, from, to);
  return text;
}

class ByteLevel final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      if (!byte_alphabet::append_bytes(bytes, token)) bytes += token;
    tokens = {unicode::lossy(bytes)};
  }
};

class ByteFallback final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override {
    Tokens made;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (unicode::valid_prefix(bytes) == bytes.size())
        made.push_back(bytes);
      else
        made.insert(made.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      made.push_back(std::move(token));
    }
    flush();
    tokens = std::move(made);
  }
};

class Fuse final : public TokenDecoder {
 public:
  void apply(Tokens& tokens) const override { tokens = {joined(tokens)}; }
};

class StripPieces final : public TokenDecoder {
 public:
  StripPieces(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    const size_t n = content_.size();
    for (std::string& token : tokens) {
      size_t first = 0, last = token.size();
      for (int64_t i = 0; i < start_ && token.compare(first, n, content_) == 0; ++i) first += n;
      for (int64_t i = 0; i < stop_ && last >= first + n && token.compare(last - n, n, content_) == 0; ++i) last -= n;
      token = token.substr(first, last - first);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceInPieces final : public TokenDecoder {
 public:
  ReplaceInPieces(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string made;
      size_t done = 0;
      pattern_.each(token, [&](size_t begin, size_t end) {
        made.append(token, done, begin - done).append(content_);
        done = end;
      });
      token = made.append(token, done, std::string::npos);
    }
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Metaspace final : public TokenDecoder {
 public:
  Metaspace(std::string replacement, bool prepended) : replacement_(std::move(replacement)), prepended_(prepended) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepended_;
};

class WordPiece final : public TokenDecoder {
 public:
  WordPiece(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : " " + token;
      if (cleanup_) token = without_spaces(std::move(token), true);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class WordEnd final : public TokenDecoder {  // "BPEDecoder"
 public:
  explicit WordEnd(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class Ctc final : public TokenDecoder {
 public:
  Ctc(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    Tokens made;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i] == tokens[i - 1]) continue;
      std::string token = tokens[i];
      replace_all(token, pad_, "");
      if (cleanup_) {
        token = without_spaces(std::move(token), true);
        replace_all(token, delimiter_, " ");
      }
      if (!token.empty()) made.push_back(std::move(token));
    }
    tokens = std::move(made);
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

}  // namespace

int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::string clean_up_spaces(std::string text) { return without_spaces(std::move(text), false); }

std::unique_ptr<const TokenDecoder> make_decoder(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") {
    const std::string content = part.text("content");
    if (content.empty()) part.error("content", "one character is needed");
    return std::make_unique<StripPieces>(content, part.integer("start", 0), part.integer("stop", 0));
  }
  if (type == "Replace")
    return std::make_unique<ReplaceInPieces>(TextPattern(part.part("pattern")), part.text("content"));
  if (type == "Metaspace") {
    const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    return std::make_unique<Metaspace>(part.text("replacement", "▁"), scheme != "never");
  }
  if (type == "WordPiece") return std::make_unique<WordPiece>(part.text("prefix", "##"), part.flag("cleanup", true));
  if (type == "BPEDecoder") return std::make_unique<WordEnd>(part.text("suffix", "</w>"));
  if (type == "CTC")
    return std::make_unique<Ctc>(part.text("pad_token", "<pad>"), part.text("word_delimiter_token", "|"),
                                 part.flag("cleanup", true));
  if (type == "Sequence") return std::make_unique<InOrder<TokenDecoder, Tokens>>(part.list("decoders"), make_decoder);
  part.error("type", str("the decoder '", type,
                         "' is not known; known are ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, "
                         "WordPiece, BPEDecoder, CTC and Sequence"));
}

}  // namespace apus
