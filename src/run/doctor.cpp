// SPDX-License-Identifier: Apache-2.0
// The part of `apus doctor` that computes: every device multiplies a matrix in each number format it supports, as
// linear layers do, and the result is compared with the processor's in f64.
#include "cli/doctor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <cstring>
#include <exception>

#include "base/clock.h"
#include "base/log.h"
#include "base/nearest.h"
#include "device/device.h"
#include "ops/ops.h"
#include "run/runner.h"
#include "tensor/compat.h"

namespace apus {

namespace {
constexpr int64_t kSide = 512;
constexpr double kFlop = 2.0 * kSide * kSide * kSide;

struct Format {
  at::ScalarType type;
  const char* name;
  // Of the relative error over the whole matrix; devices may round f32 to fewer bits.
  double tolerance;
};
constexpr Format kFormats[] = {
    {at::kFloat, "f32", 2e-3}, {at::kBFloat16, "bf16", 1e-2}, {at::kHalf, "f16", 2e-3}, {at::kDouble, "f64", 1e-12}};

// Numbers in [-1, 1) without a random generator: the same on every device.
at::Tensor pattern(int64_t stride) {
  const at::Tensor index = at::arange(kSide * kSide, at::kDouble);
  return index.mul(static_cast<double>(stride)).remainder(257).div(128.5).sub(1).view({kSide, kSide});
}

struct Trial {
  double error = 0, seconds = 0;
};

Trial multiply(DeviceKind& kind, int index, c10::Device device, at::ScalarType type) {
  const at::Tensor a = pattern(31).to(type), b = pattern(17).to(type);
  const at::Tensor right = at::matmul(a.to(at::kDouble), b.to(at::kDouble).t());
  const at::Tensor x = a.to(device), weight = b.to(device);
  const at::NoGradGuard no_grad;
  // What the program itself uses here. libtorch's own product may round more (bf16 on processors with AVX2 alone: each
  // partial sum), and is then not called.
  const auto product = [&] { return ops::linear(x, weight, {}); };
  at::Tensor z = product();  // the first call compiles and allocates
  Trial trial{0, 1e30};
  for (int i = 0; i < 3; ++i) {
    kind.synchronize(index);
    const Stopwatch watch;
    z = product();
    kind.synchronize(index);
    trial.seconds = std::min(trial.seconds, watch.seconds());
  }
  const at::Tensor difference = z.to(at::kCPU).to(at::kDouble).sub(right);
  trial.error = difference.norm().item<double>() / right.norm().item<double>();
  return trial;
}

std::string speed(double seconds) {
  const double giga = kFlop / seconds / 1e9;
  return giga >= 1000 ? str(std::lround(giga / 100) / 10.0, " TFLOP/s") : str(std::lround(giga), " GFLOP/s");
}

Check try_device(DeviceKind& kind, int index) {
  Check check{str(kind.name(), kind.type() == c10::kCPU ? "" : str(":", index), " computes"), Check::State::Ok, "", "",
              ""};
  std::vector<std::string> results;
  try {
    const DeviceChoice choice = open_device(kind.type() == c10::kCPU ? "cpu" : str(kind.name(), ":", index));
    for (const Format& format : kFormats) {
      if (!kind.supports(format.type)) continue;
      Trial trial;
      try {
        trial = multiply(kind, index, choice.device, format.type);
      } catch (const std::exception& error) {
        // The device is there, but this format is not: the others still count.
        if (!std::strstr(error.what(), "not implemented for")) throw;
        check.state = Check::State::Warn, check.wanted = str(format.name, " products");
        check.hint = str(
            format.name,
            " products are not implemented in this version of its library: use another --torch_dtype, or update it");
        continue;
      }
      results.push_back(str(format.name, " ", speed(trial.seconds)));
      if (trial.error <= format.tolerance) continue;
      check.state = Check::State::Fail;
      check.wanted = str("products equal to the cpu's within ", format.tolerance);
      check.hint = str(format.name, " products differ by ", trial.error,
                       ": do not trust this device; update its driver, or have it replaced");
    }
    check.found = str(kind.label(index), ": ", kSide, " x ", kSide, " products in ", join(results));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    check.state = Check::State::Fail, check.found = what.substr(0, std::min<size_t>(what.find('\n'), 400));
    check.wanted = "a matrix product",
    check.hint = "`apus doctor --explain -` explains the message when it is a known one";
  }
  return check;
}

int run_doctor(const DeviceTrials& trials) {
  std::vector<Check>& all = *trials.checks;
  const DeviceKind* chosen = nullptr;
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (!kind->available(&why_not)) {
      all.push_back({str("device ", kind->name()), Check::State::Skipped, why_not, "", ""});
      continue;
    }
    if (!chosen) chosen = kind;
    for (int i = 0; i < kind->count(); ++i) all.push_back(try_device(*kind, i));
    for (Check& check : kind->checks()) all.push_back(std::move(check));
  }
  if (chosen)
    all.insert(all.begin(),
               {"--device auto", Check::State::Ok,
                str(chosen->name(), " will be used (", chosen->count(), " x ", chosen->label(0), ")"), "", ""});
  return 0;
}

const RegisterRunner<DeviceTrials> doctor("doctor", run_doctor);

}  // namespace
}  // namespace apus
