// SPDX-License-Identifier: Apache-2.0
// Rows as text for people.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace apus {

// Columns as wide as their longest word, a line for each row; the first row is the heading. `paint` (text of the cell,
// the cell with its width, whether it is of the heading) colours a cell after it has its width.
template <class Paint>
std::string table_text(const std::vector<std::vector<std::string>>& rows, const Paint& paint) {
  std::vector<size_t> width;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == width.size()) width.push_back(0);
      width[i] = std::max(width[i], row[i].size());
    }
  std::string out;
  for (const auto& row : rows) {
    out += " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      const std::string cell = last ? row[i] : row[i] + std::string(width[i] - row[i].size(), ' ');
      out += " " + paint(row[i], cell, &row == &rows[0]) + (last ? "" : " ");
    }
    out += "\n";
  }
  return out;
}

}  // namespace apus
