// SPDX-License-Identifier: Apache-2.0
// How near an answer is to a reference: ROUGE-1, -2, -L (f) and BLEU-4,
// as the Python packages rouge and nltk compute them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus {

// Words for ROUGE: runs of letters and digits, and every character of a script without spaces between words on its own.
std::vector<std::string> words_of(std::string_view text);

struct RougeScores {
  double rouge1 = 0, rouge2 = 0, rouge_l = 0;  // 0 to 1
};
RougeScores rouge(std::string_view answer, std::string_view reference);
double bleu4(std::string_view answer, std::string_view reference);  // of characters, smoothed by nltk's method 3

// Means over answers, times 100; pairs with an empty side count as 0.
class TextMetrics {
 public:
  void add(std::string_view answer, std::string_view reference);
  std::vector<std::pair<std::string, double>> result() const;

 private:
  RougeScores sum_;
  double bleu_ = 0;
  int64_t count_ = 0;
};

}  // namespace apus
