// SPDX-License-Identifier: Apache-2.0
// Attention of some queries to the keys of one sequence, in tiles with an online softmax: what training, prefill and
// decoding share. Keys are visited in blocks of 128 that begin at multiples of 128, and sums are merged every 512, so a
// query's result depends on its own keys only: not on other sequences, nor on how many queries are computed at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "devices/cpu/kernels/coded_row.h"
#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

constexpr int64_t kKeyBlock = 128, kKeyChunk = 512, kQueryTile = 64;

struct View {  // what a query may see
  bool causal;
  int64_t window;  // ops::Mask::window
  // How far a query sees forward, itself among it; 0: to the end.
  int64_t reach() const { return causal ? 1 : window < 0 ? -window : 0; }
  // Keys [first, last) of `keys` for the query at `position`.
  int64_t first(int64_t position) const {
    return window != 0 ? std::max<int64_t>(0, position - std::abs(window) + 1) : 0;
  }
  int64_t last(int64_t position, int64_t keys) const {
    return reach() > 0 ? std::clamp<int64_t>(position + reach(), 0, keys) : keys;
  }
};

// Rows of one key-value head of one sequence, contiguous or in pages.
template <class E>
struct Rows {
  const E* base;
  int64_t stride;                  // elements between tokens
  const int32_t* table = nullptr;  // page numbers, when in pages
  int64_t page = 1;                // tokens in a page
  // In codes (devices/cpu/kernels/coded_row.h): then of bytes, and `base` is null. Where a row's scale lies, and
  // whether its codes are whole numbers.
  const uint8_t* codes = nullptr;
  int64_t scale_at = 0;
  bool whole = true;
  int64_t begin_of(int64_t j) const { return (table ? int64_t{table[j / page]} * page + j % page : j) * stride; }
  const E* operator[](int64_t j) const { return base + begin_of(j); }
};

template <class E>
struct Queries {
  const E* q;
  E* out;
  float* lse;                  // may be null
  int64_t rows, heads, h, hv;  // `heads` query heads of one key-value head; the size of keys and that of values
  int64_t row_stride, head_stride, out_row_stride, out_head_stride, lse_row_stride, lse_head_stride;
  int64_t position;  // of row 0
  int64_t step = 1;  // position of row i: position + i * step
  // Of each head, may be null: a score whose share is thrown away.
  const float* sinks = nullptr;
  int64_t sink_row_stride = 0, sink_head_stride = 1;
};

// What scores are: products times scale, bent towards softcap where that is above 0.
struct Scores {
  double scale, softcap;
  // Of the numbers that a block of softmax reads: products, or tangents (which times softcap are the scores), base 2.
  float scale2() const { return static_cast<float>((softcap > 0 ? softcap : scale) * 1.4426950408889634); }
  float into_tanh() const { return static_cast<float>(scale / softcap); }
};

// The running maximum (base 2), sum and output of every row.
struct SoftmaxState {
  float *maximum, *sum, *o;
  void clear(int64_t rows, int64_t width) {
    std::fill_n(maximum, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, rows, 0.0f);
    std::fill_n(o, rows * width, 0.0f);
  }
  void merge(const SoftmaxState& other, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; ++i) {
      if (other.sum[i] == 0) continue;
      const float top = std::max(maximum[i], other.maximum[i]);
      const float mine = std::exp2(maximum[i] - top), its = std::exp2(other.maximum[i] - top);
      for (int64_t d = 0; d < width; ++d) o[i * width + d] = o[i * width + d] * mine + other.o[i * width + d] * its;
      sum[i] = sum[i] * mine + other.sum[i] * its;
      maximum[i] = top;
    }
  }
};

template <class E>
class Attend {
 public:
  // keys: how many the sequence has. Multiplying must be entered by the caller.
  Attend(const Queries<E>& queries, const Rows<E>& k, const Rows<E>& v, int64_t keys, View view, const Scores& scores)
      : x_(decode_form(queries)),
        k_(k),
        v_(v),
        keys_(keys),
        view_(view),
        scores_(scores),
        scale2_(scores.scale2()),
        width_((x_.hv + kPanel - 1) / kPanel * kPanel),
        depth_(padded_depth<E>(x_.h)),
        wide_(row_kernels<E>().widen_panel && x_.rows * x_.heads >= kRepays) {}

  void run() {
    const int64_t rows = x_.rows * x_.heads;
    SoftmaxState total = state(kTotal, rows), part = state(kPart, rows);
    prepare_queries();
    if (wide_) widen_queries();
    const int64_t last_position = x_.position + (x_.rows - 1) * x_.step;
    const int64_t begin = view_.first(x_.position), end = view_.last(last_position, keys_);
    total.clear(rows, width_);
    bool first = true;
    for (int64_t chunk = begin / kKeyChunk * kKeyChunk; chunk < end; chunk += kKeyChunk) {
      SoftmaxState& target = first ? total : part;
      if (!first) part.clear(rows, width_);
      for (int64_t j = chunk; j < std::min(end, chunk + kKeyChunk); j += kKeyBlock)
        if (j + kKeyBlock > begin) block(j, std::min(kKeyBlock, end - j), target);
      if (!first) total.merge(part, rows, width_);
      first = false;
    }
    finish(total);
  }

 private:
  enum Slot {
    kKeysT = 2,
    kValues,
    kScores,
    kProbs,
    kTotal,
    kPart,
    kPaddedQueries,
    kWideKeys,
    kWideValues,
    kWideProbs,
    kWideQueries,
    kPlainKeys,
    kPlainValues
  };
  // From so many rows of queries on, keys and values are widened to f32 once for all rows.
  static constexpr int64_t kRepays = 64;

  // One query: its heads become the rows of one product.
  static Queries<E> decode_form(Queries<E> x) {
    if (x.rows != 1) return x;
    x.rows = x.heads, x.heads = 1, x.step = 0;
    x.row_stride = x.head_stride, x.out_row_stride = x.out_head_stride, x.lse_row_stride = x.lse_head_stride;
    x.sink_row_stride = x.sink_head_stride;
    return x;
  }

  SoftmaxState state(int slot, int64_t rows) const {
    float* p = scratch(slot, rows * (width_ + 2));
    return {p + rows * width_, p + rows * (width_ + 1), p};
  }

  void prepare_queries() {
    if (depth_ == x_.h) return;
    E* filled = reinterpret_cast<E*>(scratch(kPaddedQueries, x_.rows * x_.heads * depth_));
    std::fill_n(filled, x_.rows * x_.heads * depth_, E(0));
    for (int64_t head = 0; head < x_.heads; ++head)
      for (int64_t i = 0; i < x_.rows; ++i)
        std::copy_n(x_.q + head * x_.head_stride + i * x_.row_stride, x_.h, filled + (head * x_.rows + i) * depth_);
    x_.q = filled, x_.row_stride = depth_, x_.head_stride = x_.rows * depth_;
  }

  int64_t wide_stride() const { return depth_ + 16; }
  void widen_queries() {
    float* wide = scratch(kWideQueries, x_.rows * x_.heads * wide_stride());
    for (int64_t head = 0; head < x_.heads; ++head)
      for (int64_t i = 0; i < x_.rows; ++i)
        row_kernels<E>().widen(depth_, x_.q + head * x_.head_stride + i * x_.row_stride,
                               wide + (head * x_.rows + i) * wide_stride());
  }

  // Codes are made plain first.
  static void find_rows(const Rows<E>& from, int64_t j, int64_t n, int64_t width, int slot, const E** rows) {
    const int64_t apart = (width + 15) / 16 * 16;
    E* const plain = from.codes ? reinterpret_cast<E*>(scratch(slot, kKeyBlock * apart)) : nullptr;
    for (int64_t i = 0; i < n; ++i) {
      rows[i] = plain ? plain + i * apart : from[j + i];
      if (plain) read_coded(from.codes + from.begin_of(j + i), width, from.scale_at, from.whole, plain + i * apart);
    }
  }

  void block(int64_t j, int64_t n, SoftmaxState& s) {
    const RowKernels<E>& kernel = row_kernels<E>();
    const int64_t panels = (n + kPanel - 1) / kPanel;
    E* keys_t = reinterpret_cast<E*>(scratch(kKeysT, kKeyBlock * depth_));
    E* values = reinterpret_cast<E*>(scratch(kValues, kKeyBlock * width_));
    const E *k_rows[kKeyBlock], *v_rows[kKeyBlock];
    find_rows(k_, j, n, x_.h, kPlainKeys, k_rows), find_rows(v_, j, n, x_.hv, kPlainValues, v_rows);
    for (int64_t p = 0; p < panels; ++p)
      kernel.pack_columns(k_rows + p * kPanel, std::min(kPanel, n - p * kPanel), x_.h,
                          keys_t + p * panel_size<E>(x_.h));
    for (int64_t d = 0; d < width_; d += kPanel) {
      kernel.pack_rows(v_rows, n, std::min(kPanel, x_.hv - d), values + d * padded_depth<E>(n));
      for (int64_t i = 0; i < n; ++i) v_rows[i] += kPanel;
    }
    if (wide_) {
      const auto widen = kernel.widen_panel;
      for (int64_t p = 0; p < panels; ++p)
        widen(depth_, keys_t + p * depth_ * kPanel, scratch(kWideKeys, kKeyBlock * depth_) + p * depth_ * kPanel);
      const int64_t depth = padded_depth<E>(n);
      for (int64_t d = 0; d < width_; d += kPanel)
        widen(depth, values + d * depth, scratch(kWideValues, kKeyBlock * width_) + d * depth);
    }
    for (int64_t head = 0; head < x_.heads; ++head)
      for (int64_t row = 0; row < x_.rows; row += kQueryTile) tile(head, row, j, n, keys_t, values, s);
  }

  // The scores of `rows` queries from `at` on, and later their outputs: bit for bit what RowKernels<E>::multiply gives,
  // but both sides have been widened beforehand.
  void multiply_keys(int64_t rows, int64_t at, const E* q, int64_t panels, const E* keys_t, float* scores) const {
    for (int64_t p = 0; p < panels; ++p)
      if (wide_)
        kernels().f32.multiply(rows, depth_, scratch(kWideQueries, 0) + at * wide_stride(), wide_stride(),
                               scratch(kWideKeys, 0) + p * depth_ * kPanel, scores + p * kPanel, kKeyBlock, false,
                               nullptr);
      else
        row_kernels<E>().multiply(rows, x_.h, q, x_.row_stride, keys_t + p * depth_ * kPanel, scores + p * kPanel,
                                  kKeyBlock, false, nullptr);
  }
  void multiply_values(int64_t rows, int64_t n, const E* probs, const E* values, float* o) const {
    const int64_t depth = padded_depth<E>(n), stride = kKeyBlock + 16;
    float* wide = wide_ ? scratch(kWideProbs, kQueryTile * stride) : nullptr;
    for (int64_t i = 0; wide && i < rows; ++i) row_kernels<E>().widen(depth, probs + i * kKeyBlock, wide + i * stride);
    for (int64_t d = 0; d < width_; d += kPanel)
      if (wide)
        kernels().f32.multiply(rows, depth, wide, stride, scratch(kWideValues, 0) + d * depth, o + d, width_, true,
                               nullptr);
      else
        row_kernels<E>().multiply(rows, n, probs, kKeyBlock, values + d * depth, o + d, width_, true, nullptr);
  }

  void tile(int64_t head, int64_t row, int64_t j, int64_t n, const E* keys_t, const E* values, SoftmaxState& s) {
    const RowKernels<E>& kernel = row_kernels<E>();
    const int64_t rows = std::min(kQueryTile, x_.rows - row), panels = (n + kPanel - 1) / kPanel;
    const int64_t from = x_.position + row * x_.step, to = from + (rows - 1) * x_.step;
    if (view_.last(to, keys_) <= j || view_.first(from) >= j + n) return;
    int32_t low[kQueryTile], high[kQueryTile];
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t position = from + i * x_.step;
      low[i] = static_cast<int32_t>(std::clamp<int64_t>(view_.first(position) - j, 0, n));
      high[i] = static_cast<int32_t>(std::clamp<int64_t>(view_.last(position, keys_) - j, 0, n));
    }
    float* scores = scratch(kScores, kQueryTile * kKeyBlock);
    E* probs = reinterpret_cast<E*>(scratch(kProbs, kQueryTile * kKeyBlock));
    const E* q = x_.q + head * x_.head_stride + row * x_.row_stride;
    const int64_t at = head * x_.rows + row;
    multiply_keys(rows, at, q, panels, keys_t, scores);
    if (scores_.softcap > 0)
      for (int64_t i = 0; i < rows; ++i)
        kernels().tanh_of(panels * kPanel, scores_.into_tanh(), 1.0f, scores + i * kKeyBlock);
    kernel.softmax_block(rows, panels * kPanel, low, high, scale2_, scores, kKeyBlock, s.maximum + at, s.sum + at,
                         s.o + at * width_, width_, width_, probs, kKeyBlock);
    multiply_values(rows, n, probs, values, s.o + at * width_);
  }

  void finish(const SoftmaxState& s) {
    for (int64_t head = 0; head < x_.heads; ++head)
      for (int64_t i = 0; i < x_.rows; ++i) {
        const int64_t at = head * x_.rows + i;
        float sum = s.sum[at], top = s.maximum[at], kept = 1;
        if (x_.sinks) {
          const float sink = x_.sinks[head * x_.sink_head_stride + i * x_.sink_row_stride] * 1.44269504088896341f;
          const float higher = std::max(top, sink);
          kept = std::exp2(top - higher), top = higher;
          sum = sum * kept + std::exp2(sink - top);
        }
        row_kernels<E>().narrow(x_.hv, s.o + at * width_, sum > 0 ? kept / sum : 0.0f,
                                x_.out + head * x_.out_head_stride + i * x_.out_row_stride);
        if (x_.lse)
          x_.lse[head * x_.lse_head_stride + i * x_.lse_row_stride] =
              sum > 0 ? (top + std::log2(sum)) * 0.69314718055994531f : -std::numeric_limits<float>::infinity();
      }
  }

  Queries<E> x_;
  Rows<E> k_, v_;
  int64_t keys_;
  View view_;
  Scores scores_;
  float scale2_;
  int64_t width_, depth_;
  bool wide_;  // products of bf16 are computed in f32, and rows are many
};

// Queries of a head that one piece of work takes:
// some hundred rows over all heads of the group, so that packing keys pays.
inline int64_t queries_at_once(int64_t group) { return std::clamp<int64_t>(256 / group, 32, 256) / 32 * 32; }

}  // namespace apus::cpu
