// SPDX-License-Identifier: Apache-2.0
// The part of `apus doctor --selftest` that computes: every operator, with its gradient, in every type of the device,
// against the same in f64 on the processor, where it is the reference.
#include "cli/selftest.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <exception>

#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "run/runner.h"
#include "run/selftest_cases.h"
#include "tensor/dtype.h"
#include "tensor/noise.h"

namespace apus {

namespace {

// Of the largest error over the largest value. Half types round several times by 2^-9 (bf16) or 2^-11; devices may
// multiply f32 with fewer bits.
double limit_of(at::ScalarType type) {
  return type == at::kFloat ? 1e-3 : type == at::kBFloat16 ? 4e-2 : type == at::kHalf ? 1e-2 : 1e-12;
}

Tensors placed(const OperatorCase& c, at::ScalarType rounded, at::ScalarType type, at::Device device) {
  Tensors out;
  for (const at::Tensor& t : c.inputs) {
    out.push_back(t.to(rounded).to(type).to(device));
    if (c.has_gradient) out.back().requires_grad_();
  }
  return out;
}

// Outputs, and after them the gradients of the inputs.
Tensors answers(const OperatorCase& c, const Tensors& inputs) {
  Tensors out = c.compute(inputs);
  if (!c.has_gradient) return out;
  Tensors into;
  for (size_t i = 0; i < out.size(); ++i)
    into.push_back(
        normal_noise(out[i].sizes(), 0, 1, 100 + i).to(at::kBFloat16).to(out[i].scalar_type()).to(out[i].device()));
  for (at::Tensor& gradient : torch::autograd::grad(out, inputs, into)) out.push_back(std::move(gradient));
  return out;
}

double error_of(const Tensors& got, const Tensors& truth) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const at::Tensor mine = got[i].detach().to(at::kCPU).to(at::kDouble), right = truth[i].detach().to(at::kDouble);
    require(mine.sizes() == right.sizes(), Fault::Device, "result ", i, " has another shape");
    require(at::isfinite(mine).all().item<bool>(), Fault::Device, "result ", i, " is not finite");
    worst = std::max(worst, (mine - right).abs().max().item<double>() / (right.abs().max().item<double>() + 1e-30));
  }
  return worst;
}

Json try_operator(const OperatorCase& c, const DeviceChoice& choice, at::ScalarType type) {
  Json row{{"op", c.op}, {"case", c.what}, {"type", float_type_name(type)}, {"limit", limit_of(type)}};
  const std::string by = choice.kind->native_op(c.op);
  if (!by.empty()) row["by"] = by;
  try {
    const Tensors truth = answers(c, placed(c, type, at::kDouble, at::kCPU));
    const Tensors inputs = placed(c, type, type, choice.device);
    const Tensors got = answers(c, inputs);
    choice.kind->synchronize(choice.device.is_cpu() ? 0 : choice.device.index());
    const Stopwatch watch;  // the first call compiles
    answers(c, inputs);
    choice.kind->synchronize(choice.device.is_cpu() ? 0 : choice.device.index());
    row["ms"] = watch.seconds() * 1e3;
    row["error"] = error_of(got, truth);
    row["right"] = row["error"].get<double>() <= limit_of(type);
  } catch (const std::exception& e) {
    const std::string said = e.what();
    row["right"] = false;
    row["said"] = said.substr(0, std::min<size_t>(said.find("\nException raised"), 1000));
  }
  return row;
}

int run_selftest(const OperatorTrial& trial) {
  const DeviceChoice choice = open_device(trial.device);
  Json& report = *trial.report;
  const int index = choice.device.is_cpu() ? 0 : choice.device.index();
  report["device"] = choice.name();
  report["name"] = choice.kind->label(index);
  report["library"] = choice.kind->library_version();
  report["operators"] = Json::array();
  for (const OperatorCase& c : operator_cases(choice.kind->cache_block()))
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      if (choice.kind->supports(type)) report["operators"].push_back(try_operator(c, choice, type));
  return 0;
}

const RegisterRunner<OperatorTrial> selftest("selftest", run_selftest);

}  // namespace
}  // namespace apus
