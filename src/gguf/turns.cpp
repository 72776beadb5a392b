// SPDX-License-Identifier: Apache-2.0
#include "gguf/turns.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace apus {

namespace {

GgufTurn::Rows range(int64_t first, int64_t count) {
  GgufTurn::Rows rows(static_cast<size_t>(std::max<int64_t>(0, count)));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

GgufTurn::Rows stride(int64_t first, int64_t step, int64_t all) {
  GgufTurn::Rows rows;
  for (int64_t i = first; i < all; i += step) rows.push_back(i);
  return rows;
}

// Of every key-value head its queries (0), its key (1), its value (2).
GgufTurn::Rows part_of_groups(const GgufSizes& s, int which) {
  const int64_t shared = s.kv_heads > 0 ? s.heads / s.kv_heads : 0, group = (shared + 2) * s.head_dim;
  GgufTurn::Rows rows;
  for (int64_t g = 0; g < s.kv_heads; ++g)
    add_rows(rows, g * group + (which == 0 ? 0 : shared + which - 1) * s.head_dim,
             (which == 0 ? shared : 1) * s.head_dim);
  return rows;
}

}  // namespace

void add_rows(GgufTurn::Rows& rows, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) rows.push_back(first + i);
}

GgufTurn::Rows as_neighbours(const GgufTurn::Rows& rows, int64_t heads) {
  const auto all = static_cast<int64_t>(rows.size());
  const int64_t size = heads > 0 ? all / heads : 0;
  require(size > 0 && size % 2 == 0 && size * heads == all, Fault::Model, all, " rows are no ", heads,
          " heads of an even size");
  GgufTurn::Rows out;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t j = 0; j < size; ++j) out.push_back(rows[static_cast<size_t>(h * size + j % 2 * (size / 2) + j / 2)]);
  return out;
}

GgufTurn::Rows neighbours_of_queries(const GgufSizes& s, int64_t all) { return as_neighbours(range(0, all), s.heads); }
GgufTurn::Rows neighbours_of_keys(const GgufSizes& s, int64_t all) { return as_neighbours(range(0, all), s.kv_heads); }

GgufTurn::Rows first_half(const GgufSizes&, int64_t all) { return range(0, all / 2); }
GgufTurn::Rows second_half(const GgufSizes&, int64_t all) { return range(all / 2, all - all / 2); }
GgufTurn::Rows even_rows(const GgufSizes&, int64_t all) { return stride(0, 2, all); }
GgufTurn::Rows odd_rows(const GgufSizes&, int64_t all) { return stride(1, 2, all); }

GgufTurn::Rows query_block(const GgufSizes& s, int64_t) { return range(0, s.heads * s.head_dim); }
GgufTurn::Rows key_block(const GgufSizes& s, int64_t) { return range(s.heads * s.head_dim, s.kv_heads * s.head_dim); }
GgufTurn::Rows value_block(const GgufSizes& s, int64_t) {
  return range((s.heads + s.kv_heads) * s.head_dim, s.kv_heads * s.head_dim);
}

GgufTurn::Rows blocks_of_groups(const GgufSizes& s, int64_t) {
  GgufTurn::Rows rows;
  for (int which : {0, 1, 2})
    for (const int64_t row : part_of_groups(s, which)) rows.push_back(row);
  return rows;
}
GgufTurn::Rows queries_of_groups(const GgufSizes& s, int64_t) { return part_of_groups(s, 0); }
GgufTurn::Rows keys_of_groups(const GgufSizes& s, int64_t) { return part_of_groups(s, 1); }
GgufTurn::Rows values_of_groups(const GgufSizes& s, int64_t) { return part_of_groups(s, 2); }

}  // namespace apus
