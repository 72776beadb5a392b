// SPDX-License-Identifier: Apache-2.0
// What a dataset is like once it is encoded: how many tokens, how long, how much of it is learnt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/encode/sample_store.h"

namespace apus {

struct LengthReport {
  int64_t rows = 0, rejected = 0, tokens = 0, trained = 0, shortest = 0, longest = 0;
  double mean = 0, deviation = 0;
  // Of the histogram: counts[i] are the samples of edges[i] <= length < edges[i + 1]
  std::vector<int64_t> edges;
  std::vector<int64_t> counts;
  struct Long {
    int64_t sample, length;
    std::string where;  // file and line, where known
  };
  std::vector<Long> longest_rows;  // the longest first
};

LengthReport length_report(const SampleStore& samples, int64_t rejected = 0);
// "Dataset Token Length: 12.50±3.20, min=..., max=..., size=..."
std::string length_line(const LengthReport& report);
// The line, a histogram, shares; several lines. `questions`: answers are made later, so that nothing
// of the rows is learnt.
std::string report_text(const LengthReport& report, bool questions = false, int width = 80);

}  // namespace apus
