// SPDX-License-Identifier: Apache-2.0
#include "data/results/text_metrics.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "text/unicode.h"

namespace apus {

namespace {

using Words = std::vector<std::string>;

// Words: the comparison is quadratic, longer texts are compared by their beginnings.
constexpr size_t kLongest = 4000;

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const auto n = std::max<size_t>(1, static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(text[i]))));
    out.emplace_back(text.substr(i, n));
    i += n;
  }
  return out;
}

// CJK, kana, hangul and their kin begin with these bytes: U+2E80 to U+FFFF.
bool stands_alone(const std::string& c) {
  const auto first = static_cast<unsigned char>(c[0]);
  return first >= 0xE3 || (first == 0xE2 && static_cast<unsigned char>(c[1]) >= 0xBA);
}
bool word_byte(unsigned char c) { return std::isalnum(c) || c >= 0x80; }

std::set<Words> ngrams(const Words& words, size_t n) {
  std::set<Words> out;
  for (size_t i = 0; i + n <= words.size(); ++i)
    out.emplace(words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + n));
  return out;
}

double rouge_n(const Words& answer, const Words& reference, size_t n) {
  const auto a = ngrams(answer, n), r = ngrams(reference, n);
  double both = 0;
  for (const auto& g : a) both += static_cast<double>(r.count(g));
  const double precision = a.empty() ? 0 : both / static_cast<double>(a.size()),
               recall = r.empty() ? 0 : both / static_cast<double>(r.size());
  return 2 * (precision * recall) / (precision + recall + 1e-8);
}

// The words of a longest common subsequence, each once.
std::set<std::string> common_words(const Words& a, const Words& b) {
  std::vector<std::vector<int>> length(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j)
      length[i][j] = a[i - 1] == b[j - 1] ? length[i - 1][j - 1] + 1 : std::max(length[i - 1][j], length[i][j - 1]);
  std::set<std::string> out;
  for (size_t i = a.size(), j = b.size(); i > 0 && j > 0;) {
    if (a[i - 1] == b[j - 1])
      out.insert(a[--i]), --j;
    else if (length[i - 1][j] > length[i][j - 1])
      --i;
    else
      --j;
  }
  return out;
}

// The package cuts at full stops and drops them.
std::vector<Words> sentences(const Words& words) {
  std::vector<Words> out(1);
  for (const auto& word : words) {
    if (word == ".")
      out.emplace_back();
    else
      out.back().push_back(word);
  }
  return out;
}

Words joined(const std::vector<Words>& sentences) {
  Words out;
  for (const auto& s : sentences) out.insert(out.end(), s.begin(), s.end());
  return out;
}

double rouge_l(const std::vector<Words>& answer, const std::vector<Words>& reference) {
  std::set<std::string> common, a, r;
  for (const auto& s : reference) {
    r.insert(s.begin(), s.end());
    for (const auto& t : answer) common.merge(common_words(s, t));
  }
  for (const auto& t : answer) a.insert(t.begin(), t.end());
  if (a.empty() || r.empty()) return 0;
  const auto hits = static_cast<double>(common.size());
  const double recall = hits / static_cast<double>(r.size()), precision = hits / static_cast<double>(a.size());
  const double beta = precision / (recall + 1e-12);
  return (1 + beta * beta) * recall * precision / (recall + beta * beta * precision + 1e-12);
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  Words out;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) out.push_back(std::exchange(word, {}));
  };
  for (const auto& c : characters(text)) {
    const bool alone = c.size() > 1 && stands_alone(c);
    if (!alone && word_byte(static_cast<unsigned char>(c[0]))) {
      word += c;
      continue;
    }
    end_word();
    if (alone || !std::isspace(static_cast<unsigned char>(c[0]))) out.push_back(c);
  }
  end_word();
  return out;
}

RougeScores rouge(std::string_view answer, std::string_view reference) {
  const auto limited = [](Words words) {
    words.resize(std::min(words.size(), kLongest));
    return sentences(words);
  };
  const auto a = limited(words_of(answer)), r = limited(words_of(reference));
  return {rouge_n(joined(a), joined(r), 1), rouge_n(joined(a), joined(r), 2), rouge_l(a, r)};
}

double bleu4(std::string_view answer, std::string_view reference) {
  const Words a = characters(answer), r = characters(reference);
  if (a.empty() || r.empty()) return 0;
  double log_sum = 0, smoothing = 1;
  for (size_t n = 1; n <= 4; ++n) {
    std::map<Words, int64_t> wanted, made;
    const auto count = [&](const Words& from, std::map<Words, int64_t>& into) {
      for (size_t i = 0; i + n <= from.size(); ++i)
        ++into[Words(from.begin() + static_cast<std::ptrdiff_t>(i), from.begin() + static_cast<std::ptrdiff_t>(i + n))];
    };
    count(r, wanted);
    count(a, made);
    int64_t hits = 0;
    for (const auto& [gram, times] : made)
      if (const auto it = wanted.find(gram); it != wanted.end()) hits += std::min(times, it->second);
    if (n == 1 && hits == 0) return 0;
    const double all = static_cast<double>(std::max<size_t>(1, a.size() >= n ? a.size() - n + 1 : 0));
    double precision = static_cast<double>(hits) / all;
    if (hits == 0) precision = 1 / ((smoothing *= 2) * all);
    log_sum += std::log(precision) / 4;
  }
  const double length = static_cast<double>(a.size()), wanted = static_cast<double>(r.size());
  return std::exp(log_sum) * (length > wanted ? 1 : std::exp(1 - wanted / length));
}

void TextMetrics::add(std::string_view answer, std::string_view reference) {
  const RougeScores one = rouge(answer, reference);
  sum_.rouge1 += one.rouge1;
  sum_.rouge2 += one.rouge2;
  sum_.rouge_l += one.rouge_l;
  bleu_ += bleu4(answer, reference);
  ++count_;
}

std::vector<std::pair<std::string, double>> TextMetrics::result() const {
  const double scale = 100.0 / static_cast<double>(std::max<int64_t>(count_, 1));
  return {{"rouge-1", sum_.rouge1 * scale},
          {"rouge-2", sum_.rouge2 * scale},
          {"rouge-l", sum_.rouge_l * scale},
          {"bleu-4", bleu_ * scale}};
}

}  // namespace apus
