// SPDX-License-Identifier: Apache-2.0
#include "guide/marked_text.h"

#include <map>

#include "base/error.h"
#include "text/unicode.h"

namespace apus::guide {

namespace {

constexpr size_t kMostMarkCharacters = 5'000;

// A character, or, behind all characters, a special token.
using Symbol = uint32_t;
constexpr Symbol kFirstToken = 0x110000;

std::vector<Symbol> spelled(std::string_view text) {
  std::vector<Symbol> out;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) out.push_back(unicode::next_char(p));
  return out;
}

// The same with the special tokens that stand in it: the earliest first, and there the longest.
std::vector<Symbol> with_tokens(std::string_view text, const Vocabulary& words) {
  std::vector<Symbol> out;
  for (size_t at = 0; at < text.size();) {
    size_t longest = 0;
    int32_t found = -1;
    for (const auto& [special, id] : words.specials())
      if (special.size() > longest && text.substr(at).starts_with(special)) longest = special.size(), found = id;
    if (found >= 0) {
      out.push_back(kFirstToken + static_cast<Symbol>(found));
      at += longest;
      continue;
    }
    const char* p = text.data() + at;
    out.push_back(unicode::next_char(p));
    at = static_cast<size_t>(p - text.data());
  }
  return out;
}

// How much of each mark the text ends with.
struct Matched {
  std::map<Symbol, size_t> next;  // first the marks' own, then also those of the longest shorter match
  size_t shorter = 0;
  std::optional<Node> complete;
};

class Marks {
 public:
  explicit Marks(std::string where) : where_(std::move(where)) {}

  void add(const std::vector<Symbol>& mark, Node after) {
    size_t at = 0;
    for (const Symbol s : mark) {
      const auto [next, added] = all_[at].next.try_emplace(s, all_.size());
      at = next->second;
      if (!added) continue;
      require(all_.size() < kMostMarkCharacters, Fault::Usage, where_, ": begins, ends and triggers of more than ",
              kMostMarkCharacters, " characters at one place");
      all_.emplace_back();
    }
    if (!all_[at].complete) all_[at].complete = after;
  }

  // In the order of length, so that what is shorter is known.
  void finish() {
    std::vector<size_t> order{0};
    for (size_t i = 0; i < order.size(); ++i) {
      Matched& m = all_[order[i]];
      for (const auto& [symbol, to] : m.next) {
        order.push_back(to);
        if (order[i] == 0) continue;
        const auto& known = all_[m.shorter].next;
        if (const auto at = known.find(symbol); at != known.end()) all_[to].shorter = at->second;
      }
      if (order[i] == 0) continue;
      const Matched& less = all_[m.shorter];
      if (!m.complete) m.complete = less.complete;
      m.next.insert(less.next.begin(), less.next.end());
    }
  }

  Node node(Grammar& g, std::optional<Node> end) const {
    std::vector<Node> nodes;
    for (const Matched& m : all_) nodes.push_back(m.complete ? *m.complete : g.reserve());
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].complete) continue;
      CharSet known;
      std::vector<Node> ways;
      for (const auto& [symbol, to] : all_[i].next) {
        if (symbol >= kFirstToken) {
          ways.push_back(g.token(static_cast<int32_t>(symbol - kFirstToken), nodes[to]));
          continue;
        }
        known.push_back({symbol, symbol});
        ways.push_back(g.chars({known.back()}, nodes[to]));
      }
      ways.push_back(g.chars(inverse(normal(std::move(known))), nodes[0]));
      if (end) ways.push_back(*end);
      g.define(nodes[i], g.either(ways));
    }
    return nodes[0];
  }

 private:
  const std::string where_;
  std::vector<Matched> all_{1};
};

}  // namespace

Node marked_text(Grammar& g, const Vocabulary& words, const std::vector<Mark>& marks, std::optional<Node> end,
                 const std::string& where) {
  Marks all(where);
  for (const Mark& mark : marks) {
    require(!mark.text.empty(), Fault::Usage, where, ": an empty text cannot mark a place");
    all.add(spelled(mark.text), mark.after);
    all.add(with_tokens(mark.text, words), mark.after);
  }
  all.finish();
  return all.node(g, end);
}

}  // namespace apus::guide
