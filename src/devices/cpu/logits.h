// SPDX-License-Identifier: Apache-2.0
// The logits of some tokens over the whole vocabulary, and what a gradient of them does to hidden states and head. The head is
// read in blocks of 1024 rows, each packed while it is in the cache. Sums go in an order that does not depend on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "devices/cpu/kernels.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

constexpr int64_t kVocabularyBlock = 1024;

// One token's logits (scaled) over the whole vocabulary.
struct LogitRow {
  float lse, label, mean, entropy;
  bool correct;
};

template <class E>
class Logits {
 public:
  // head [vocabulary, width], rows `head_stride` apart; `space` holds space_for() floats. width is a multiple of kDepth.
  Logits(const E* head, int64_t vocabulary, int64_t width, int64_t head_stride, float scale, float* space)
      : head_(head), vocabulary_(vocabulary), width_(width), stride_(head_stride), scale_(scale), logits_(space),
        blocks_((vocabulary + kVocabularyBlock - 1) / kVocabularyBlock) {}

  static int64_t space_for(int64_t vocabulary, int64_t tokens) {
    return (vocabulary + kVocabularyBlock - 1) / kVocabularyBlock * kVocabularyBlock * tokens;
  }

  // Logits of n tokens, and each row's summary.
  std::vector<LogitRow> compute(const E* hidden, int64_t stride, int64_t n, const int64_t* label) {
    n_ = n;
    std::vector<RowStatistics> parts(blocks_ * n);
    share(blocks_, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      for (int64_t b = begin; b < end; ++b) block_logits(b, hidden, stride, parts.data() + b * n);
    });
    std::vector<LogitRow> rows(n);
    for (int64_t i = 0; i < n; ++i) rows[i] = summary(i, label[i], parts.data() + i);
    return rows;
  }

  // Gradient of the logits of row i: gradient[i] everywhere, and at_label[i] more at its label. Written to d_hidden [n, width]
  // (f32, may be null) and added to d_head (may be null): f32 [panel][width][32], see write_head().
  void backward(const E* hidden, int64_t stride, const int64_t* label, const LogitGradient* gradient, const float* at_label, float* d_hidden,
                float* d_head, float* space) const {
    const int64_t groups = std::min<int64_t>(kGroups, blocks_), per_group = (blocks_ + groups - 1) / groups;
    const E* transposed = d_head ? transpose(hidden, stride) : nullptr;
    share(groups, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      E* d = reinterpret_cast<E*>(scratch(kGradients, n_ * kVocabularyBlock));
      for (int64_t g = begin; g < end; ++g) {
        if (d_hidden) std::fill_n(space + g * n_ * width_, n_ * width_, 0.0f);
        for (int64_t b = g * per_group; b < std::min(blocks_, (g + 1) * per_group); ++b) {
          block_gradient(b, label, gradient, at_label, d);
          if (d_hidden) add_to_hidden(b, d, space + g * n_ * width_);
          if (d_head) add_to_head(b, d, transposed, d_head);
        }
      }
    });
    if (!d_hidden) return;
    share(n_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * width_; i < end * width_; ++i) {
        float sum = 0;
        for (int64_t g = 0; g < groups; ++g) sum += space[g * n_ * width_ + i];
        d_hidden[i] = sum;
      }
    });
  }
  static int64_t backward_space(int64_t tokens, int64_t width) { return kGroups * tokens * width; }
  static int64_t head_space(int64_t vocabulary, int64_t width) { return (vocabulary + kPanel - 1) / kPanel * kPanel * width; }

  // d_head's sums as rows [vocabulary, width] of E.
  static void write_head(const float* sums, int64_t vocabulary, int64_t width, E* out) {
    share((vocabulary + kPanel - 1) / kPanel, 8, [&](int64_t begin, int64_t end) {
      float* row = scratch(kPanels, width);
      for (int64_t v = begin * kPanel; v < std::min(vocabulary, end * kPanel); ++v) {
        const float* column = sums + v / kPanel * kPanel * width + v % kPanel;
        for (int64_t d = 0; d < width; ++d) row[d] = column[d * kPanel];
        row_kernels<E>().narrow(width, row, 1.0f, out + v * width);
      }
    });
  }

 private:
  static constexpr int64_t kGroups = 16;  // parts of the vocabulary that sum d_hidden for themselves
  enum Slot { kPanels = 2, kGradients, kTransposed };

  int64_t columns(int64_t block) const { return std::min(kVocabularyBlock, vocabulary_ - block * kVocabularyBlock); }
  float* block_at(int64_t block) const { return logits_ + block * n_ * kVocabularyBlock; }
  const E* head_row(int64_t v) const { return head_ + v * stride_; }

  void block_logits(int64_t block, const E* hidden, int64_t stride, RowStatistics* parts) const {
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(width_)));
    const E* rows[kPanel];
    for (int64_t c = 0; c < columns(block); c += kPanel) {
      const int64_t count = std::min(kPanel, columns(block) - c);
      for (int64_t i = 0; i < count; ++i) rows[i] = head_row(block * kVocabularyBlock + c + i);
      row_kernels<E>().pack_columns(rows, count, width_, panel);
      row_kernels<E>().multiply(n_, width_, hidden, stride, panel, block_at(block) + c, kVocabularyBlock, false, nullptr);
    }
    for (int64_t i = 0; i < n_; ++i) kernels().row_statistics(columns(block), block_at(block) + i * kVocabularyBlock, scale_, parts + i);
  }

  // parts: this row's statistics of block b at parts[b * n].
  LogitRow summary(int64_t row, int64_t label, const RowStatistics* parts) const {
    float largest = -std::numeric_limits<float>::infinity();
    int64_t best = 0;
    for (int64_t b = 0; b < blocks_; ++b)
      if (parts[b * n_].largest > largest) largest = parts[b * n_].largest, best = b * kVocabularyBlock + parts[b * n_].best;
    double sum = 0, sum_x = 0, sum_px = 0;
    for (int64_t b = 0; b < blocks_; ++b) {
      const RowStatistics& part = parts[b * n_];
      const double weight = std::exp(static_cast<double>(part.largest) - largest);
      sum += weight * part.sum, sum_px += weight * part.sum_px, sum_x += part.sum_x;
    }
    const double lse = largest + std::log(sum);
    const float at_label = block_at(label / kVocabularyBlock)[row * kVocabularyBlock + label % kVocabularyBlock] * scale_;
    return {static_cast<float>(lse), at_label, static_cast<float>(sum_x / static_cast<double>(vocabulary_)),
            static_cast<float>(lse - sum_px / sum), best == label};
  }

  void block_gradient(int64_t block, const int64_t* label, const LogitGradient* gradient, const float* at_label, E* d) const {
    const int64_t n = columns(block);
    for (int64_t i = 0; i < n_; ++i) {
      E* row = d + i * kVocabularyBlock;
      const float* x = block_at(block) + i * kVocabularyBlock;
      row_kernels<E>().logit_gradient(n, x, gradient[i], row);
      std::fill(row + n, row + kVocabularyBlock, E(0));
      const int64_t at = label[i] - block * kVocabularyBlock;
      if (at < 0 || at >= n) continue;
      const LogitGradient& g = gradient[i];  // again in f32, so that the large and the small part are rounded once, together
      const float log_p = x[at] * g.scale - g.lse, value = std::exp(log_p) * (g.by_p + g.by_log_p * log_p) + g.constant + at_label[i];
      row_kernels<E>().narrow(1, &value, 1.0f, row + at);
    }
  }

  void add_to_hidden(int64_t block, const E* d, float* sums) const {
    const int64_t n = columns(block);
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(std::max(kVocabularyBlock, width_))));
    const E* rows[kVocabularyBlock];
    for (int64_t i = 0; i < n; ++i) rows[i] = head_row(block * kVocabularyBlock + i);
    for (int64_t w = 0; w < width_; w += kPanel) {
      const int64_t count = std::min(kPanel, width_ - w);
      row_kernels<E>().pack_rows(rows, n, count, panel);
      row_kernels<E>().multiply(n_, n, d, kVocabularyBlock, panel, sums + w, width_, true, nullptr);
      for (int64_t i = 0; i < n; ++i) rows[i] += kPanel;
    }
  }

  void add_to_head(int64_t block, const E* d, const E* transposed, float* d_head) const {
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(std::max(n_, std::max(kVocabularyBlock, width_)))));
    std::vector<const E*> rows(n_);
    for (int64_t c = 0; c < columns(block); c += kPanel) {
      for (int64_t i = 0; i < n_; ++i) rows[i] = d + i * kVocabularyBlock + c;
      row_kernels<E>().pack_rows(rows.data(), n_, kPanel, panel);
      row_kernels<E>().multiply(width_, n_, transposed, padded_depth<E>(n_), panel, d_head + (block * kVocabularyBlock + c) * width_, kPanel, true, nullptr);
    }
  }

  // hidden' [width, n], filled up to the depth of a product.
  const E* transpose(const E* hidden, int64_t stride) const {
    const int64_t depth = padded_depth<E>(n_);
    E* out = reinterpret_cast<E*>(scratch(kTransposed, width_ * depth));
    for (int64_t w = 0; w < width_; ++w)
      for (int64_t i = 0; i < depth; ++i) out[w * depth + i] = i < n_ ? hidden[i * stride + w] : E(0);
    return out;
  }

  const E* head_;
  int64_t vocabulary_, width_, stride_, n_ = 0;
  float scale_;
  float* logits_;
  int64_t blocks_;
};

}  // namespace apus::cpu
