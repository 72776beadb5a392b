// SPDX-License-Identifier: Apache-2.0
// Gradients of a matrix [rows, columns] in fewer dimensions, in which GaLore and APOLLO keep their moments.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "train/optimizer.h"
#include "train/options/gradient_side.h"

namespace apus {

// Whether this is the matrix of a layer: no vector, no stack of experts, no table of tokens and no head.
bool is_layer_matrix(const NamedParam& param);
// ... and one that the names mean: parts of its name, or all-linear. Empty: all.
bool is_among(const NamedParam& param, const std::vector<std::string>& target_modules);

class GradientSpace {
 public:
  // type: of gradient_sides().
  GradientSpace(const std::string& type, int64_t rows, int64_t columns, int64_t rank);

  // Shapes of what spans it, right [rank, columns] and left [rows, rank] (empty where it is not used), and of a
  // gradient in it.
  std::vector<int64_t> right() const, left() const, inside() const;
  GradientSide side() const { return side_; }
  int64_t rank() const { return rank_; }

  struct Basis {
    at::Tensor left, right;
  };
  using State = std::map<std::string, at::Tensor>;         // of one parameter in an optimizer
  void begin(State& state, at::TensorOptions wide) const;  // what spans it is 0
  void keep(State& state, const Basis& basis) const;
  static Basis kept(const State& state);
  // The first singular vectors of this gradient.
  Basis principal(const at::Tensor& gradient) const;
  at::Tensor into(const at::Tensor& gradient, const Basis& basis) const;
  at::Tensor back(const at::Tensor& inside, const Basis& basis) const;

 private:
  GradientSide side_;
  int64_t rows_, columns_, rank_;
};

}  // namespace apus
