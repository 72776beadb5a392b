// SPDX-License-Identifier: Apache-2.0
// Ranks that read the same rows (--sequence_parallel_size, --tensor_model_parallel_size) draw the answers to a question
// together: each asks for its share, and all get all of them.
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
  // Null: one, who draws everything.
  explicit RowSharers(Comm* ranks) : ranks_(ranks) {}

  bool several() const { return ranks_ && ranks_->size() > 1; }
  bool first() const { return place() == 0; }
  int count() const { return ranks_ ? ranks_->size() : 1; }
  Range share_of(size_t answers) const { return part_of(static_cast<int64_t>(answers), place(), count()); }
  // The answers of all, in their order. They call it together.
  std::vector<Answer> together(std::vector<Answer> mine) const;
  // What the first one's answers are worth becomes what everybody's are.
  void agree_on_rewards(std::vector<Answer>& answers) const;

 private:
  int place() const { return ranks_ ? ranks_->rank() : 0; }
  Comm* ranks_;
};

}  // namespace apus
