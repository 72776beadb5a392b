// SPDX-License-Identifier: Apache-2.0
#include "algos/label_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softplus.h>

#include "base/error.h"

namespace apus {

Problem problem_named(const std::string& problem_type) {
  if (problem_type == "single_label_classification") return Problem::Single;
  if (problem_type == "multi_label_classification") return Problem::Multi;
  require(problem_type == "regression", Fault::Usage, "--problem_type ", problem_type,
          ": possible are single_label_classification, multi_label_classification, regression");
  return Problem::Regression;
}

// -y log sigma(x) - (1 - y) log(1 - sigma(x)), without overflow.
at::Tensor binary_losses(const at::Tensor& logit, const at::Tensor& wanted) {
  return at::softplus(logit) - logit * wanted;
}

at::Tensor label_losses(const at::Tensor& logit_SN, const at::Tensor& wanted, Problem problem) {
  if (problem == Problem::Single) return -at::gather(at::log_softmax(logit_SN, -1), 1, wanted.unsqueeze(1)).squeeze(1);
  if (problem == Problem::Multi) return binary_losses(logit_SN, wanted).mean(1);
  return (logit_SN - wanted).square().mean(1);
}

at::Tensor labelled_right(const at::Tensor& logit_SN, const at::Tensor& wanted, Problem problem) {
  const at::Tensor right_S =
      problem == Problem::Single ? logit_SN.argmax(1).eq(wanted) : logit_SN.ge(0).eq(wanted.ge(0.5)).all(1);
  return right_S.to(at::kFloat);
}

}  // namespace apus
