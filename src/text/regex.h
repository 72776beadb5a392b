// SPDX-License-Identifier: Apache-2.0
// Regular expressions in the dialect of tokenizer.json (Oniguruma's), run by PCRE2 with limits on time and memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace apus {

class Regex {
 public:
  // `where` names the place the pattern was read from, for messages.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match at or after `from` as [begin, end). `text` is valid UTF-8 and `from` a character's start.
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

// The same pattern in PCRE2's dialect, with Unicode's White_Space for \s and its word characters for \w.
std::string to_pcre(const std::string& pattern, const std::string& where);

}  // namespace apus
