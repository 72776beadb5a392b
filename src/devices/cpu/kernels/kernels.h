// SPDX-License-Identifier: Apache-2.0
// The inner loops, one table per instruction set, on plain pointers: what calls them splits work over threads and knows
// tensors. This header and the level files include no library with inline functions: code compiled for a newer
// processor must not become the copy that the linker keeps for everybody.
//
// bf16 is uint16_t here. A "panel" is 32 columns of a right-hand matrix B[k][32], as the multiplication reads it:
//   bf16: [k / 32][2 halves of 16 columns][16 pairs of k][16 columns][2], zero-filled up to a multiple of 32 in k and
//   32 columns
//         (a half is one AMX tile, its rows are the 64 bytes vdpbf16ps takes);
//   f32:  [k][32], zero-filled up to 32 columns.
#pragma once

#include <cstdint>

namespace apus::cpu {

using bf16 = uint16_t;

constexpr int64_t kPanel = 32;                         // columns
constexpr int64_t kDotStretch = 1024, kDotBatch = 60;  // of k, and of rows, that RowKernels::dots takes at a time
template <class E>
constexpr int64_t kDepth = sizeof(E) == 2 ? 32 : 1;  // k is filled up to a multiple of it
template <class E>
constexpr int64_t padded_depth(int64_t k) {
  return (k + kDepth<E> - 1) / kDepth<E> * kDepth<E>;
}
template <class E>
// In elements.
constexpr int64_t panel_size(int64_t k) {
  return padded_depth<E>(k) * kPanel;
}

struct AdamwScalars {
  float lr, beta1, beta2, eps, decay, correction1, correction2, grad_scale;  // corrections: 1 - beta^step
};

// A parameter and its gradient, both bf16 or both f32. master (may be null): what is updated, param is its rounding.
struct AdamwValues {
  bool half;
  void* param;
  const void* grad;
  float* master;
};

// Moments of at most kMomentStretch elements (ops/adamw_8bit.cpp says what the codes mean), a scale for each block of
// kMoments, and where the thresholds begin by which things are rounded: element i of a bf16 parameter has the threshold
// (begin + i * kThresholdStride) mod 2^32, of codes (begin + i * kCodeStride) mod 2^16, its upper byte.
constexpr int64_t kMoments = 256, kMomentStretch = 1024;
constexpr uint32_t kThresholdStride = 0x9e3779b9, kCodeStride = 0x9e37;
struct Moments {
  int8_t* mean;
  uint8_t* square;
  float *mean_scale, *square_scale;
  uint16_t mean_threshold, square_threshold;
  uint32_t param_threshold;
  // True: a bf16 parameter is rounded by thresholds too; false: to the nearest.
  bool stochastic;
};

// Of one row of scaled logits x: the largest and its index, and the sums of exp(x - largest), of x,
// and of exp(x - largest) * x.
struct RowStatistics {
  float largest, sum, sum_x, sum_px;
  int64_t best;
};

// With log p = x * scale - lse: p * (by_p + by_log_p * log p) + constant. by_cap above 0: x are logits bent by
// tanh, and this is multiplied by 1 - (x * by_cap)^2.
struct LogitGradient {
  float scale, lse, by_p, by_log_p, constant, by_cap = 0;
};

// Loops over rows of elements of type E (bf16 or f32); all statistics and sums in f32.
template <class E>
struct RowKernels {
  // c[m][32] = (add ? c : 0) + a[m][k] * panel. a is row-major, readable and finite up to padded_depth(k). The order in
  // which k is summed depends on nothing else than k. next: the panel that will be read after this one, when panels
  // come from memory.
  void (*multiply)(int64_t m, int64_t k, const E* a, int64_t lda, const E* panel, float* c, int64_t ldc, bool add,
                   const E* next);
  // c[m][n] = x[m][k] * the n rows of w, which lie where and as they are. As above each row's result depends on nothing
  // else. space: kDotStretch * kDotBatch floats, or k + 32 if m is 1 and that is more.
  void (*dots)(int64_t m, int64_t n, int64_t k, const E* x, int64_t ldx, const E* w, int64_t ldw, float* c, int64_t ldc,
               float* space);
  // Panels from rows: B's columns are the n <= 32 rows (each k long), or its k rows are the rows (each n <= 32 wide).
  void (*pack_columns)(const E* const* rows, int64_t n, int64_t k, E* panel);
  void (*pack_rows)(const E* const* rows, int64_t k, int64_t n, E* panel);
  // y[m][n] = round(c[m][32] + bias)
  void (*finish)(int64_t m, int64_t n, const float* c, int64_t ldc, const float* bias, E* y, int64_t ldy);
  void (*widen)(int64_t n, const E* x, float* y);
  void (*narrow)(int64_t n, const float* x, float scale, E* y);

  // One block of an online softmax in base 2. Row i sees columns [low[i], high[i]) of scores s[i][columns] (null: all);
  // columns is a multiple of 32, scale2 > 0. Updates the running maximum, sum and output row (o, width h a multiple of
  // 16), writes the probabilities.
  void (*softmax_block)(int64_t rows, int64_t columns, const int32_t* low, const int32_t* high, float scale2, float* s,
                        int64_t lds, float* maximum, float* sum, float* o, int64_t ldo, int64_t h, E* p, int64_t ldp);
  // Gradient block, transposed: rows are keys, columns queries. p = exp2(s * scale2 - lse2[column]) where column is in
  // [low[i], high[i]) (null: all), else 0; ds = p * (dp - delta[column]). bent: s are tangents, and ds is multiplied by
  // 1 - s * s.
  void (*softmax_gradient)(int64_t rows, int64_t columns, const int32_t* low, const int32_t* high, float scale2,
                           const float* s, const float* dp, int64_t lds, const float* lse2, const float* delta, E* p,
                           E* ds, int64_t ldp, bool bent);

  // y = norm(x) * weight; with delta: sum = x + delta first, and its norm.
  void (*rms_norm)(int64_t n, const E* x, const E* delta, E* sum, const E* weight, float eps, E* y);
  // dx = gradient of the norm (+ extra unless null); dweight (f32, may be null) is added to.
  void (*rms_norm_gradient)(int64_t n, const E* x, const E* weight, const E* dy, float eps, const E* extra, E* dx,
                            float* dweight);
  void (*swiglu)(int64_t n, const E* gate, const E* up, E* y);
  void (*swiglu_gradient)(int64_t n, const E* gate, const E* up, const E* dy, E* dgate, E* dup);
  // One head: the first 2r of h elements turn by cos, sin (sign -1: back); the rest is copied. y may be x.
  void (*rope)(int64_t h, int64_t r, const E* x, const float* cos, const float* sin, float sign, E* y);
  double (*sum_of_squares)(int64_t n, const E* x);
  void (*logit_gradient)(int64_t n, const float* x, const LogitGradient& g, E* out);
  // A bf16 panel of depth k as an f32 one (left.h).
  // Null where nothing is gained: for f32, and where bf16 is multiplied by instructions of its own.
  void (*widen_panel)(int64_t k, const E* panel, float* wide);
  // y[m][n] = (add ? y : 0) + h[m][r] * b[r][n], rounded once; few r.
  void (*add_outer)(int64_t m, int64_t n, int64_t r, const float* h, int64_t ldh, const float* b, int64_t ldb, bool add,
                    E* y, int64_t ldy);
  // sums[r][n] += h[m][r]' * x[m][n]; r is a multiple of 4.
  void (*outer_sums)(int64_t m, int64_t n, int64_t r, const float* h, int64_t ldh, const E* x, int64_t ldx, float* sums,
                     int64_t lds);
};

// What a head with a state reads of a sequence's tokens: their queries and keys, their values, by what the sum of keys
// and values is multiplied before each, and the share by which a value corrects what the sum holds under its key.
struct StateTokens {
  int64_t count;
  const float *q, *k, *v;          // of the first
  int64_t q_step, k_step, v_step;  // from token to token
  const float *decay, *share;      // [count]; without shares values are added as they are
};

// What codes of a row's groups of columns are multiplied with (ops/coded_linear.cpp): number = (value(code) - zero) *
// scale - least. All of them f32 (wide) or f16, those of the first column's group first, readable 16 elements behind
// the last's.
constexpr int64_t kCodeStretch = 512;  // columns that are made plain at a time
struct CodeScales {
  const void *scale, *zero, *least;  // zero, least may be null
  bool wide;
  float factor, least_factor;  // of scale and least
  int64_t group;               // columns
};

// Rows of x rounded to whole numbers: those of 32 columns times their scale.
struct Int8Rows {
  const int8_t* number;  // [m][ld], -127 to 127; zeros behind the last column
  const float* scale;    // [m][ld / 32]
  const int32_t* sum;    // [m][ld / 16], of the numbers of 16 columns
  int64_t ld;            // a multiple of 32
};

// 32 rows of a weight, for each four columns the codes of one row after the other; of four bits, each byte has a code
// of the four columns behind in its upper half. Of six bits, behind the lower four of sixteen columns their upper two:
// each byte has those of a column, and of the columns four, eight and twelve behind. scales: [groups][32 rows].
struct CodePanel {
  const uint8_t* codes;
  CodeScales scales;
  int64_t columns, bits;  // columns: a multiple of 32
  // Of four bits: whole numbers that the codes stand for, times book_factor; null: code + offset.
  const int8_t* book;
  float book_factor;
  int32_t offset;
};

// Rows of weights, ld apart, that a product will read after its own:
// it asks memory for its share of them, `pass` of `passes`.
struct NextRows {
  const bf16* first = nullptr;
  int64_t rows = 0, ld = 0, pass = 0, passes = 1;
};

struct Kernels {
  RowKernels<bf16> b16;
  RowKernels<float> f32;
  void (*row_statistics)(int64_t n, const float* x, float scale, RowStatistics* out);
  void (*tanh_of)(int64_t n, float before, float after, float* x);  // x = after * tanh(x * before)
  void (*adamw)(int64_t n, float* param, const float* grad, float* m, float* v, const AdamwScalars& s);
  // n <= kMomentStretch, a multiple of 64
  void (*adamw_moments)(int64_t n, const AdamwValues& values, const Moments& moments, const AdamwScalars& s);
  void (*narrow_by_thresholds)(int64_t n, const float* x, uint32_t threshold, bf16* y);  // stochastic rounding
  // Some columns of a sum: sum[keys][columns], rows `ld` apart; y[count][columns] = sum' q behind each token.
  void (*state_tokens)(int64_t keys, int64_t columns, const StateTokens& tokens, float* sum, int64_t ld, float* y,
                       int64_t ldy);
  // y: the numbers of at most kCodeStretch codes from column `first` of a row on, which is a multiple of it. columns: a
  // multiple of 32. Four bits stand for the numbers of a book of 16, and groups are multiples of 32 columns or whole
  // rows: byte 4 i + j of a row has the codes of columns 8 i + j and, in its upper half, 8 i + 4 + j. Eight bits stand
  // for whole numbers or for 2^-8 of FP8 E4M3 ones, and groups are multiples of 16.
  void (*codes4)(int64_t first, int64_t columns, const uint8_t* codes, const CodeScales& scales, const float* book,
                 bf16* y);
  void (*codes8)(int64_t first, int64_t columns, const uint8_t* codes, const CodeScales& scales, bf16* y);
  void (*codes_e4m3)(int64_t first, int64_t columns, const uint8_t* codes, const CodeScales& scales, bf16* y);
  // The same with one scale, of a multiple of 16 columns.
  void (*row8)(int64_t columns, const uint8_t* codes, float scale, bf16* y);
  void (*row_e4m3)(int64_t columns, const uint8_t* codes, float scale, bf16* y);
  // k elements as numbers, scales and sums of an Int8Rows' row.
  void (*round_int8)(int64_t k, const bf16* x, int8_t* number, float* scale, int32_t* sum);
  // c[m][32] = rounded rows * a panel's. Each row's result depends on nothing else.
  void (*dots_int8)(int64_t m, const Int8Rows& x, const CodePanel& w, float* c);
  // AMX keeps its tile registers configured while a thread multiplies: a Multiplying object does both ends.
  void (*enter)();
  void (*leave)();
  // bf16 in place in f32 with 16 lanes only, else null: c[m][32] = x[m][k] * the n <= 32 rows of w, bit for bit
  // b16.dots, for many rows. x is spread first, into padded_depth(k) floats a row. space: kDotStretch * kPanel floats.
  void (*spread)(int64_t k, const bf16* x, float* y) = nullptr;
  void (*lanes)(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const bf16* w, int64_t ldw, float* c,
                float* space) = nullptr;
  // AMX only, else null: c[m][32] = (add ? c : 0) + the m rows of w, which lie where they are, * the first `columns`
  // columns of a panel. k is a multiple of 32. Element by element the sum that b16.multiply makes of the same two rows.
  void (*multiply_rows)(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* panel, int64_t columns, float* c,
                        bool add, const NextRows& next) = nullptr;
  // The same for no more than 16 columns, given as k/2 rows of `columns` pairs (one column: as it is):
  // c[m][columns] = (add ? c : 0) + ...
  void (*multiply_few)(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* pairs, int64_t columns, float* c,
                       bool add) = nullptr;
  // y[columns][m] = round(c[m]' + bias); c may be read up to 16 floats behind its rows' first.
  void (*finish_turned)(int64_t m, int64_t columns, const float* c, int64_t ldc, const float* bias, bf16* y,
                        int64_t ldy) = nullptr;
};

const Kernels& kernels();  // for isa()

template <class E>
const RowKernels<E>& row_kernels() {
  if constexpr (sizeof(E) == 2)
    return kernels().b16;
  else
    return kernels().f32;
}

class Multiplying {
 public:
  Multiplying() : leave_(kernels().leave) {
    if (kernels().enter) kernels().enter();
  }
  ~Multiplying() {
    if (leave_) leave_();
  }
  Multiplying(const Multiplying&) = delete;
  Multiplying& operator=(const Multiplying&) = delete;

 private:
  void (*leave_)();
};

extern const Kernels kGenericKernels;  // on arm64 those for NEON
extern const Kernels kAvx2Kernels, kAvx512Kernels;
extern const Kernels kAvx512PairKernels;  // products of bf16 by vdpbf16ps rather than in f32
extern const Kernels kDotprodKernels, kI8mmKernels;
void multiply_amx(int64_t m, int64_t k, const bf16* a, int64_t lda, const bf16* panel, float* c, int64_t ldc, bool add,
                  const bf16* next);
void multiply_rows_amx(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* panel, int64_t columns, float* c,
                       bool add, const NextRows& next);
void multiply_few_amx(int64_t m, int64_t k, const bf16* w, int64_t ldw, const bf16* pairs, int64_t columns, float* c,
                      bool add);
void finish_turned_amx(int64_t m, int64_t columns, const float* c, int64_t ldc, const float* bias, bf16* y,
                       int64_t ldy);
void enter_amx();
void leave_amx();

}  // namespace apus::cpu
