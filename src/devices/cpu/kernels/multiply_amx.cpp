// SPDX-License-Identifier: Apache-2.0
// Products of bf16 panels on AMX tiles: two tiles of 16 rows by two of 16 columns. Rows of a tile do not affect each
// other, so a row's result is the same in a tile of one row and of sixteen. Nor do columns, and a product is the same
// whichever side a factor stands on: so either side may be the packed one, and the sums of two rows are the same.
#include <immintrin.h>

#include "devices/cpu/kernels/ahead.h"
#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/kernels/transpose.h"
#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {

namespace {
thread_local int configured_rows = 0, configured_columns = 0;

// Tiles 0-3: sums (2 rows of tiles by 2 columns), 4-5: rows of a, 6-7: halves of the panel.
void configure(int rows, int columns = 16) {
  if (rows == configured_rows && columns == configured_columns) return;
  configured_rows = rows, configured_columns = columns;
  const auto across = static_cast<uint16_t>(4 * columns);  // bytes
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 8; ++i) {
    config.bytes[i] = i == 4 || i == 5 ? 64 : across;
    config.rows[i] = i < 6 ? static_cast<uint8_t>(rows) : 16;
  }
  asm volatile("" : : "r"(&config) : "memory");  // the intrinsic below does not say that it reads all 64 bytes
  _tile_loadconfig(&config);
}

// kRows tiles of a by kColumns of the panel's two; as many rows a tile as are configured.
template <int kRows, int kColumns, class Asking>
void tiles(int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add, Asking ahead) {
  constexpr bool wide = kColumns == 2, tall = kRows == 2;
  float* low = c + 16 * ldc;
  const bf16* a_low = a + 16 * lda;
  const int64_t stride = 4 * ldc;
  if (add) {
    _tile_loadd(0, c, stride);
    if constexpr (wide) _tile_loadd(1, c + 16, stride);
    if constexpr (tall) _tile_loadd(2, low, stride);
    if constexpr (tall && wide) _tile_loadd(3, low + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < k; i += 32, b += 1024) {
    ahead.fetch();
    _tile_loadd(4, a + i, 2 * lda);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (wide) {
      _tile_loadd(7, b + 512, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (tall) {
      _tile_loadd(5, a_low + i, 2 * lda);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (tall && wide) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  if constexpr (wide) _tile_stored(1, c + 16, stride);
  if constexpr (tall) _tile_stored(2, low, stride);
  if constexpr (tall && wide) _tile_stored(3, low + 16, stride);
}

// m rows, 32 at a time; ahead(): what each pass over the panel asks for.
template <int kColumns, class Asking>
void rows(int64_t m, int64_t k, const bf16* a, int64_t lda, const bf16* panel, float* c, int64_t ldc, bool add,
          const Asking& ahead) {
  int64_t row = 0;
  if (m >= 16) configure(16);
  for (; row + 32 <= m; row += 32) tiles<2, kColumns>(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead());
  if (row + 16 <= m) tiles<1, kColumns>(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead()), row += 16;
  if (row == m) return;
  configure(static_cast<int>(m - row));
  tiles<1, kColumns>(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead());
}

// kRows tiles of w by one as narrow as there are columns. Nothing is asked for: 16 or 32 rows of w side by side are
// streams that the processor sees by itself, and asking for lines of others slowed them (22 instead of 27 GB/s).
template <int kRows>
void narrow_tiles(int64_t k, const bf16* w, int64_t ldw, const bf16* pairs, int64_t columns, float* c, bool add) {
  constexpr bool tall = kRows == 2;
  if (add) {
    _tile_loadd(0, c, 4 * columns);
    if constexpr (tall) _tile_loadd(2, c + 16 * columns, 4 * columns);
  } else {
    _tile_zero(0);
    if constexpr (tall) _tile_zero(2);
  }
  for (int64_t i = 0; i < k; i += 32) {
    _tile_loadd(6, pairs + i * columns, 4 * columns);
    _tile_loadd(4, w + i, 2 * ldw);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (tall) {
      _tile_loadd(5, w + 16 * ldw + i, 2 * ldw);
      _tile_dpbf16ps(2, 5, 6);
    }
  }
  _tile_stored(0, c, 4 * columns);
  if constexpr (tall) _tile_stored(2, c + 16 * columns, 4 * columns);
}
}  // namespace

void enter_amx() { configured_rows = 0; }  // another library may have used the tiles since
void leave_amx() { _tile_release(); }

void multiply_amx(int64_t m, int64_t k, const bf16* a, int64_t lda, const bf16* panel, float* c, int64_t ldc, bool add,
                  const bf16* next) {
  int64_t pass = 0;
  const int64_t passes = m / 32 + (m % 32 > 16) + (m % 32 > 0);
  rows<2>(m, k, a, lda, panel, c, ldc, add, [&] { return Ahead(panel, next, k, pass++, passes); });
}

void multiply_few_amx(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* pairs, int64_t columns, float* c,
                      bool add) {
  for (int64_t row = 0; row < m;) {
    const int64_t left = m - row, rows = left < 16 ? left : 16;
    configure(static_cast<int>(rows), static_cast<int>(columns));
    if (left >= 32)
      narrow_tiles<2>(k, w + row * ldw, ldw, pairs, columns, c + row * columns, add), row += 32;
    else
      narrow_tiles<1>(k, w + row * ldw, ldw, pairs, columns, c + row * columns, add), row += rows;
  }
}

void multiply_rows_amx(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* panel, int64_t columns, float* c,
                       bool add, const NextRows& next) {
  const auto ahead = [&] { return AheadRows(next, k); };
  if (columns > 16)
    rows<2>(m, k, w, ldw, panel, c, kPanel, add, ahead);
  else
    rows<1>(m, k, w, ldw, panel, c, kPanel, add, ahead);
}

void finish_turned_amx(int64_t m, int64_t columns, const float* c, int64_t ldc, const float* bias, bf16* y,
                       int64_t ldy) {
  for (int64_t i = 0; i < m; i += 16)
    for (int64_t j = 0; j < columns; j += 16) {
      const int64_t n = m - i < 16 ? m - i : 16;
      const void* from[16] = {};
      for (int64_t r = 0; r < n; ++r) from[r] = c + (i + r) * ldc + j;
      float turned[16][16];
      transpose16(from, n, 0, turned);
      const Floats added = bias ? load_some(bias + i, n) : Floats{};
      for (int64_t q = 0; q < 16 && j + q < columns; ++q) {
        const Floats total = bias ? load(turned[q]) + added : load(turned[q]);
        bf16* to = y + (j + q) * ldy + i;
        if (n == 16)
          store(to, total);
        else
          store_some(to, total, n);
      }
    }
}

}  // namespace apus::cpu
