// SPDX-License-Identifier: Apache-2.0
#include "algos/whole_groups.h"

#include <cstring>

#include "base/error.h"
#include "device/agree.h"

namespace apus {
namespace {

// Of each answer: its group, reward, length, what the likeliest answer was given, and what each function gave.
constexpr size_t kFixed = 4;

std::string bytes_of(const std::vector<Answer>& answers, size_t functions) {
  std::vector<double> numbers;
  for (const Answer& a : answers) {
    const double fixed[kFixed] = {static_cast<double>(a.group), a.reward, static_cast<double>(a.said()),
                                  a.greedy_reward};
    numbers.insert(numbers.end(), fixed, fixed + kFixed);
    numbers.insert(numbers.end(), a.rewards.begin(), a.rewards.begin() + static_cast<long>(functions));
  }
  std::string bytes(numbers.size() * sizeof(double), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

void append_scored(const std::string& bytes, size_t functions, ScoredAnswers& out) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < numbers.size(); i += kFixed + functions) {
    out.groups.push_back(static_cast<int64_t>(numbers[i])), out.rewards.push_back(numbers[i + 1]);
    out.lengths.push_back(numbers[i + 2]), out.greedy.push_back(numbers[i + 3]);
    for (size_t f = 0; f < functions; ++f) out.functions[f].push_back(numbers[i + kFixed + f]);
  }
}

}  // namespace

WholeGroups whole_groups(const std::vector<Answer>& mine, size_t functions, Comm* ranks, int64_t sharers) {
  std::vector<std::string> parts = {bytes_of(mine, functions)};
  WholeGroups out;
  size_t own = 0;
  if (sharers > 1) {
    require(ranks, Fault::Bug, "groups are shared out over ranks, and there is no way to them");
    const std::vector<std::string> all = gather_text(parts[0], *ranks);
    own = static_cast<size_t>(ranks->rank() % sharers);
    const auto begin = all.begin() + ranks->rank() - static_cast<long>(own);
    parts.assign(begin, begin + sharers);
  }
  out.scored.functions.resize(functions);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (p == own) out.first = out.scored.rewards.size();
    append_scored(parts[p], functions, out.scored);
  }
  return out;
}

}  // namespace apus
