// SPDX-License-Identifier: Apache-2.0
// anls: how near an answer is to what is to be read in a picture, by letters; of several solutions the nearest.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "reward/nearness.h"
#include "reward/reward.h"
#include "text/unicode.h"

namespace apus {
namespace {

constexpr size_t kLongest =
    4000;  // letters: the comparison is quadratic, longer texts are compared by their beginnings

std::u32string letters(const std::string& text) {
  const std::string plain = unicode::lossy(text);
  std::u32string out;
  for (const char* p = plain.data(); p < plain.data() + plain.size() && out.size() < kLongest;) {
    std::string lower;
    unicode::append_lower(lower, unicode::next_char(p));
    for (const char* q = lower.data(); q < lower.data() + lower.size();) out.push_back(unicode::next_char(q));
  }
  const auto space = [](char32_t c) { return c < 128 && std::isspace(static_cast<int>(c)); };
  while (!out.empty() && space(out.back())) out.pop_back();
  out.erase(out.begin(), std::find_if_not(out.begin(), out.end(), space));
  return out;
}

size_t edits(const std::u32string& a, const std::u32string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t k = 1; k <= b.size(); ++k) {
      const size_t changed = corner + (a[i - 1] != b[k - 1]);
      corner = row[k];
      row[k] = std::min({changed, row[k] + 1, row[k - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

double nearness(const std::string& answer, const std::string& solution) {
  const std::u32string a = letters(answer), b = letters(solution);
  const size_t longer = std::max(a.size(), b.size());
  if (longer == 0) return 1;
  const double changed = static_cast<double>(edits(a, b)) / static_cast<double>(longer);
  return changed < 0.5 ? 1 - changed : 0;
}

namespace {

class Anls final : public SingleReward {
 public:
  explicit Anls(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    const Json* solution = answer.row && answer.row->contains("solution") ? &answer.row->at("solution") : nullptr;
    if (!solution || !solution->is_array()) return nearness(answer.completion, solution_of(answer, "anls"));
    double best = 0;
    for (const Json& each : *solution)
      if (each.is_string()) best = std::max(best, nearness(answer.completion, each.get<std::string>()));
    return best;
  }
};

const RegisterReward<Anls> anls("anls");

}  // namespace
}  // namespace apus
