// SPDX-License-Identifier: Apache-2.0
// Grammars that users write, of any kind: they are refused with a reason, or followed; what is
// allowed by a mask is taken.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "guide/guide.h"
#include "tests/fuzz/guide_words.h"
#include "tests/guide/allowed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto words = apus::fuzz::byte_tokenizer({"ab", "12", "::=", "root"}, {"<end>"});
  static const int32_t stop = *words->id("<end>");
  static const auto vocabulary = apus::make_guide_vocabulary(*words, std::span(&stop, 1));
  try {
    const auto guide = apus::guide_grammar(vocabulary, std::string(reinterpret_cast<const char*>(data), size));
    apus::Random random(size);
    for (int i = 0; i < 40 && !guide->finished(); ++i) {
      const std::vector<int32_t> tokens = apus::test::allowed(*guide);
      if (tokens.empty()) return 0;  // a rule that nothing ends
      const int32_t token = tokens[random.below(tokens.size())];
      if (token == stop) return 0;
      guide->accept(token);
    }
  } catch (const apus::Error& error) {
    if (error.at.fault != apus::Fault::Usage) std::abort();
  }
  return 0;
}
