// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_space.h"

#include <ATen/ops/linalg_svd.h>

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

const std::vector<std::string>& GradientSpace::types() {
  static const std::vector<std::string> all = {"std", "reverse_std", "right", "left", "full"};
  return all;
}

GradientSpace::GradientSpace(const std::string& type, int64_t rows, int64_t columns, int64_t rank)
    : rows_(rows), columns_(columns), rank_(std::min({rank, rows, columns})) {
  const bool high = rows >= columns;
  side_ = type == "full"            ? Side::Both
          : type == "right"         ? Side::Right
          : type == "left"          ? Side::Left
          : (type == "std") == high ? Side::Right
                                    : Side::Left;
  require(rank > 0, Fault::Usage, "the rank of gradients must be above 0, it is ", rank);
}

std::vector<int64_t> GradientSpace::right() const {
  return side_ == Side::Left ? std::vector<int64_t>{0} : std::vector<int64_t>{rank_, columns_};
}
std::vector<int64_t> GradientSpace::left() const {
  return side_ == Side::Right ? std::vector<int64_t>{0} : std::vector<int64_t>{rows_, rank_};
}
std::vector<int64_t> GradientSpace::inside() const {
  return {side_ == Side::Right ? rows_ : rank_, side_ == Side::Left ? columns_ : rank_};
}

GradientSpace::Basis GradientSpace::principal(const at::Tensor& gradient) const {
  const auto [u, s, v] = at::linalg_svd(gradient, /*full_matrices=*/false);
  Basis basis;
  if (side_ != Side::Left) basis.right = v.narrow(0, 0, rank_).contiguous();
  if (side_ != Side::Right) basis.left = u.narrow(1, 0, rank_).contiguous();
  return basis;
}

at::Tensor GradientSpace::into(const at::Tensor& gradient, const Basis& basis) const {
  const at::Tensor half = side_ == Side::Right ? gradient : basis.left.t().mm(gradient);
  return side_ == Side::Left ? half : half.mm(basis.right.t());
}

at::Tensor GradientSpace::back(const at::Tensor& inside, const Basis& basis) const {
  const at::Tensor half = side_ == Side::Right ? inside : basis.left.mm(inside);
  return side_ == Side::Left ? half : half.mm(basis.right);
}

}  // namespace apus
