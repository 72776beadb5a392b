// SPDX-License-Identifier: Apache-2.0
// Gradients of a matrix [rows, columns] in fewer dimensions, in which GaLore and APOLLO keep their moments.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "train/optimizer.h"

namespace apus {

// Whether this is the matrix of a layer: no vector, no stack of experts, no table of tokens and no head.
bool is_layer_matrix(const NamedParam& param);
// ... and one that the names mean: parts of its name, or all-linear. Empty: all.
bool is_among(const NamedParam& param, const std::vector<std::string>& target_modules);

class GradientSpace {
 public:
  enum class Side { Right, Left, Both };  // which sides of a gradient are multiplied
  // std cuts the longer side's vectors, so that the smaller matrix is kept; reverse_std the other one; right, left,
  // full.
  GradientSpace(const std::string& type, int64_t rows, int64_t columns, int64_t rank);
  static const std::vector<std::string>& types();

  // Shapes of what spans it, right [rank, columns] and left [rows, rank] (empty where it is not used), and of a
  // gradient in it.
  std::vector<int64_t> right() const, left() const, inside() const;
  Side side() const { return side_; }
  int64_t rank() const { return rank_; }

  struct Basis {
    at::Tensor left, right;
  };
  // The first singular vectors of this gradient.
  Basis principal(const at::Tensor& gradient) const;
  at::Tensor into(const at::Tensor& gradient, const Basis& basis) const;
  at::Tensor back(const at::Tensor& inside, const Basis& basis) const;

 private:
  Side side_;
  int64_t rows_, columns_, rank_;
};

}  // namespace apus
