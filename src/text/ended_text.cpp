// SPDX-License-Identifier: Apache-2.0
#include "text/ended_text.h"

#include <nlohmann/json.hpp>

namespace apus {

std::vector<int32_t> ended_text(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids = tokenizer.encode(text, true);
  const auto eos = tokenizer.eos();
  const bool ended = !ids.empty() && (tokenizer.is_special(ids.back()) || ids.back() == eos);
  if (!ended && eos) ids.push_back(*eos);
  return ids;
}

std::string joined_texts(const Json& messages) {
  std::string out;
  for (const Json& message : messages) {
    const std::string text =
        message.contains("content") && message["content"].is_string() ? message["content"].get<std::string>() : "";
    out += (out.empty() || text.empty() ? "" : " ") + text;
  }
  return out;
}

}  // namespace apus
