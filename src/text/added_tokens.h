// SPDX-License-Identifier: Apache-2.0
// Tokens that are cut out of the text before the model sees it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  // Its text as the decoder gets it: `content`, normalized for tokens that are found in normalized text.
  std::string shown;
  std::string bytes;  // what it decodes to where decoding works on bytes
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// Finds the added tokens in a text: leftmost first, the longest of those that begin at one place.
class AddedTokenFinder {
 public:
  // `pattern[i]` is what to look for in place of tokens[i].
  void build(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& patterns);
  bool empty() const { return tokens_.empty(); }

  // Calls text(begin, end) and token(added, begin, end) in turn; together they cover the text. No call for empty text.
  template <class Text, class Token>
  void split(std::string_view s, bool skip_special, Text&& text, Token&& token) const {
    size_t done = 0;
    for (size_t from = 0; from < s.size();) {
      Match match = find(s, from);
      if (!match.token) break;
      from = match.end;
      if ((skip_special && match.token->special) || !accept(s, done, match)) continue;
      if (match.begin > done) text(done, match.begin);
      token(*match.token, match.begin, match.end);
      // `from` stays: tokens inside white space that was stripped are found as well.
      done = match.end;
    }
    if (done < s.size()) text(done, s.size());
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t begin = 0, end = 0;
  };
  Match find(std::string_view s, size_t from) const;
  // Checks single_word; widens over white space for lstrip and rstrip, but not before `done`.
  static bool accept(std::string_view s, size_t done, Match& match);

  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;  // ordered by byte
    int32_t token = -1;                                    // index of the one that ends here
  };
  std::vector<const AddedToken*> tokens_;
  std::vector<Node> nodes_;
  bool starts_[256] = {};  // bytes that begin some token
  int only_start_ = -1;    // the byte if there is one only: memchr finds it
};

}  // namespace apus
