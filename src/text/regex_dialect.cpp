// SPDX-License-Identifier: Apache-2.0
// Oniguruma's dialect in PCRE2's: Unicode's own classes, sets within sets and their intersections, scripts.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace apus {
namespace {

// Before 10.40 PCRE2 has no binary properties, and a script's name means the script itself.
constexpr bool kHasProperties = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40;
constexpr int kDeepest = 64;           // sets within sets
constexpr size_t kLongest = 1 << 20;   // of the translation
constexpr size_t kDeepestGroup = 250;  // PCRE2's own limit

// PCRE2's \s takes U+180E in and its \w leaves combining marks out, so both are written out. They stand inside [...]
// and end with a range, after which a hyphen is one.
constexpr const char* kSpaceSet =
    "\\x20\\x{85}\\x{a0}\\x{1680}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{2000}-\\x{200a}\\x09-\\x0d";
constexpr const char* kNotSpaceSet =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";
#define APUS_SYMBOL_LETTERS "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define APUS_WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}" APUS_SYMBOL_LETTERS
constexpr const char* kWordInSet = APUS_WORD;
// Outside of sets Latin-1's numbers are among \w.
constexpr const char* kWordSet = APUS_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// Classes that have a name, as [:name:] or \p{name}.
struct NamedSet {
  std::string_view name, chars;
};
constexpr NamedSet kSets[] = {
    {"alnum", kHasProperties ? "\\p{Alphabetic}\\p{Nd}" : "\\p{L}\\p{Nl}\\p{Nd}" APUS_SYMBOL_LETTERS},
    {"alpha", kHasProperties ? "\\p{Alphabetic}" : "\\p{L}\\p{Nl}" APUS_SYMBOL_LETTERS},
    {"ascii", "\\x00-\\x7f"},
    {"blank", "\\p{Zs}\\x09"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "[:graph:]"},
    {"lower", kHasProperties ? "\\p{Lowercase}" : "\\p{Ll}"},
    {"print", "[:print:]"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpaceSet},
    {"upper", kHasProperties ? "\\p{Uppercase}" : "\\p{Lu}"},
    {"word", kWordInSet},
    {"xdigit", "0-9A-Fa-f"},
};
#undef APUS_WORD
#undef APUS_SYMBOL_LETTERS

// The long names of general categories.
constexpr std::pair<std::string_view, std::string_view> kCategories[] = {{"letter", "L"},
                                                                         {"casedletter", "L&"},
                                                                         {"lc", "L&"},
                                                                         {"uppercaseletter", "Lu"},
                                                                         {"lowercaseletter", "Ll"},
                                                                         {"titlecaseletter", "Lt"},
                                                                         {"modifierletter", "Lm"},
                                                                         {"otherletter", "Lo"},
                                                                         {"mark", "M"},
                                                                         {"combiningmark", "M"},
                                                                         {"nonspacingmark", "Mn"},
                                                                         {"spacingmark", "Mc"},
                                                                         {"enclosingmark", "Me"},
                                                                         {"number", "N"},
                                                                         {"decimalnumber", "Nd"},
                                                                         {"letternumber", "Nl"},
                                                                         {"othernumber", "No"},
                                                                         {"punctuation", "P"},
                                                                         {"connectorpunctuation", "Pc"},
                                                                         {"dashpunctuation", "Pd"},
                                                                         {"openpunctuation", "Ps"},
                                                                         {"closepunctuation", "Pe"},
                                                                         {"initialpunctuation", "Pi"},
                                                                         {"finalpunctuation", "Pf"},
                                                                         {"otherpunctuation", "Po"},
                                                                         {"symbol", "S"},
                                                                         {"mathsymbol", "Sm"},
                                                                         {"currencysymbol", "Sc"},
                                                                         {"modifiersymbol", "Sk"},
                                                                         {"othersymbol", "So"},
                                                                         {"separator", "Z"},
                                                                         {"spaceseparator", "Zs"},
                                                                         {"lineseparator", "Zl"},
                                                                         {"paragraphseparator", "Zp"},
                                                                         {"other", "C"},
                                                                         {"control", "Cc"},
                                                                         {"format", "Cf"},
                                                                         {"surrogate", "Cs"},
                                                                         {"privateuse", "Co"},
                                                                         {"unassigned", "Cn"}};

std::string_view named_set(std::string_view name) {
  const auto it =
      std::find_if(std::begin(kSets), std::end(kSets), [&](const NamedSet& set) { return set.name == name; });
  return it == std::end(kSets) ? std::string_view() : it->chars;
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  Translator(const std::string& in, const std::string& where) : in_(in), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) step();
    out_.append(groups_.front().options, ')');
    return std::move(out_);
  }

 private:
  struct Group {
    // Where it begins in `out_`, and how many (?i) within it are open.
    size_t begin = 0, options = 0;
  };
  // Part of a set: characters to stand in [...], or an expression for one character, or both.
  struct Members {
    std::string chars;
    std::vector<std::string> others;
  };

  [[noreturn]] void refuse(std::string_view why) const {
    fail(Fault::Model, where_, ": ", why, " (near byte ", at_, " of the pattern ", in_, ")");
  }
  bool next_is(std::string_view text) const { return in_.compare(at_, text.size(), text) == 0; }

  void step() {
    const char c = in_[at_];
    if (out_.size() > kLongest) refuse("the pattern is too long");
    if (c == '{' && interval()) return;
    if (c == '*' || c == '+' || c == '?') return repeat();
    if (c == '(') return open();
    if (c == ')') return close();
    if (!unicode::is_continuation(c)) atom_ = out_.size();
    if (c == '[')
      out_ += set(0);
    else if (c == '\\' && at_ + 1 < in_.size())
      out_ += escape();
    else
      out_ += in_[at_++];
  }

  void open() {
    if (next_is("(?#")) {
      const size_t end = in_.find(')', at_);
      at_ = end == std::string::npos ? in_.size() : end + 1;
      return;
    }
    size_t end = at_ + 2;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) ++end;
    if (groups_.size() > kDeepestGroup) refuse(str("groups are nested deeper than ", kDeepestGroup));
    const bool options = next_is("(?") && end > at_ + 2 && end < in_.size() && (in_[end] == ':' || in_[end] == ')');
    if (!options) {
      groups_.push_back({out_.size(), 0});
      out_ += in_[at_++];
      if (next_is("?")) out_ += in_[at_++];
      return;
    }
    // Here m lets the dot match line ends. (?i) holds to the end of the group, further alternatives included.
    std::string letters = in_.substr(at_, end - at_);
    std::replace(letters.begin(), letters.end(), 'm', 's');
    if (in_[end] == ':')
      groups_.push_back({out_.size(), 0});
    else
      ++groups_.back().options;
    out_ += letters + ":";
    at_ = end + 1;
  }

  void close() {
    out_.append(groups_.back().options, ')');
    atom_ = groups_.back().begin;
    if (groups_.size() > 1)
      groups_.pop_back();
    else
      groups_.back().options = 0;  // one too many, which PCRE2 will tell
    out_ += in_[at_++];
  }

  // Here a repetition can be repeated itself.
  void repeat_again() {
    if (out_.size() != repeated_) return void(stacked_ = 0);
    if (++stacked_ > kDeepestGroup) refuse(str("more than ", kDeepestGroup, " repetitions of repetitions"));
    out_.insert(std::min(atom_, out_.size()), "(?:");
    out_ += ')';
  }

  // * + ? with a question mark (as few as possible) or a plus (and never fewer) behind it.
  void repeat() {
    repeat_again();
    out_ += in_[at_++];
    if (next_is("?") || next_is("+")) out_ += in_[at_++];
    repeated_ = out_.size();
  }

  // {n,m}, where n may be missing. A question mark behind {n} or a plus repeats it.
  bool interval() {
    const size_t end = in_.find('}', at_);
    if (end == std::string::npos) return false;
    const std::string_view inside = std::string_view(in_).substr(at_ + 1, end - at_ - 1);
    const bool digits = inside.find_first_not_of("0123456789,") == std::string_view::npos;
    const auto commas = std::count(inside.begin(), inside.end(), ',');
    if (!digits || commas > 1 || inside.empty() || inside == ",") return false;
    repeat_again();
    out_ += str(inside.front() == ',' ? "{0" : "{", inside, "}");
    at_ = end + 1;
    if (commas && next_is("?")) out_ += in_[at_++];
    repeated_ = out_.size();
    return true;
  }

  // What the backslash at `at_` begins, outside of sets.
  std::string escape() {
    const char c = in_[at_ + 1];
    if (c == 'b' || c == 'B') {
      at_ += 2;
      const std::string word = str("[", kWordSet, "]"), in = str("(?=", word, ")"), out = str("(?!", word, ")"),
                        after = str("(?<=", word, ")"), not_after = str("(?<!", word, ")");
      return c == 'b' ? str("(?:", after, out, "|", not_after, in, ")")
                      : str("(?:", after, in, "|", not_after, out, ")");
    }
    if (c == 'Q' || c == 'E') return at_ += 2, std::string(1, c);  // no quoting here
    Members members;
    if (!class_escape(members, kWordSet)) return code_point();
    return expression(members, false);
  }

  // A class of characters at the backslash; false if it is none.
  bool class_escape(Members& members, const char* word) {
    const char c = in_[at_ + 1];
    const auto take = [&](std::string_view chars, bool negated) {
      at_ += 2;
      if (negated)
        members.others.push_back(str("[^", chars, "]"));
      else
        members.chars += chars;
      return true;
    };
    switch (c) {
      case 's':
        return take(kSpaceSet, false);
      case 'S':
        return take(kNotSpaceSet, false);
      case 'w':
        return take(word, false);
      case 'W':
        return take(word, true);
      case 'd':
        return take("\\p{Nd}", false);
      case 'D':
        return take("\\P{Nd}", false);
      case 'h':
        return take("0-9A-Fa-f", false);  // a hexadecimal digit
      case 'H':
        return take("0-9A-Fa-f", true);
      case 'p':
      case 'P':
        return property(members, word);
      default:
        return false;
    }
  }

  // Any other escape: a character, or something that both dialects spell alike.
  std::string code_point() {
    if (in_[at_ + 1] == 'v') return at_ += 2, "\\x0b";
    if (in_[at_ + 1] == 'u' && at_ + 6 <= in_.size()) {
      const std::string digits = in_.substr(at_ + 2, 4);
      if (digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos)
        return at_ += 6, str("\\x{", digits, "}");
    }
    at_ += 2;
    return in_.substr(at_ - 2, 2);
  }

  // \p{Name}, \p{^Name}, \P{Name}
  bool property(Members& members, std::string_view word) {
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string::npos) return false;
    const bool inverse = in_[at_ + 3] == '^', negated = (in_[at_ + 1] == 'P') != inverse;
    const std::string name = in_.substr(at_ + 3 + inverse, end - at_ - 3 - inverse);
    at_ = end + 1;
    std::string plain;
    for (const char c : name)
      if (c != ' ' && c != '_' && c != '-') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    // \p{Punct} is narrower than [:punct:], \p{Word} the same as \w.
    const std::string_view set = plain == "punct" ? "\\p{P}" : plain == "word" ? word : named_set(plain);
    if (!set.empty()) {
      if (negated)
        members.others.push_back(str("[^", set, "]"));
      else
        members.chars += set;
      return true;
    }
    std::string known = name;
    for (const auto& [longer, category] : kCategories)
      if (plain == longer) known = category;
    // A script, and not also what other scripts' characters are used with.
    if (kHasProperties && known == name && plain.size() > 2 && compiles("\\p{sc:" + plain + "}")) known = "sc:" + plain;
    members.chars += str(negated ? "\\P{" : "\\p{", known, "}");
    return true;
  }

  // The set that begins at `at_`.
  std::string set(int depth) {
    if (depth > kDeepest) refuse(str("sets are nested deeper than ", kDeepest));
    const bool negated = in_.compare(++at_, 1, "^") == 0;
    at_ += negated;
    std::vector<Members> parts(1);
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) refuse("a set [ is not closed");
      if (in_[at_] == ']' && !first) break;
      if (next_is("&&")) {
        parts.emplace_back();
        at_ += 2;
      } else {
        member(parts.back(), depth);
      }
    }
    ++at_;
    if (parts.size() == 1) return expression(parts[0], negated);
    std::string all;
    for (size_t i = 0; i + 1 < parts.size(); ++i) all += str("(?=", expression(parts[i], false), ")");
    all += expression(parts.back(), false);
    return negated ? str("(?:(?!", all, ")(?s:.))") : str("(?:", all, ")");
  }

  void member(Members& members, int depth) {
    if (next_is("[:")) {
      const size_t end = in_.find(":]", at_);
      const bool inverse = in_.compare(at_ + 2, 1, "^") == 0;
      const size_t begin = at_ + 2 + inverse;
      const bool closed = end != std::string::npos && end >= begin;
      const std::string_view set = closed ? named_set(std::string_view(in_).substr(begin, end - begin)) : "";
      if (!set.empty()) {
        if (inverse)
          members.others.push_back(str("[^", set, "]"));
        else
          members.chars += set;
        at_ = end + 2;
        return;
      }
    }
    if (in_[at_] == '[')
      members.others.push_back(set(depth + 1));
    else if (in_[at_] != '\\' || at_ + 1 >= in_.size())
      members.chars += in_[at_++];
    else if (!class_escape(members, kWordInSet))
      members.chars += code_point();
  }

  // One character of, or not of, these.
  static std::string expression(const Members& members, bool negated) {
    const std::string& chars = members.chars;
    const std::string in = chars.empty() ? "" : str(chars[0] == '^' ? "[\\" : "[", chars, "]");
    if (members.others.empty()) {
      if (chars.empty()) return negated ? "(?s:.)" : "(?!)";
      return negated ? str("[^", chars, "]") : in;
    }
    if (!negated && chars.empty() && members.others.size() == 1) return members.others[0];
    std::string all = in;
    for (const std::string& other : members.others) all += (all.empty() ? "" : "|") + other;
    return negated ? str("(?:(?!", all, ")(?s:.))") : str("(?:", all, ")");
  }

  const std::string& in_;
  const std::string& where_;
  // The place in `in_`; where in `out_` the last thing that can be repeated begins.
  size_t at_ = 0, atom_ = 0;
  // Where in `out_` the last repetition ends; how many lie upon it.
  size_t repeated_ = std::string::npos, stacked_ = 0;
  std::string out_;
  std::vector<Group> groups_{1};
};

}  // namespace

std::string to_pcre(const std::string& pattern, const std::string& where) { return Translator(pattern, where).run(); }

}  // namespace apus
