// SPDX-License-Identifier: Apache-2.0
// The logits of some tokens over the whole vocabulary, and what a gradient of them does to hidden states and head. The
// head is read in blocks of 1024 rows, each packed while it is in the cache.
// Sums go in an order that does not depend on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/kernels/left.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

constexpr int64_t kVocabularyBlock = 1024;
constexpr int64_t kLogitStride = kVocabularyBlock + 16;  // rows 4096 bytes apart would share one set of the cache

// One token's logits (scaled) over the whole vocabulary.
struct LogitRow {
  float lse, label, mean, entropy;
  bool correct;
};

// Of the blocks of one row, whose statistics are `apart` from one another. at_label: the scaled logit.
inline LogitRow row_of(const RowStatistics* parts, int64_t apart, int64_t blocks, int64_t vocabulary, int64_t label,
                       float at_label) {
  float largest = -std::numeric_limits<float>::infinity();
  int64_t best = 0;
  for (int64_t b = 0; b < blocks; ++b)
    if (parts[b * apart].largest > largest)
      largest = parts[b * apart].largest, best = b * kVocabularyBlock + parts[b * apart].best;
  double sum = 0, sum_x = 0, sum_px = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const RowStatistics& part = parts[b * apart];
    const double weight = std::exp(static_cast<double>(part.largest) - largest);
    sum += weight * part.sum, sum_px += weight * part.sum_px, sum_x += part.sum_x;
  }
  const double lse = largest + std::log(sum);
  return {static_cast<float>(lse), at_label, static_cast<float>(sum_x / static_cast<double>(vocabulary)),
          static_cast<float>(lse - sum_px / sum), best == label};
}

// Logits are sums of products hidden [n, width] head' [width, vocabulary]: the head's own, and one of low rank where it
// has LoRA factors.
template <class E>
struct HeadMatrix {
  const E* rows;          // [vocabulary, width], `stride` apart
  int64_t width, stride;  // width is a multiple of 32
};
template <class E>
struct HiddenRows {
  const E* rows;
  int64_t stride;
};
// Either may be null.
template <class E>
struct HeadSums {
  float* hidden;  // [n, width], written
  // [panel][width][32]: written for the first tokens; later sums are added in f32 and rounded. Ends with turn_head().
  E* head;
};
// Gradients of logits that are kept until all tokens have been seen: part p holds `columns` of the vocabulary, from
// p * columns on, its rows as far apart.
template <class E>
struct KeptGradients {
  std::vector<E*> parts;
  int64_t columns = 0;
};

template <class E>
class Logits {
 public:
  using Hidden = std::vector<HiddenRows<E>>;  // of each product

  // Each of the blocks_of(vocabulary) blocks holds block_size() floats.
  // softcap above 0: logits are bent to softcap * tanh(logit / softcap), before they are scaled.
  // in_place: the sums of weights that are multiplied where they lie, as an engine multiplies them.
  Logits(std::vector<HeadMatrix<E>> heads, int64_t vocabulary, float scale, float softcap, bool in_place,
         std::vector<float*> blocks)
      : heads_(std::move(heads)),
        vocabulary_(vocabulary),
        scale_(scale),
        softcap_(softcap),
        in_place_(in_place && sizeof(E) == 2 && heads_.size() == 1 && !kernels().multiply_rows),
        logits_(std::move(blocks)),
        blocks_(blocks_of(vocabulary)) {}

  static int64_t blocks_of(int64_t vocabulary) { return (vocabulary + kVocabularyBlock - 1) / kVocabularyBlock; }
  static int64_t block_size(int64_t tokens) { return kLogitStride * tokens; }

  // Logits of n tokens, and each row's summary.
  std::vector<LogitRow> compute(const Hidden& hidden, int64_t n, const int64_t* label) {
    n_ = n;
    std::vector<RowStatistics> parts(blocks_ * n);
    share(blocks_, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      for (int64_t b = begin; b < end; ++b) block_logits(b, hidden, parts.data() + b * n);
    });
    std::vector<LogitRow> rows(n);
    for (int64_t i = 0; i < n; ++i) rows[i] = summary(i, label[i], parts.data() + i);
    return rows;
  }

  // Gradient of the logits of row i: gradient[i] everywhere, and at_label[i] more at its label; what it means for each
  // product. keep: rows to write it to, or none. first: no token came before these.
  void backward(const Hidden& hidden, const int64_t* label, const LogitGradient* gradient, const float* at_label,
                const std::vector<HeadSums<E>>& into, bool first, const KeptGradients<E>& keep, float* space) const {
    const int64_t groups = std::min<int64_t>(kGroups, blocks_), per_group = (blocks_ + groups - 1) / groups;
    std::vector<const E*> transposed(heads_.size());
    std::vector<float*> sums(heads_.size());  // of d_hidden, one a group
    for (size_t h = 0; h < heads_.size(); ++h) {
      if (into[h].head) transposed[h] = transpose(static_cast<int>(h), hidden[h]);
      sums[h] = space, space += kGroups * n_ * heads_[h].width;
    }
    share(groups, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      E* const own = keep.parts.empty() ? reinterpret_cast<E*>(scratch(kGradients, n_ * kVocabularyBlock)) : nullptr;
      for (int64_t g = begin; g < end; ++g) {
        for (size_t h = 0; h < heads_.size(); ++h)
          if (into[h].hidden) std::fill_n(sums[h] + g * n_ * heads_[h].width, n_ * heads_[h].width, 0.0f);
        for (int64_t b = g * per_group; b < std::min(blocks_, (g + 1) * per_group); ++b) {
          const int64_t column = b * kVocabularyBlock;
          E* const d = own ? own : keep.parts[column / keep.columns] + column % keep.columns;
          const int64_t stride = own ? kVocabularyBlock : keep.columns;
          block_gradient(b, label, gradient, at_label, d, stride);
          for (size_t h = 0; h < heads_.size(); ++h) {
            if (into[h].hidden) add_to_hidden(heads_[h], b, d, stride, sums[h] + g * n_ * heads_[h].width);
            if (into[h].head) add_to_head(heads_[h].width, b, d, stride, transposed[h], first, into[h].head);
          }
        }
      }
    });
    for (size_t h = 0; h < heads_.size(); ++h)
      if (into[h].hidden) sum_groups(groups, heads_[h].width, sums[h], into[h].hidden);
  }
  // In floats; `width`: the widths of all products together.
  static int64_t backward_space(int64_t tokens, int64_t width) { return kGroups * tokens * width; }
  static int64_t head_space(int64_t vocabulary, int64_t width) {
    return (vocabulary + kPanel - 1) / kPanel * kPanel * width;
  }

  // Rearranges the head's sums to rows [vocabulary, width] in place:
  // a panel holds as many as the 32 rows it stands for.
  static void turn_head(int64_t vocabulary, int64_t width, E* sums) {
    share((vocabulary + kPanel - 1) / kPanel, 8, [&](int64_t begin, int64_t end) {
      E* const panel = reinterpret_cast<E*>(scratch(kPanels, width * kPanel));
      for (int64_t p = begin; p < end; ++p) {
        E* const rows = sums + p * kPanel * width;
        std::copy_n(rows, kPanel * width, panel);
        for (int64_t v = 0; v < kPanel; ++v)
          for (int64_t d = 0; d < width; ++d) rows[v * width + d] = panel[d * kPanel + v];
      }
    });
  }

 private:
  static constexpr int64_t kGroups = 16;  // parts of the vocabulary that sum d_hidden for themselves
  enum Slot { kPanels = 2, kGradients, kRows, kSums, kTransposed };  // the last: one for each product

  int64_t columns(int64_t block) const { return std::min(kVocabularyBlock, vocabulary_ - block * kVocabularyBlock); }
  float* block_at(int64_t block) const { return logits_[static_cast<size_t>(block)]; }

  void dots_in_place(int64_t block, const HiddenRows<E>& hidden) const {
    const HeadMatrix<E>& m = heads_[0];
    float* const space = scratch(kRows, std::max(m.width + 32, kDotStretch * kDotBatch));
    row_kernels<E>().dots(n_, columns(block), m.width, hidden.rows, hidden.stride,
                          m.rows + block * kVocabularyBlock * m.stride, m.stride, block_at(block), kLogitStride, space);
  }

  void block_logits(int64_t block, const Hidden& hidden, RowStatistics* parts) const {
    if (in_place_)
      dots_in_place(block, hidden[0]);
    else
      multiply_panels(block, hidden);
    if (softcap_ > 0)
      for (int64_t i = 0; i < n_; ++i)
        kernels().tanh_of(columns(block), 1 / softcap_, softcap_, block_at(block) + i * kLogitStride);
    for (int64_t i = 0; i < n_; ++i)
      kernels().row_statistics(columns(block), block_at(block) + i * kLogitStride, scale_, parts + i);
  }

  void multiply_panels(int64_t block, const Hidden& hidden) const {
    const E* rows[kPanel];
    for (size_t h = 0; h < heads_.size(); ++h) {
      const HeadMatrix<E>& m = heads_[h];
      E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(m.width)));
      const Left<E> left(hidden[h].rows, hidden[h].stride, n_, m.width, scratch(kRows, Left<E>::room_for(n_, m.width)));
      for (int64_t c = 0; c < columns(block); c += kPanel) {
        const int64_t count = std::min(kPanel, columns(block) - c);
        for (int64_t i = 0; i < count; ++i) rows[i] = m.rows + (block * kVocabularyBlock + c + i) * m.stride;
        row_kernels<E>().pack_columns(rows, count, m.width, panel);
        left.times(panel, block_at(block) + c, kLogitStride, h > 0);
      }
    }
  }

  // parts: this row's statistics of block b at parts[b * n].
  LogitRow summary(int64_t row, int64_t label, const RowStatistics* parts) const {
    const float at_label = block_at(label / kVocabularyBlock)[row * kLogitStride + label % kVocabularyBlock] * scale_;
    return row_of(parts, n_, blocks_, vocabulary_, label, at_label);
  }

  void block_gradient(int64_t block, const int64_t* label, const LogitGradient* gradient, const float* at_label, E* d,
                      int64_t stride) const {
    const int64_t n = columns(block);
    for (int64_t i = 0; i < n_; ++i) {
      E* row = d + i * stride;
      const float* x = block_at(block) + i * kLogitStride;
      LogitGradient g = gradient[i];
      g.by_cap = softcap_ > 0 ? 1 / softcap_ : 0;
      row_kernels<E>().logit_gradient(n, x, g, row);
      std::fill(row + n, row + kVocabularyBlock, E(0));
      const int64_t at = label[i] - block * kVocabularyBlock;
      if (at < 0 || at >= n) continue;
      // Computed once more in f32, so that the large and the small part are added before they are rounded.
      const float log_p = x[at] * g.scale - g.lse, tangent = x[at] * g.by_cap,
                  value = (std::exp(log_p) * (g.by_p + g.by_log_p * log_p) + g.constant + at_label[i]) *
                          (1 - tangent * tangent);
      row_kernels<E>().narrow(1, &value, 1.0f, row + at);
    }
  }

  void add_to_hidden(const HeadMatrix<E>& m, int64_t block, const E* d, int64_t stride, float* sums) const {
    const int64_t n = columns(block);
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(std::max(kVocabularyBlock, m.width))));
    const E* rows[kVocabularyBlock];
    for (int64_t i = 0; i < n; ++i) rows[i] = m.rows + (block * kVocabularyBlock + i) * m.stride;
    const Left<E> left(d, stride, n_, n, scratch(kRows, Left<E>::room_for(n_, n)));
    for (int64_t w = 0; w < m.width; w += kPanel) {
      const int64_t count = std::min(kPanel, m.width - w);
      row_kernels<E>().pack_rows(rows, n, count, panel);
      left.times(panel, sums + w, m.width, true);
      for (int64_t i = 0; i < n; ++i) rows[i] += kPanel;
    }
  }

  void add_to_head(int64_t width, int64_t block, const E* d, int64_t stride, const E* transposed, bool first,
                   E* d_head) const {
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(std::max(n_, std::max(kVocabularyBlock, width)))));
    std::vector<const E*> rows(n_);
    const Left<E> left(transposed, padded_depth<E>(n_), width, n_, scratch(kRows, Left<E>::room_for(width, n_)));
    for (int64_t c = 0; c < columns(block); c += kPanel) {
      for (int64_t i = 0; i < n_; ++i) rows[i] = d + i * stride + c;
      row_kernels<E>().pack_rows(rows.data(), n_, kPanel, panel);
      E* const sums = d_head + (block * kVocabularyBlock + c) * width;
      if constexpr (sizeof(E) == sizeof(float)) {
        left.times(panel, sums, kPanel, !first);
      } else {
        float* const wide = scratch(kSums, width * kPanel);
        if (!first) row_kernels<E>().widen(width * kPanel, sums, wide);
        left.times(panel, wide, kPanel, !first);
        row_kernels<E>().narrow(width * kPanel, wide, 1.0f, sums);
      }
    }
  }

  void sum_groups(int64_t groups, int64_t width, const float* sums, float* d_hidden) const {
    share(n_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * width; i < end * width; ++i) {
        float sum = 0;
        for (int64_t g = 0; g < groups; ++g) sum += sums[g * n_ * width + i];
        d_hidden[i] = sum;
      }
    });
  }

  // A product's hidden' [width, n], filled up to the depth of a product.
  const E* transpose(int product, const HiddenRows<E>& hidden) const {
    const int64_t depth = padded_depth<E>(n_), width = heads_[static_cast<size_t>(product)].width;
    E* out = reinterpret_cast<E*>(scratch(kTransposed + product, width * depth));
    for (int64_t w = 0; w < width; ++w)
      for (int64_t i = 0; i < depth; ++i) out[w * depth + i] = i < n_ ? hidden.rows[i * hidden.stride + w] : E(0);
    return out;
  }

  std::vector<HeadMatrix<E>> heads_;
  int64_t vocabulary_, n_ = 0;
  float scale_, softcap_;
  bool in_place_;
  std::vector<float*> logits_;
  int64_t blocks_;
};

}  // namespace apus::cpu
