// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/byte_alphabet.h"
#include "text/normalizer.h"

namespace apus {
namespace {

using unicode::CharTable;

struct Found {
  Span span;
  bool match;
};
using Finds = std::vector<Found>;
// Finds matches in a text; the result covers it.
using Finder = std::function<void(std::string_view text, Finds& out)>;

enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

Behavior behavior_of(const JsonPart& part, const char* otherwise) {
  const std::string name = part.text("behavior", otherwise);
  if (name == "Removed") return Behavior::Removed;
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  part.error(
      "behavior",
      str("'", name, "' is not known; known are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"));
}

void add(Finds& out, size_t begin, size_t end, bool match) {
  out.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, match});
}

// What becomes of matches and the text between them.
Cuts arrange(const Finds& found, Behavior behavior) {
  Cuts cuts;
  bool before = false;
  switch (behavior) {
    case Behavior::Isolated:
      for (const Found& f : found) cuts.push_back(f.span);
      break;
    case Behavior::Removed:
      for (const Found& f : found)
        if (!f.match) cuts.push_back(f.span);
      break;
    case Behavior::Contiguous:
      for (const Found& f : found) {
        if (f.match == before && !cuts.empty())
          cuts.back().end = f.span.end;
        else
          cuts.push_back(f.span);
        before = f.match;
      }
      break;
    case Behavior::MergedWithPrevious:
      for (const Found& f : found) {
        if (f.match && !before && !cuts.empty())
          cuts.back().end = f.span.end;
        else
          cuts.push_back(f.span);
        before = f.match;
      }
      break;
    case Behavior::MergedWithNext:
      for (size_t i = found.size(); i-- > 0;) {
        if (found[i].match && !before && !cuts.empty())
          cuts.back().begin = found[i].span.begin;
        else
          cuts.push_back(found[i].span);
        before = found[i].match;
      }
      std::reverse(cuts.begin(), cuts.end());
      break;
  }
  return cuts;
}

class Split final : public PreTokenizer {
 public:
  Split(Finder finder, Behavior behavior, bool invert = false)
      : finder_(std::move(finder)), behavior_(behavior), invert_(invert) {}
  void apply(TokenText& text, Cuts& cuts, bool) const override {
    Cuts made;
    Finds found;
    for (const Span cut : cuts) {
      found.clear();
      finder_(std::string_view(text.text).substr(cut.begin, cut.end - cut.begin), found);
      if (invert_)
        for (Found& f : found) f.match = !f.match;
      for (const Span s : arrange(found, behavior_))
        if (s.end > s.begin) made.push_back({cut.begin + s.begin, cut.begin + s.end});
    }
    cuts = std::move(made);
  }

 private:
  Finder finder_;
  Behavior behavior_;
  bool invert_;
};

Finder by_pattern(std::shared_ptr<const TextPattern> pattern) {
  return [pattern](std::string_view text, Finds& out) {
    size_t done = 0;
    pattern->each(text, [&](size_t begin, size_t end) {
      if (begin > done) add(out, done, begin, false);
      add(out, begin, end, true);
      done = end;
    });
    if (done < text.size()) add(out, done, text.size(), false);
  };
}

Finder by_splitter(Splitter splitter) {
  return [splitter, &table = CharTable::get()](std::string_view text, Finds& out) {
    for (size_t i = 0; i < text.size();) {
      const size_t end = splitter(table, text, i);
      add(out, i, end, true);
      i = end;
    }
  };
}

// Every character for which `test(traits, c)` holds is a match of its own.
template <class Test>
Finder by_char(Test test) {
  return [test, &table = CharTable::get()](std::string_view text, Finds& out) {
    size_t done = 0;
    const char *base = text.data(), *end = base + text.size();
    for (const char* p = base; p < end;) {
      const auto begin = static_cast<size_t>(p - base);
      const char32_t c = unicode::next_char(p);
      if (!test(table[c], c)) continue;
      if (begin > done) add(out, done, begin, false);
      done = static_cast<size_t>(p - base);
      add(out, begin, done, true);
    }
    if (done < text.size()) add(out, done, text.size(), false);
  };
}

// \w+|[^\w\s]+
void words(std::string_view text, Finds& out) {
  const CharTable& table = CharTable::get();
  const auto kind = [&](char32_t c) { return table[c] & unicode::kWord ? 2 : table[c] & unicode::kSpace ? 0 : 1; };
  const char *base = text.data(), *end = base + text.size();
  for (const char* p = base; p < end;) {
    const auto begin = static_cast<size_t>(p - base);
    const int first = kind(unicode::next_char(p));
    for (const char* q = p; q < end && kind(unicode::next_char(q)) == first;) p = q;
    add(out, begin, static_cast<size_t>(p - base), first != 0);
  }
}

Finder fixed_length(size_t length) {
  return [length](std::string_view text, Finds& out) {
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      for (size_t n = 0; n < length && i < text.size(); ++n)
        i += static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(text[i])));
      add(out, begin, i, true);
    }
  };
}

bool is_punctuation(uint16_t traits, char32_t c) {
  return (c < 128 && std::ispunct(static_cast<int>(c))) || (traits & unicode::kPunctuation);
}

// Rewrites each piece by itself.
class Rewrite : public PreTokenizer {
 public:
  void apply(TokenText& text, Cuts& cuts, bool at_start) const final {
    TokenEdit edit(text);
    for (Span& cut : cuts) {
      const auto begin = static_cast<uint32_t>(edit.size());
      const bool first = text.tracked ? text.origin[cut.begin].begin == 0 : at_start && cut.begin == 0;
      rewrite(text.text, cut, first, edit);
      cut = {begin, static_cast<uint32_t>(edit.size())};
    }
    text = edit.take();
  }

 protected:
  virtual void rewrite(std::string_view text, Span cut, bool first, TokenEdit& edit) const = 0;
};

class PrefixSpace final : public Rewrite {
 protected:
  void rewrite(std::string_view text, Span cut, bool, TokenEdit& edit) const override {
    if (text[cut.begin] != ' ') edit.put(" ", cut.begin, cut.begin);
    edit.keep(cut.begin, cut.end);
  }
};

class SpellBytes final : public Rewrite {
 protected:
  void rewrite(std::string_view text, Span cut, bool, TokenEdit& edit) const override {
    std::string spelt;
    for (size_t i = cut.begin; i < cut.end; ++i) {
      spelt.clear();
      byte_alphabet::append(spelt, text.substr(i, 1));
      edit.put(spelt, i, i + 1);
    }
  }
};

enum class Scheme { Always, First, Never };

class MetaspaceRewrite final : public Rewrite {
 public:
  MetaspaceRewrite(std::string replacement, Scheme scheme) : replacement_(std::move(replacement)), scheme_(scheme) {}

 protected:
  void rewrite(std::string_view text, Span cut, bool first, TokenEdit& edit) const override {
    const bool wanted = scheme_ == Scheme::Always || (scheme_ == Scheme::First && first);
    if (wanted && text[cut.begin] != ' ' && text.compare(cut.begin, replacement_.size(), replacement_) != 0)
      edit.put(replacement_, cut.begin, cut.begin);
    for (size_t i = cut.begin; i < cut.end;) {
      if (text[i] == ' ') {
        edit.put(replacement_, i, i + 1);
        ++i;
        continue;
      }
      const size_t stop = std::min<size_t>(text.find(' ', i), cut.end);
      edit.keep(i, stop);
      i = stop;
    }
  }

 private:
  std::string replacement_;
  Scheme scheme_;
};

class Builder {
 public:
  explicit Builder(bool bytes_allowed) : bytes_allowed_(bytes_allowed) {}

  void add(const JsonPart& part, bool last) {
    const std::string type = part.type();
    if (type == "Sequence") {
      const auto parts = part.list("pretokenizers");
      for (size_t i = 0; i < parts.size(); ++i) add(parts[i], last && i + 1 == parts.size());
    } else if (type == "ByteLevel") {
      if (part.flag("add_prefix_space", true)) stage(std::make_unique<PrefixSpace>());
      if (part.flag("use_regex", true)) split(by_splitter(&split_gpt2), Behavior::Isolated, false, &split_gpt2);
      if (last && bytes_allowed_)
        made_.bytes = true;
      else
        stage(std::make_unique<SpellBytes>());
    } else if (type == "Split") {
      const Behavior behavior = behavior_of(part, "Isolated");
      const bool invert = part.flag("invert", false);
      auto pattern = std::make_shared<const TextPattern>(part.part("pattern"));
      const Splitter known = find_splitter(pattern->regex());
      const bool plain = behavior == Behavior::Isolated || (behavior == Behavior::Removed && invert);
      split(known ? by_splitter(known) : by_pattern(pattern), behavior, invert, known && plain ? known : nullptr);
    } else if (type == "Metaspace") {
      metaspace(part);
    } else {
      simple(type, part);
    }
  }
  PreTokenizers take() {
    made_.only = made_.stages.size() == 1 && made_.bytes ? splitter_ : nullptr;
    return std::move(made_);
  }

 private:
  void stage(std::unique_ptr<const PreTokenizer> made) { made_.stages.push_back(std::move(made)); }
  void split(Finder finder, Behavior behavior, bool invert = false, Splitter known = nullptr) {
    splitter_ = known;
    stage(std::make_unique<Split>(std::move(finder), behavior, invert));
  }

  void simple(const std::string& type, const JsonPart& part) {
    const auto space = [](uint16_t t, char32_t) { return (t & unicode::kSpace) != 0; };
    if (type == "Digits") {
      const bool single = part.flag("individual_digits", false);
      split(by_char([](uint16_t t, char32_t) { return (t & unicode::kNumber) != 0; }),
            single ? Behavior::Isolated : Behavior::Contiguous);
    } else if (type == "Punctuation") {
      split(by_char(is_punctuation), behavior_of(part, "Isolated"));
    } else if (type == "Whitespace") {
      split(words, Behavior::Removed, true);
    } else if (type == "WhitespaceSplit") {
      split(by_char(space), Behavior::Removed);
    } else if (type == "BertPreTokenizer") {
      split(by_char(space), Behavior::Removed);
      split(by_char(is_punctuation), Behavior::Isolated);
    } else if (type == "CharDelimiterSplit") {
      const std::string text = part.text("delimiter");
      const char* p = text.data();
      if (text.empty()) part.error("delimiter", "one character is needed");
      split(by_char([c = unicode::next_char(p)](uint16_t, char32_t other) { return c == other; }), Behavior::Removed);
    } else if (type == "UnicodeScripts") {
      const Json runs = {{"Regex", script_runs()}};
      split(by_pattern(std::make_shared<const TextPattern>(JsonPart(runs, part.where()))), Behavior::Removed, true);
    } else if (type == "FixedLength") {
      const int64_t length = part.integer("length", 5);
      if (length < 1) part.error("length", "must be at least 1");
      split(fixed_length(static_cast<size_t>(length)), Behavior::Isolated);
    } else {
      part.error(
          "type",
          str("the pre-tokenizer '", type,
              "' is not known; known are ByteLevel, Split, Metaspace, Digits, Punctuation, "
              "Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, UnicodeScripts, FixedLength and "
              "Sequence"));
    }
  }

  void metaspace(const JsonPart& part) {
    const std::string replacement = part.text("replacement", "▁");
    if (replacement.empty()) part.error("replacement", "one character is needed");
    const std::string scheme = part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      part.error("prepend_scheme", str("'", scheme, "' is not known; known are always, first, never"));
    made_.by_origin |= scheme == "first";
    stage(std::make_unique<MetaspaceRewrite>(replacement, scheme == "always"  ? Scheme::Always
                                                          : scheme == "first" ? Scheme::First
                                                                              : Scheme::Never));
    if (!part.flag("split", true)) return;
    const char* p = replacement.data();
    split(by_char([c = unicode::next_char(p)](uint16_t, char32_t other) { return c == other; }),
          Behavior::MergedWithNext);
  }

  bool bytes_allowed_;
  Splitter splitter_ = nullptr;
  PreTokenizers made_;
};

}  // namespace

Cuts PreTokenizers::apply(TokenText& text, bool at_start) const {
  Cuts cuts;
  if (!text.text.empty()) cuts.push_back({0, static_cast<uint32_t>(text.text.size())});
  for (const auto& stage : stages) stage->apply(text, cuts, at_start);
  return cuts;
}

PreTokenizers make_pre_tokenizers(const JsonPart* part, bool bytes_allowed) {
  Builder builder(bytes_allowed);
  if (part) builder.add(*part, true);
  return builder.take();
}

}  // namespace apus
