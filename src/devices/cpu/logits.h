// SPDX-License-Identifier: Apache-2.0
// The logits of some tokens over the whole vocabulary, and what a gradient of them does to hidden states and head. The head is
// read in blocks of 1024 rows, each packed while it is in the cache. Sums go in an order that does not depend on threads.
// The head's gradient sums over all tokens, whose logits are never there together: it makes them again, block by block, which
// costs a tenth of a step and saves an f32 copy of the head.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "devices/cpu/kernels.h"
#include "devices/cpu/left.h"
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
      for (int64_t b = begin; b < end; ++b) {
        block_logits(b, hidden, stride, n, block_at(b));
        for (int64_t i = 0; i < n; ++i) kernels().row_statistics(columns(b), block_at(b) + i * kVocabularyBlock, scale_, parts.data() + b * n + i);
      }
    });
    std::vector<LogitRow> rows(n);
    for (int64_t i = 0; i < n; ++i) rows[i] = summary(i, label[i], parts.data() + i);
    return rows;
  }

  // Gradient of the logits of row i: gradient[i] everywhere, and at_label[i] more at its label. What it means for the hidden states
  // of the tokens of the last compute(): d_hidden [n, width], f32.
  void backward(const int64_t* label, const LogitGradient* gradient, const float* at_label, float* d_hidden, float* space) const {
    const int64_t groups = std::min<int64_t>(kGroups, blocks_), per_group = (blocks_ + groups - 1) / groups;
    share(groups, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      E* d = reinterpret_cast<E*>(scratch(kGradients, n_ * kVocabularyBlock));
      for (int64_t g = begin; g < end; ++g) {
        std::fill_n(space + g * n_ * width_, n_ * width_, 0.0f);
        for (int64_t b = g * per_group; b < std::min(blocks_, (g + 1) * per_group); ++b) {
          block_gradient(b, block_at(b), n_, label, gradient, at_label, d);
          add_to_hidden(b, d, space + g * n_ * width_);
        }
      }
    });
    share(n_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * width_; i < end * width_; ++i) {
        float sum = 0;
        for (int64_t g = 0; g < groups; ++g) sum += space[g * n_ * width_ + i];
        d_hidden[i] = sum;
      }
    });
  }
  static int64_t backward_space(int64_t tokens, int64_t width) { return kGroups * tokens * width; }

  // And for the head, [vocabulary, width]: of all tokens, `chunk` at a time; gradient and at_label are of all of them.
  void head_gradient(const E* hidden, int64_t stride, int64_t tokens, int64_t chunk, const int64_t* label, const LogitGradient* gradient,
                     const float* at_label, E* d_head) const {
    const int64_t depth = padded_depth<E>(chunk), chunks = (tokens + chunk - 1) / chunk;
    const std::vector<E> turned = transposed(hidden, stride, tokens, chunk);
    share(blocks_, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      float *logits = scratch(kLogits, chunk * kVocabularyBlock), *sums = scratch(kSums, kVocabularyBlock * width_);
      E* d = reinterpret_cast<E*>(scratch(kGradients, chunk * kVocabularyBlock));
      for (int64_t b = begin; b < end; ++b) {
        std::fill_n(sums, kVocabularyBlock * width_, 0.0f);
        for (int64_t c = 0; c < chunks; ++c) {
          const int64_t at = c * chunk, n = std::min(chunk, tokens - at);
          block_logits(b, hidden + at * stride, stride, n, logits);
          block_gradient(b, logits, n, label + at, gradient + at, at_label + at, d);
          add_to_head(b, d, n, turned.data() + c * width_ * depth, padded_depth<E>(n), sums);
        }
        write_head(sums, columns(b), d_head + b * kVocabularyBlock * width_);
      }
    });
  }

 private:
  static constexpr int64_t kGroups = 16;  // parts of the vocabulary that sum d_hidden for themselves
  enum Slot { kPanels = 2, kGradients, kRows, kLogits, kSums, kRow };

  int64_t columns(int64_t block) const { return std::min(kVocabularyBlock, vocabulary_ - block * kVocabularyBlock); }
  float* block_at(int64_t block) const { return logits_ + block * n_ * kVocabularyBlock; }
  const E* head_row(int64_t v) const { return head_ + v * stride_; }

  // [n][kVocabularyBlock]
  void block_logits(int64_t block, const E* hidden, int64_t stride, int64_t n, float* logits) const {
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(width_)));
    const E* rows[kPanel];
    const Left<E> left(hidden, stride, n, width_, scratch(kRows, Left<E>::room_for(n, width_)));
    for (int64_t c = 0; c < columns(block); c += kPanel) {
      const int64_t count = std::min(kPanel, columns(block) - c);
      for (int64_t i = 0; i < count; ++i) rows[i] = head_row(block * kVocabularyBlock + c + i);
      row_kernels<E>().pack_columns(rows, count, width_, panel);
      left.times(panel, logits + c, kVocabularyBlock, false);
    }
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

  void block_gradient(int64_t block, const float* logits, int64_t rows, const int64_t* label, const LogitGradient* gradient, const float* at_label,
                      E* d) const {
    const int64_t n = columns(block);
    for (int64_t i = 0; i < rows; ++i) {
      E* row = d + i * kVocabularyBlock;
      const float* x = logits + i * kVocabularyBlock;
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
    const Left<E> left(d, kVocabularyBlock, n_, n, scratch(kRows, Left<E>::room_for(n_, n)));
    for (int64_t w = 0; w < width_; w += kPanel) {
      const int64_t count = std::min(kPanel, width_ - w);
      row_kernels<E>().pack_rows(rows, n, count, panel);
      left.times(panel, sums + w, width_, true);
      for (int64_t i = 0; i < n; ++i) rows[i] += kPanel;
    }
  }

  // sums [panel][width][32]
  void add_to_head(int64_t block, const E* d, int64_t n, const E* turned, int64_t depth, float* sums) const {
    E* panel = reinterpret_cast<E*>(scratch(kPanels, panel_size<E>(std::max(n, std::max(kVocabularyBlock, width_)))));
    std::vector<const E*> rows(n);
    const Left<E> left(turned, depth, width_, n, scratch(kRows, Left<E>::room_for(width_, n)));
    for (int64_t c = 0; c < columns(block); c += kPanel) {
      for (int64_t i = 0; i < n; ++i) rows[i] = d + i * kVocabularyBlock + c;
      row_kernels<E>().pack_rows(rows.data(), n, kPanel, panel);
      left.times(panel, sums + c * width_, kPanel, true);
    }
  }

  // The sums of some of the vocabulary as rows of E.
  void write_head(const float* sums, int64_t rows, E* out) const {
    float* row = scratch(kRow, width_);
    for (int64_t v = 0; v < rows; ++v) {
      const float* column = sums + v / kPanel * kPanel * width_ + v % kPanel;
      for (int64_t d = 0; d < width_; ++d) row[d] = column[d * kPanel];
      row_kernels<E>().narrow(width_, row, 1.0f, out + v * width_);
    }
  }

  // hidden' of each chunk, [width, n] filled up to the depth of a product.
  std::vector<E> transposed(const E* hidden, int64_t stride, int64_t tokens, int64_t chunk) const {
    const int64_t chunks = (tokens + chunk - 1) / chunk, room = width_ * padded_depth<E>(chunk);
    std::vector<E> out(chunks * room);
    share(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t n = std::min(chunk, tokens - c * chunk), depth = padded_depth<E>(n);
        for (int64_t w = 0; w < width_; ++w)
          for (int64_t i = 0; i < n; ++i) out[c * room + w * depth + i] = hidden[(c * chunk + i) * stride + w];
      }
    });
    return out;
  }

  const E* head_;
  int64_t vocabulary_, width_, stride_, n_ = 0;
  float scale_;
  float* logits_;
  int64_t blocks_;
};

}  // namespace apus::cpu
