// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest.h"
#include "text/byte_alphabet.h"
#include "text/in_order.h"
#include "text/regex.h"

namespace apus {

TextPattern::TextPattern(const JsonPart& part) : where_(part.where()) {
  if (part.has("String")) {
    string_ = part.text("String");
  } else if (part.has("Regex")) {
    regex_ = part.text("Regex");
    compiled_ = std::make_unique<Regex>(regex_, part.where() + ".Regex");
  } else {
    fail(Fault::Model, part.where(), ": a pattern is {\"String\": ...} or {\"Regex\": ...}");
  }
}
TextPattern::~TextPattern() = default;
TextPattern::TextPattern(TextPattern&&) noexcept = default;

std::optional<std::pair<size_t, size_t>> TextPattern::find(std::string_view text, size_t from) const {
  if (compiled_) return compiled_->find(text, from);
  const size_t at = text.find(string_, from);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair{at, at + string_.size()};
}

namespace {

using unicode::CharTable;
using unicode::Form;

class NormalForm final : public Normalizer {
 public:
  explicit NormalForm(Form form) : form_(form) {}
  bool leaves(std::string_view text) const override { return unicode::is_normal(text, form_); }
  void apply(TokenText& text) const override {
    if (leaves(text.text)) return;
    TokenEdit edit(text);
    const std::string_view all = text.text;
    for (size_t i = 0; i < all.size();) {
      const size_t n = unicode::normal_boundary(all.substr(i), form_);
      const std::string_view cluster = all.substr(i, n);
      if (unicode::is_normal(cluster, form_))
        edit.keep(i, i + n);
      else
        edit.put(unicode::normalize(cluster, form_), i, i + n);
      i += n;
    }
    text = edit.take();
  }

 private:
  Form form_;
};

// Rewrites character by character.
class PerChar final : public Normalizer {
 public:
  using Rewrite = std::function<void(std::string& out, char32_t c)>;  // appends what stands for c
  explicit PerChar(Rewrite rewrite) : rewrite_(std::move(rewrite)) {}
  void apply(TokenText& text) const override {
    TokenEdit edit(text);
    std::string out;
    const char *begin = text.text.data(), *end = begin + text.text.size();
    for (const char* p = begin; p < end;) {
      const auto from = static_cast<size_t>(p - begin);
      out.clear();
      rewrite_(out, unicode::next_char(p));
      const auto to = static_cast<size_t>(p - begin);
      if (std::string_view(text.text).substr(from, to - from) == out)
        edit.keep(from, to);
      else
        edit.put(out, from, to);
    }
    text = edit.take();
  }

 private:
  Rewrite rewrite_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(TokenText& text) const override {
    const CharTable& table = CharTable::get();
    const char *begin = text.text.data(), *end = begin + text.text.size(), *first = begin, *last = end;
    for (const char* p = first; left_ && p < last; first = p)
      if (!(table[unicode::next_char(p)] & unicode::kSpace)) break;
    for (const char* p = last; right_ && p > first; last = p)
      if (!(table[unicode::previous_char(p)] & unicode::kSpace)) break;
    if (first == begin && last == end) return;
    TokenEdit edit(text);
    edit.keep(static_cast<size_t>(first - begin), static_cast<size_t>(last - begin));
    text = edit.take();
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string what) : what_(std::move(what)) {}
  void apply(TokenText& text) const override {
    if (text.text.empty()) return;
    TokenEdit edit(text);
    edit.put(what_, 0, 0);
    edit.keep(0, text.text.size());
    text = edit.take();
  }

 private:
  std::string what_;
};

class Replace final : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(TokenText& text) const override {
    TokenEdit edit(text);
    size_t done = 0;
    pattern_.each(text.text, [&](size_t begin, size_t end) {
      edit.keep(done, begin);
      edit.put(content_, begin, end);
      done = end;
    });
    if (done == 0 && edit.size() == 0) return;
    edit.keep(done, text.text.size());
    text = edit.take();
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Chain final : public InOrder<Normalizer, TokenText> {
 public:
  using InOrder::InOrder;
  bool leaves(std::string_view text) const override {
    for (const auto& step : steps_)
      if (!step->leaves(text)) return false;
    return true;
  }
};

std::unique_ptr<const Normalizer> per_char(PerChar::Rewrite rewrite) {
  return std::make_unique<PerChar>(std::move(rewrite));
}

std::unique_ptr<const Normalizer> lowercase() {
  return per_char([](std::string& out, char32_t c) { unicode::append_lower(out, c); });
}

std::unique_ptr<const Normalizer> without(uint16_t traits) {
  return per_char([traits, &table = CharTable::get()](std::string& out, char32_t c) {
    if (!(table[c] & traits)) unicode::append(out, c);
  });
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::unique_ptr<const Normalizer> bert(const JsonPart& part) {
  std::vector<std::unique_ptr<const Normalizer>> steps;
  const bool lower = part.flag("lowercase", true);
  if (part.flag("clean_text", true))
    steps.push_back(per_char([&table = CharTable::get()](std::string& out, char32_t c) {
      const bool blank = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == unicode::kReplacement || ((table[c] & unicode::kControl) && !blank)) return;
      if (blank || (table[c] & unicode::kSpace))
        out += ' ';
      else
        unicode::append(out, c);
    }));
  if (part.flag("handle_chinese_chars", true))
    steps.push_back(per_char([](std::string& out, char32_t c) {
      if (is_ideograph(c))
        out += ' ', unicode::append(out, c), out += ' ';
      else
        unicode::append(out, c);
    }));
  if (part.flag("strip_accents", lower)) {
    steps.push_back(std::make_unique<NormalForm>(Form::Nfd));
    steps.push_back(without(unicode::kNonspacing));
  }
  if (lower) steps.push_back(lowercase());
  return std::make_unique<Chain>(std::move(steps));
}

void nmt(std::string& out, char32_t c) {
  const bool dropped = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  const bool blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  if (blank)
    out += ' ';
  else if (!dropped)
    unicode::append(out, c);
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "NFC") return std::make_unique<NormalForm>(Form::Nfc);
  if (type == "NFD") return std::make_unique<NormalForm>(Form::Nfd);
  if (type == "NFKC") return std::make_unique<NormalForm>(Form::Nfkc);
  if (type == "NFKD") return std::make_unique<NormalForm>(Form::Nfkd);
  if (type == "Lowercase") return lowercase();
  if (type == "Strip") return std::make_unique<Strip>(part.flag("strip_left", true), part.flag("strip_right", true));
  if (type == "StripAccents") return without(unicode::kMark);
  if (type == "Prepend") return std::make_unique<Prepend>(part.text("prepend"));
  if (type == "Replace") return std::make_unique<Replace>(TextPattern(part.part("pattern")), part.text("content"));
  if (type == "Precompiled") return make_charsmap(part);
  if (type == "BertNormalizer") return bert(part);
  if (type == "Nmt") return per_char(nmt);
  if (type == "ByteLevel")
    return per_char([](std::string& out, char32_t c) {
      std::string bytes;
      unicode::append(bytes, c);
      byte_alphabet::append(out, bytes);
    });
  if (type == "Sequence") return std::make_unique<Chain>(part.list("normalizers"), make_normalizer);
  part.error("type", str("the normalizer '", type,
                         "' is not known; known are NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, "
                         "Prepend, Replace, Precompiled, BertNormalizer, Nmt, ByteLevel and Sequence"));
}

}  // namespace apus
