// SPDX-License-Identifier: Apache-2.0
// Products of bf16 panels on AMX tiles: two tiles of 16 rows by two of 16 columns. Rows of a tile do not touch each other, so a
// row's result is the same in a tile of one row and of sixteen.
#include "devices/cpu/ahead.h"
#include "devices/cpu/kernels.h"

#if defined(__AMX_BF16__)
#include <immintrin.h>

namespace apus::cpu {

namespace {
thread_local int configured_rows = 0;

// Tiles 0-3: sums (2 rows of tiles by 2 columns), 4-5: rows of a, 6-7: halves of the panel.
void configure(int rows) {
  if (rows == configured_rows) return;
  configured_rows = rows;
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
  } config;
  for (int i = 0; i < 6; ++i) config.rows[i] = static_cast<uint8_t>(rows);
  config.rows[6] = config.rows[7] = 16;
  asm volatile("" : : "r"(&config) : "memory");  // the intrinsic below does not say that it reads all 64 bytes
  _tile_loadconfig(&config);
}

// 32 rows.
void two_by_two(int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add, Ahead ahead) {
  float* low = c + 16 * ldc;
  const int64_t stride = 4 * ldc;
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, low, stride);
    _tile_loadd(3, low + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const bf16* a_low = a + 16 * lda;
  for (int64_t i = 0; i < k; i += 32, b += 1024) {
    ahead.fetch();
    _tile_loadd(4, a + i, 2 * lda);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 512, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a_low + i, 2 * lda);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, low, stride);
  _tile_stored(3, low + 16, stride);
}

// As many rows as are configured, at most 16.
void one_by_two(int64_t k, const bf16* a, int64_t lda, const bf16* b, float* c, int64_t ldc, bool add, Ahead ahead) {
  const int64_t stride = 4 * ldc;
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
  }
  for (int64_t i = 0; i < k; i += 32, b += 1024) {
    ahead.fetch();
    _tile_loadd(4, a + i, 2 * lda);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 512, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
}
}  // namespace

void enter_amx() { configured_rows = 0; }  // another library may have used the tiles since
void leave_amx() { _tile_release(); }

void multiply_amx(int64_t m, int64_t k, const bf16* a, int64_t lda, const bf16* panel, float* c, int64_t ldc, bool add, const bf16* next) {
  int64_t row = 0, pass = 0;
  const int64_t passes = m / 32 + (m % 32 > 16) + (m % 32 > 0);
  const auto ahead = [&] { return Ahead(panel, next, k, pass++, passes); };
  if (m >= 16) configure(16);
  for (; row + 32 <= m; row += 32) two_by_two(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead());
  if (row + 16 <= m) one_by_two(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead()), row += 16;
  if (row == m) return;
  configure(static_cast<int>(m - row));
  one_by_two(k, a + row * lda, lda, panel, c + row * ldc, ldc, add, ahead());
}

}  // namespace apus::cpu
#endif
