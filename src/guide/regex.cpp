// SPDX-License-Identifier: Apache-2.0
#include "guide/regex.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace apus::guide {

namespace {

constexpr size_t kLongest = 64 << 10;
constexpr int kDeepestGroups = 100;
constexpr uint32_t kMostRepeats = 1'000'000;

const CharSet kDigit = {{'0', '9'}}, kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
              kSpace = {{'\t', '\r'}, {' ', ' '}};

Expr look(bool before, bool absent, Expr at) {
  Expr e{.kind = Expr::Look, .before = before, .absent = absent};
  e.parts.push_back(std::move(at));
  return e;
}

// One side of a border is part of a word, the other is not.
Expr border(bool is_one) {
  Expr either{.kind = Expr::Choice};
  for (const bool after_word : {true, false}) {
    Expr way{.kind = Expr::Sequence};
    way.parts.push_back(look(/*before=*/true, !after_word, {.kind = Expr::Chars, .set = kWord}));
    way.parts.push_back(look(/*before=*/false, after_word == is_one, {.kind = Expr::Chars, .set = kWord}));
    either.parts.push_back(std::move(way));
  }
  return either;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : all_(text), where_(where) {
    require(text.size() <= kLongest, Fault::Usage, where, ": the pattern is longer than ", kLongest >> 10, " KiB");
    require(unicode::valid_prefix(text) == text.size(), Fault::Usage, where, ": the pattern is not UTF-8");
  }
  Expr parse() {
    Expr e = choice(0);
    if (at_ < all_.size()) bad("a ')' without its '('");
    return e;
  }

 private:
  [[noreturn]] void bad(std::string_view why) const {
    fail(Fault::Usage, where_, ": the pattern ", all_.substr(0, 200), " cannot be used: ", why, ", at byte ", at_);
  }
  bool more() const { return at_ < all_.size(); }
  bool eat(std::string_view text) {
    if (!all_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t character() {
    if (!more()) bad("it ends too early");
    const char* p = all_.data() + at_;
    const char32_t c = unicode::next_char(p);
    at_ = static_cast<size_t>(p - all_.data());
    return c;
  }

  Expr choice(int depth) {
    if (depth > kDeepestGroups) bad("groups nest too deeply");
    Expr e{.kind = Expr::Choice};
    do e.parts.push_back(sequence(depth));
    while (eat("|"));
    return e.parts.size() == 1 ? std::move(e.parts[0]) : e;
  }

  Expr sequence(int depth) {
    Expr e{.kind = Expr::Sequence};
    while (more() && all_[at_] != '|' && all_[at_] != ')') e.parts.push_back(quantified(atom(depth)));
    return e;
  }

  Expr atom(int depth) {
    if (eat("(")) return group(depth);
    if (eat("[")) return {.kind = Expr::Chars, .set = bracket()};
    if (eat(".")) return {.kind = Expr::Chars, .set = inverse({{'\n', '\n'}})};
    if (eat("^")) return {.kind = Expr::Begin};
    if (eat("$")) return {.kind = Expr::End};
    if (eat("\\b")) return border(true);
    if (eat("\\B")) return border(false);
    if (eat("\\")) return {.kind = Expr::Chars, .set = escape(false)};
    if (all_[at_] == '*' || all_[at_] == '+' || all_[at_] == '?') bad("there is nothing to repeat");
    const char32_t c = character();
    return {.kind = Expr::Chars, .set = {{c, c}}};
  }

  Expr group(int depth) {
    if (eat("?")) {
      for (const std::string_view mark : {"=", "!", "<=", "<!"})
        if (eat(mark)) return look(mark.starts_with('<'), mark.ends_with('!'), group_body(depth));
      if (eat("<") || eat("P<")) {
        const size_t end = all_.find('>', at_);
        if (end == std::string_view::npos) bad("the name of a group does not end");
        at_ = end + 1;
      } else if (!eat(":")) {
        bad("only plain, named and (?:...) groups, look-ahead and look-behind are supported; no flags");
      }
    }
    return group_body(depth);
  }
  Expr group_body(int depth) {
    Expr e = choice(depth + 1);
    if (!eat(")")) bad("a '(' without its ')'");
    return e;
  }

  bool number(uint32_t& n) {
    const size_t begin = at_;
    for (n = 0; more() && all_[at_] >= '0' && all_[at_] <= '9'; ++at_) {
      n = n * 10 + static_cast<uint32_t>(all_[at_] - '0');
      if (n > kMostRepeats) bad("more than 1000000 repetitions");
    }
    return at_ > begin;
  }

  Expr quantified(Expr e) {
    for (;;) {
      uint32_t min = 0, max = kUnlimited;
      const size_t begin = at_;
      if (eat("*")) {
      } else if (eat("+")) {
        min = 1;
      } else if (eat("?")) {
        max = 1;
      } else if (eat("{")) {
        bool counted = number(min);
        max = min;
        if (counted && eat(",") && !number(max)) max = kUnlimited;
        counted = counted && eat("}");
        if (!counted) {  // not a count: the brace is a character
          at_ = begin;
          return e;
        }
        if (min > max) bad("a repetition from more to fewer");
      } else {
        return e;
      }
      if (!eat("?")) eat("+");  // lazy or possessive: the same texts
      if (e.kind == Expr::Begin || e.kind == Expr::End || e.kind == Expr::Look)
        bad("what only looks at the text, as an anchor does, cannot be repeated");
      Expr repeat{.kind = Expr::Repeat, .min = min, .max = max};
      repeat.parts.push_back(std::move(e));
      e = std::move(repeat);
    }
  }

  CharSet bracket() {
    const bool negated = eat("^");
    CharSet set;
    for (bool first = true; first || !eat("]"); first = false) {
      if (!more()) bad("a '[' without its ']'");
      const CharSet low = class_item();
      if (low.size() == 1 && low[0].first == low[0].second && all_.substr(at_).starts_with("-") &&
          !all_.substr(at_).starts_with("-]")) {
        ++at_;
        const CharSet high = class_item();
        if (high.size() != 1 || high[0].first != high[0].second || high[0].first < low[0].first)
          bad("a range of characters that is none");
        set.push_back({low[0].first, high[0].first});
      } else {
        set.insert(set.end(), low.begin(), low.end());
      }
    }
    set = normal(std::move(set));
    return negated ? inverse(set) : set;
  }
  CharSet class_item() {
    if (eat("\\")) return escape(true);
    if (all_.substr(at_).starts_with("[:")) bad("POSIX classes are not supported");
    const char32_t c = character();
    return {{c, c}};
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = character();
      const int digit =
          c < 128 ? static_cast<int>(std::string_view("0123456789abcdef").find(static_cast<char>(c | 32))) : -1;
      if (c >= 128 || (c < '0') || digit < 0) bad("a hexadecimal digit is missing");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }
  char32_t unicode_escape() {
    if (!eat("{")) {
      char32_t c = hex(4);
      if (c >= 0xD800 && c < 0xDC00 && eat("\\u")) c = 0x10000 + ((c - 0xD800) << 10) + (hex(4) - 0xDC00);
      return c;
    }
    char32_t c = 0;
    while (!eat("}")) {
      c = c * 16 + hex(1);
      if (c > 0x10FFFF) bad("a character beyond Unicode");
    }
    return c;
  }

  CharSet escape(bool in_class) {
    const char32_t c = character();
    const auto one = [](char32_t x) { return CharSet{{x, x}}; };
    switch (c) {
      case 'd':
        return kDigit;
      case 'D':
        return inverse(kDigit);
      case 'w':
        return kWord;
      case 'W':
        return inverse(kWord);
      case 's':
        return kSpace;
      case 'S':
        return inverse(kSpace);
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one('\a');
      case 'e':
        return one(0x1B);
      case '0':
        return one(0);
      case 'x':
        return one(hex(2));
      case 'u':
        return one(unicode_escape());
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'b':
        if (in_class) return one('\b');
        break;
      default:
        break;
    }
    if (c < 128 && std::isalnum(static_cast<int>(c)))
      bad("back-references and other escapes of letters and digits are not supported");
    return one(c);
  }

  CharSet property(bool negated) {
    if (!eat("{")) bad("\\p needs {...}");
    uint16_t trait = 0;
    if (eat("L}") || eat("Letter}"))
      trait = unicode::kLetter;
    else if (eat("N}") || eat("Number}"))
      trait = unicode::kNumber;
    else if (eat("M}") || eat("Mark}"))
      trait = unicode::kMark;
    else if (eat("P}") || eat("Punctuation}"))
      trait = unicode::kPunctuation;
    else
      bad("of \\p{...} only L, N, M and P are supported");
    const auto& table = unicode::CharTable::get();
    CharSet set;
    for (char32_t c = 0; c <= 0x10FFFF; ++c)
      if (table[c] & trait) {
        if (!set.empty() && set.back().second + 1 == c)
          set.back().second = c;
        else
          set.push_back({c, c});
      }
    set = normal(std::move(set));
    return negated ? inverse(set) : set;
  }

  const std::string_view all_, where_;
  size_t at_ = 0;
};

// Anchors at the borders of the text mean nothing more once the text is matched as a whole; where there is none, a
// search goes over anything. An anchor elsewhere looks for the absence of characters.
class Anchors {
 public:
  explicit Anchors(bool search) : search_(search) {}
  Expr operator()(Expr e, bool first, bool last) const {
    if (e.kind == Expr::Choice) {
      for (Expr& part : e.parts) part = (*this)(std::move(part), first, last);
      return e;
    }
    Expr all{.kind = Expr::Sequence};
    std::vector<Expr> parts;
    if (e.kind == Expr::Sequence)
      parts = std::move(e.parts);
    else
      parts.push_back(std::move(e));
    size_t begin = 0, end = parts.size();
    while (first && begin < end && parts[begin].kind == Expr::Begin) ++begin;
    while (last && end > begin && parts[end - 1].kind == Expr::End) --end;
    const bool starts = begin > 0, ends = end < parts.size();
    // A group at a border may bring its own anchors.
    const auto is_group = [](const Expr& x) { return x.kind == Expr::Choice || x.kind == Expr::Sequence; };
    const bool group_first = first && !starts && begin < end && is_group(parts[begin]);
    const bool group_last = last && !ends && begin < end && is_group(parts[end - 1]);
    if (first && !starts && !group_first) anything(all);
    for (size_t i = begin; i < end; ++i) {
      const bool opens = group_first && i == begin, closes = group_last && i + 1 == end;
      if (opens || closes)
        parts[i] = (*this)(std::move(parts[i]), opens, closes);
      else
        replace(parts[i]);
      all.parts.push_back(std::move(parts[i]));
    }
    if (last && !ends && !group_last) anything(all);
    return all;
  }

 private:
  void anything(Expr& sequence) const {
    if (!search_) return;
    Expr any{.kind = Expr::Repeat, .min = 0, .max = kUnlimited};
    any.parts.push_back({.kind = Expr::Chars, .set = all_chars()});
    sequence.parts.push_back(std::move(any));
  }
  void replace(Expr& e) const {
    if (e.kind == Expr::Begin || e.kind == Expr::End)
      e = look(e.kind == Expr::Begin, /*absent=*/true, {.kind = Expr::Chars, .set = all_chars()});
    for (Expr& part : e.parts) replace(part);
  }
  const bool search_;
};

}  // namespace

Expr parse_regex(std::string_view pattern, std::string_view where) {
  return Anchors(false)(Parser(pattern, where).parse(), true, true);
}
Expr parse_search(std::string_view pattern, std::string_view where) {
  return Anchors(true)(Parser(pattern, where).parse(), true, true);
}

bool looks_around(const Expr& e) {
  return e.kind == Expr::Look || std::any_of(e.parts.begin(), e.parts.end(), looks_around);
}

Lengths lengths(const Expr& e) {
  const auto capped = [](uint64_t n) { return std::min<uint64_t>(n, kUnlimited); };
  Lengths sum{0, 0};
  switch (e.kind) {
    case Expr::Chars:
      return {1, 1};
    case Expr::Sequence:
      for (const Expr& part : e.parts) {
        const Lengths l = lengths(part);
        sum = {capped(sum.min + l.min), capped(sum.max + l.max)};
      }
      return sum;
    case Expr::Choice:
      sum = {kUnlimited, 0};
      for (const Expr& part : e.parts) {
        const Lengths l = lengths(part);
        sum = {std::min(sum.min, l.min), std::max(sum.max, l.max)};
      }
      return sum;
    case Expr::Repeat: {
      const Lengths l = lengths(e.parts[0]);
      return {capped(l.min * e.min), capped(l.max * e.max)};
    }
    default:
      return sum;
  }
}

Node add_chars(Grammar& g, const CharSet& set, Spelling spelling, Node next) {
  if (spelling == Spelling::Plain) return g.chars(set, next);
  static const CharSet bare = normal({{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}});
  std::vector<Node> ways{g.chars(common(set, bare), next)};
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (!holds(set, c) || holds(bare, c)) continue;
    static constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kLetter = "\"\\bfnrt";
    const size_t at = kPlain.find(static_cast<char>(c));
    if (at != std::string_view::npos) {
      ways.push_back(g.literal(std::string("\\") + kLetter[at], next));
    } else {
      static constexpr std::string_view kHex = "0123456789abcdef";
      ways.push_back(g.literal(std::string("\\u00") + kHex[c >> 4] + kHex[c & 15], next));
    }
  }
  return g.either(ways);
}

Node add_expr(Grammar& g, const Expr& e, Spelling spelling, Node next) {
  switch (e.kind) {
    case Expr::Chars:
      return add_chars(g, e.set, spelling, next);
    case Expr::Sequence:
      for (size_t i = e.parts.size(); i-- > 0;) next = add_expr(g, e.parts[i], spelling, next);
      return next;
    case Expr::Choice: {
      std::vector<Node> ways;
      for (const Expr& part : e.parts) ways.push_back(add_expr(g, part, spelling, next));
      return g.either(ways);
    }
    case Expr::Repeat:
      if (e.max == 0) return next;
      if (e.min == 1 && e.max == 1) return add_expr(g, e.parts[0], spelling, next);
      if (e.min == 0 && e.max == 1) return g.either(add_expr(g, e.parts[0], spelling, next), next);
      return g.call(add_expr(g, e.parts[0], spelling, Grammar::kReturn), e.min, e.max, next);
    default:
      fail(Fault::Usage, "word borders and look-around are not possible in a grammar; they are in a pattern");
  }
}

}  // namespace apus::guide
