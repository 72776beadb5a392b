// SPDX-License-Identifier: Apache-2.0
// Orders of rows that families share (GgufTurn::rows).
#pragma once

#include "gguf/form.h"

namespace apus {

// Of each head, (half, j) in the order (j, half).
GgufTurn::Rows neighbours_of_queries(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows neighbours_of_keys(const GgufSizes& sizes, int64_t all);
// The first and the second half of all rows; those of even and of odd numbers.
GgufTurn::Rows first_half(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows second_half(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows even_rows(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows odd_rows(const GgufSizes& sizes, int64_t all);
// One matrix of all queries, all keys, all values, apart.
GgufTurn::Rows query_block(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows key_block(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows value_block(const GgufSizes& sizes, int64_t all);
// One that has, of every key-value head, its queries, its key and its value: all queries, keys, values.
GgufTurn::Rows blocks_of_groups(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows queries_of_groups(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows keys_of_groups(const GgufSizes& sizes, int64_t all);
GgufTurn::Rows values_of_groups(const GgufSizes& sizes, int64_t all);

// Rows [first, first + count).
void add_rows(GgufTurn::Rows& rows, int64_t first, int64_t count);
// `rows`, whose heads' numbers turn together as neighbours in the file.
GgufTurn::Rows as_neighbours(const GgufTurn::Rows& rows, int64_t heads);

}  // namespace apus
