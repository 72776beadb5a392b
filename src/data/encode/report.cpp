// SPDX-License-Identifier: Apache-2.0
#include "data/encode/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace apus {

namespace {

// Widths that people read easily: 1, 2 or 5 times a power of ten, for about twelve columns.
int64_t column_width(int64_t longest) {
  for (int64_t ten = 1;; ten *= 10)
    for (const int64_t step : {ten, 2 * ten, 5 * ten})
      if (step * 12 > longest) return step;
}

std::string rounded(double value) {
  char out[64];
  std::snprintf(out, sizeof out, "%.2f", value);
  return out;
}

}  // namespace

LengthReport length_report(const SampleStore& samples, int64_t rejected) {
  LengthReport r;
  r.rows = samples.size();
  r.rejected = rejected;
  if (r.rows == 0) return r;
  const std::vector<int64_t> lengths = samples.lengths();
  r.shortest = *std::min_element(lengths.begin(), lengths.end());
  r.longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t width = column_width(r.longest);
  r.counts.assign(static_cast<size_t>(r.longest / width + 1), 0);
  for (size_t i = 0; i <= r.counts.size(); ++i) r.edges.push_back(static_cast<int64_t>(i) * width);
  double squares = 0;
  for (int64_t i = 0; i < r.rows; ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    r.tokens += length;
    r.trained += samples.trained(i);
    squares += static_cast<double>(length) * static_cast<double>(length);
    ++r.counts[static_cast<size_t>(length / width)];
    r.longest_rows.push_back({i, length, {}});
  }
  r.mean = static_cast<double>(r.tokens) / static_cast<double>(r.rows);
  r.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(r.rows) - r.mean * r.mean));
  const size_t shown = std::min<size_t>(5, r.longest_rows.size());
  std::partial_sort(
      r.longest_rows.begin(), r.longest_rows.begin() + static_cast<long>(shown), r.longest_rows.end(),
      [](const auto& a, const auto& b) { return a.length != b.length ? a.length > b.length : a.sample < b.sample; });
  r.longest_rows.resize(shown);
  return r;
}

std::string length_line(const LengthReport& r) {
  return str("Dataset Token Length: ", rounded(r.mean), "\u00b1", rounded(r.deviation), ", min=", r.shortest,
             ", max=", r.longest, ", size=", r.rows);
}

std::string report_text(const LengthReport& r, bool questions, int width) {
  std::string out = length_line(r);
  if (r.rows == 0) return out;
  const double share = 100.0 * static_cast<double>(r.trained) / static_cast<double>(r.tokens);
  out += str("\n", r.tokens,
             questions ? std::string(" tokens of questions")
                       : str(" tokens, ", r.trained, " of them learnt (", rounded(share), " %)"),
             r.rejected ? str(", ", r.rejected, r.rejected == 1 ? " row left out" : " rows left out") : std::string());
  const int64_t most = *std::max_element(r.counts.begin(), r.counts.end());
  const int room = std::max(10, width - 32);
  size_t i = 0;
  while (r.counts[i] == 0) ++i;  // short of the shortest
  for (; i < r.counts.size(); ++i) {
    char head[64];
    std::snprintf(head, sizeof head, "\n%8lld - %-8lld%8lld ", static_cast<long long>(r.edges[i]),
                  static_cast<long long>(r.edges[i + 1] - 1), static_cast<long long>(r.counts[i]));
    out += head + std::string(static_cast<size_t>(r.counts[i] * room / most), '#');
  }
  out += "\nlongest:";
  for (const auto& row : r.longest_rows)
    out += str("\n", row.length > 99999999 ? "" : std::string(8 - std::to_string(row.length).size(), ' '), row.length,
               "  ", row.where.empty() ? str("sample ", row.sample) : row.where);
  return out;
}

}  // namespace apus
