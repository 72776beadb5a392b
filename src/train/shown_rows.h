// SPDX-License-Identifier: Apache-2.0
// What an algorithm is besides, when it also learns from answers of another dataset than that of its rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/source/sample_source.h"

namespace apus {

class LearnsShownRows {
 public:
  virtual ~LearnsShownRows() = default;
  struct Wanted {
    std::vector<std::string> datasets;  // empty: this run shows it nothing
    int64_t rows = 1;                   // of a micro-batch
  };
  virtual Wanted shown_rows() const = 0;
  // Before anything is collected. Rows are encoded with their answers; they outlive the algorithm's work.
  virtual void show(SampleSource& rows) = 0;
};

}  // namespace apus
