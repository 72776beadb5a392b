// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_space.h"

#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace apus {

bool is_layer_matrix(const NamedParam& param) {
  static constexpr const char* kTables[] = {
      "embed_tokens", "word_embeddings.", "embed_positions.", "embed_in.", ".wte.", ".wpe.", "lm_head"};
  const auto within = [&](const char* part) { return param.name.find(part) != std::string::npos; };
  return param.tensor.dim() == 2 && std::none_of(std::begin(kTables), std::end(kTables), within);
}

bool is_among(const NamedParam& param, const std::vector<std::string>& target_modules) {
  const auto meant = [&](const std::string& part) {
    return part == "all-linear" ? is_layer_matrix(param) : param.name.find(part) != std::string::npos;
  };
  if (target_modules.empty()) return is_layer_matrix(param);
  return param.tensor.dim() == 2 && std::any_of(target_modules.begin(), target_modules.end(), meant);
}

GradientSpace::GradientSpace(const std::string& type, int64_t rows, int64_t columns, int64_t rank)
    : side_(gradient_side(type, rows, columns)),
      rows_(rows),
      columns_(columns),
      rank_(std::min({rank, rows, columns})) {
  require(rank > 0, Fault::Usage, "the rank of gradients must be above 0, it is ", rank);
}

std::vector<int64_t> GradientSpace::right() const {
  return side_ == GradientSide::Left ? std::vector<int64_t>{0} : std::vector<int64_t>{rank_, columns_};
}
std::vector<int64_t> GradientSpace::left() const {
  return side_ == GradientSide::Right ? std::vector<int64_t>{0} : std::vector<int64_t>{rows_, rank_};
}
std::vector<int64_t> GradientSpace::inside() const {
  return {side_ == GradientSide::Right ? rows_ : rank_, side_ == GradientSide::Left ? columns_ : rank_};
}

void GradientSpace::begin(State& state, at::TensorOptions wide) const {
  state["projector_left"] = at::zeros(left(), wide), state["projector_right"] = at::zeros(right(), wide);
}
void GradientSpace::keep(State& state, const Basis& basis) const {
  if (basis.left.defined()) state.at("projector_left").copy_(basis.left);
  if (basis.right.defined()) state.at("projector_right").copy_(basis.right);
}
GradientSpace::Basis GradientSpace::kept(const State& state) {
  return {state.at("projector_left"), state.at("projector_right")};
}

GradientSpace::Basis GradientSpace::principal(const at::Tensor& gradient) const {
  const auto [u, s, v] = at::linalg_svd(gradient, /*full_matrices=*/false);
  Basis basis;
  if (side_ != GradientSide::Left) basis.right = v.narrow(0, 0, rank_).contiguous();
  if (side_ != GradientSide::Right) basis.left = u.narrow(1, 0, rank_).contiguous();
  return basis;
}

at::Tensor GradientSpace::into(const at::Tensor& gradient, const Basis& basis) const {
  const at::Tensor half = side_ == GradientSide::Right ? gradient : basis.left.t().mm(gradient);
  return side_ == GradientSide::Left ? half : half.mm(basis.right.t());
}

at::Tensor GradientSpace::back(const at::Tensor& inside, const Basis& basis) const {
  const at::Tensor half = side_ == GradientSide::Right ? inside : basis.left.mm(inside);
  return side_ == GradientSide::Left ? half : half.mm(basis.right);
}

}  // namespace apus
