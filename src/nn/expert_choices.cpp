// SPDX-License-Identifier: Apache-2.0
#include "nn/expert_choices.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace apus {

void ExpertChoices::write(int64_t place, const at::Tensor& expert_Tk) { written_[place] = expert_Tk; }

void ExpertChoices::write_rows(const ExpertChoices& other, const at::Tensor& row_T) {
  for (const auto& [place, expert_Tk] : other.written_)
    write(place, at::index_select(expert_Tk, 0, row_T.to(expert_Tk.device())));
}

at::Tensor ExpertChoices::written_TW() const {
  require(!written_.empty(), Fault::Bug, "no mixture has chosen experts");
  std::vector<at::Tensor> all;  // by place; one way to the host
  for (const auto& [place, expert_Tk] : written_)
    all.push_back(expert_Tk.to(written_.begin()->second.device(), at::kShort));
  at::Tensor out_TW = at::cat(all, 1).to(at::kCPU).contiguous();
  require(out_TW.size(1) == width_, Fault::Bug, "mixtures chose ", out_TW.size(1), " experts of a token, not ", width_);
  return out_TW;
}

ExpertChoices::ExpertChoices(at::Tensor expert_TW) : width_(expert_TW.size(1)), expert_TW_(std::move(expert_TW)) {}

at::Tensor ExpertChoices::told_Tk(int64_t place, int64_t k, at::Device device) const {
  require(place + k <= width_, Fault::Bug, "experts [", place, ", ", place + k, ") of ", width_, " are asked for");
  return expert_TW_.narrow(1, place, k).to(device, at::kLong);
}

std::shared_ptr<const ExpertChoices> ExpertChoices::of_rows(const at::Tensor& row_U) const {
  auto out = std::make_shared<ExpertChoices>(at::index_select(expert_TW_, 0, row_U.to(expert_TW_.device())));
  out->compared_ = compared_;
  return out;
}

void ExpertChoices::compare(const at::Tensor& own_Tk, const at::Tensor& told_Tk) const {
  const at::NoGradGuard no_grad;
  const auto in_order = [](const at::Tensor& x) { return std::get<0>(at::sort(x, -1)); };
  const at::Tensor known_T = told_Tk.select(1, 0) >= 0;
  const auto add = [](at::Tensor& sum, const at::Tensor& more) {
    sum = sum.defined() ? sum + more.to(sum.device()) : more;
  };
  add(compared_->others, (in_order(own_Tk) != in_order(told_Tk)).any(-1).logical_and(known_T).sum());
  add(compared_->all, known_T.sum());
}

}  // namespace apus
