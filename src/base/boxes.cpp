// SPDX-License-Identifier: Apache-2.0
#include "base/boxes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace apus {
namespace {

constexpr size_t kMostBoxes = 1000;  // of one answer

bool separates(char c) { return c == ',' || c == ' ' || c == '\n' || c == '\t'; }

// What stands behind an opening bracket at `at`: its numbers, where there is nothing else before it closes. Then `at`
// is behind the closing one.
std::optional<std::vector<double>> bracketed(std::string_view text, size_t& at) {
  const char close = text[at] == '[' ? ']' : ')';
  std::vector<double> numbers;
  for (size_t i = at + 1; i < text.size() && numbers.size() <= 4;) {
    if (text[i] == close) {
      at = i + 1;
      return numbers;
    }
    if (separates(text[i])) {
      ++i;
      continue;
    }
    double value = 0;
    const auto read = std::from_chars(text.data() + i, text.data() + text.size(), value);
    if (read.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
    numbers.push_back(value);
    i = static_cast<size_t>(read.ptr - text.data());
  }
  return std::nullopt;
}

double length(double from, double to) { return std::max(0.0, to - from); }

Box box_of(double x1, double y1, double x2, double y2) {
  return {std::min(x1, x2), std::min(y1, y2), std::max(x1, x2), std::max(y1, y2)};
}

}  // namespace

std::vector<Box> said_boxes(std::string_view text) {
  std::vector<Box> out;
  std::optional<std::array<double, 2>> corner;  // the last thing was a pair
  for (size_t i = 0; i < text.size() && out.size() < kMostBoxes;) {
    if (text[i] != '[' && text[i] != '(') {
      if (!separates(text[i])) corner.reset();
      ++i;
      continue;
    }
    const auto numbers = bracketed(text, i);
    if (!numbers) {
      corner.reset(), ++i;
    } else if (numbers->size() == 4) {
      const auto& n = *numbers;
      out.push_back(box_of(n[0], n[1], n[2], n[3])), corner.reset();
    } else if (numbers->size() == 2 && corner) {
      out.push_back(box_of((*corner)[0], (*corner)[1], (*numbers)[0], (*numbers)[1])), corner.reset();
    } else if (numbers->size() == 2) {
      corner = {{(*numbers)[0], (*numbers)[1]}};
    } else {
      corner.reset();
    }
  }
  return out;
}

double overlap(const Box& a, const Box& b) {
  const double shared =
      length(std::max(a[0], b[0]), std::min(a[2], b[2])) * length(std::max(a[1], b[1]), std::min(a[3], b[3]));
  const double both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared;
  return both > 0 && std::isfinite(both) ? shared / both : 0;
}

double overlap(const std::vector<Box>& said, const std::vector<Box>& wanted) {
  struct Pair {
    double overlap;
    size_t said, wanted;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i < said.size(); ++i)
    for (size_t k = 0; k < wanted.size(); ++k)
      if (const double part = overlap(said[i], wanted[k]); part > 0) pairs.push_back({part, i, k});
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.overlap > b.overlap; });
  std::vector<bool> used(said.size()), found(wanted.size());
  double sum = 0;
  for (const Pair& pair : pairs)
    if (!used[pair.said] && !found[pair.wanted]) used[pair.said] = found[pair.wanted] = true, sum += pair.overlap;
  const size_t longer = std::max(said.size(), wanted.size());
  return longer == 0 ? 1 : sum / static_cast<double>(longer);
}

}  // namespace apus
