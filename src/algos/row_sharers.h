// SPDX-License-Identifier: Apache-2.0
// Ranks that read the same rows (--sequence_parallel_size) draw the answers to a question together: each its share, and
// all get all of them.
#pragma once

#include <string>
#include <vector>

#include "algos/answers.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

// What those gave that each read rows of their own, as many as `readers`: of neighbours with the same rows the first.
std::vector<std::string> gather_from_readers(const std::string& mine, Comm& ranks, int64_t readers);

class RowSharers {
 public:
  RowSharers() = default;  // one, who draws everything
  // Neighbours among `ranks` read the same rows, of which there are as many as `readers`. Null: one rank.
  RowSharers(Comm* ranks, int64_t readers);

  bool several() const { return count_ > 1; }
  bool first() const { return place_ == 0; }
  double count() const { return count_; }
  Range share_of(size_t answers) const { return part_of(static_cast<int64_t>(answers), place_, count_); }
  // The answers of all, in their order. All ranks call it together, also those that read other rows.
  std::vector<Answer> together(std::vector<Answer> mine) const;
  // What the first one's answers are worth becomes what everybody's are.
  void agree_on_rewards(std::vector<Answer>& answers) const;

 private:
  std::vector<std::string> texts_of_all(const std::string& mine) const;
  Comm* ranks_ = nullptr;
  int count_ = 1, place_ = 0;
};

}  // namespace apus
