// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_difference.h"

#include <algorithm>

#include "base/error.h"

namespace apus {
namespace {

// Letters of several scripts, digits, spaces, code: where the rules differ by which tokenizers cut and join.
constexpr const char* kProbes[] = {
    "The quick brown fox doesn't jump over 1234567.89 lazy dogs,",
    "  two  spaces,\ttabs\n\n\nand lines \r\n",
    "def f(x, y=None): return x**2 != y  # done",
    "Caf\u00e9 na\u00efve \u00dcbergr\u00f6\u00dfe \u0441\u043b\u043e\u0432\u043e \u03bb\u03cc\u03b3\u03bf\u03c2",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001F600\U0001F469\u200D\U0001F680 \u221a2 \u2264 3/4",
};

}  // namespace

std::string tokenizer_difference(const Tokenizer& mine, const Tokenizer& other) {
  const auto shown = [](const Tokenizer& t, int32_t id) {
    return t.has(id) ? str("'", t.piece(id), "'") : std::string("none");
  };
  for (int32_t id = 0; id < mine.vocab_size(); ++id) {
    if (!mine.has(id) || (!other.has(id) && mine.is_added(id))) continue;
    if (!other.has(id) || mine.piece(id) != other.piece(id))
      return str("token ", id, " is ", shown(mine, id), " here and ", shown(other, id), " there (", mine.vocab_size(),
                 " and ", other.vocab_size(), " tokens)");
  }
  for (const char* probe : kProbes) {
    const std::vector<int32_t> ids = mine.encode(probe, false, true), theirs = other.encode(probe, false, true);
    if (ids == theirs) continue;
    const auto place =
        static_cast<size_t>(std::mismatch(ids.begin(), ids.end(), theirs.begin(), theirs.end()).first - ids.begin());
    return str("'", probe, "' becomes other tokens, from the ", place + 1, "th on");
  }
  return "";
}

}  // namespace apus
