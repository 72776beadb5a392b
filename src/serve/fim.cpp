// SPDX-License-Identifier: Apache-2.0
#include "serve/fim.h"

namespace apus {

std::optional<std::string> fim_prompt(const Tokenizer& tokenizer, const std::string& before,
                                      const std::string& behind) {
  // Marks before what stands before the gap, before what stands behind it, and before the answer.
  struct Marks {
    const char *prefix, *suffix, *middle;
  };
  static constexpr Marks kKnown[] = {
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder, Granite
      {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek
      {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
      {"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // Code Llama
  };
  for (const Marks& m : kKnown)
    if (tokenizer.id(m.prefix) && tokenizer.id(m.suffix) && tokenizer.id(m.middle))
      return m.prefix + before + m.suffix + behind + m.middle;
  if (tokenizer.id("[SUFFIX]") && tokenizer.id("[PREFIX]"))  // Codestral
    return "[SUFFIX]" + behind + "[PREFIX]" + before;
  return std::nullopt;
}

}  // namespace apus
