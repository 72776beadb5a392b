// SPDX-License-Identifier: Apache-2.0
#include "ops/choices.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>

#include "device/device.h"

namespace apus {

std::vector<OpChoice> op_choices(const DeviceKind& kind) {
  const std::string ours = "apus::";
  const c10::DispatchKey kernels = c10::computeDispatchKey(c10::kFloat, c10::kStrided, c10::Device(kind.type()));
  std::vector<OpChoice> out;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind(ours, 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op) continue;
    const std::string plain = name.name.substr(ours.size());
    out.push_back({plain, op->hasKernelForDispatchKey(kernels), kind.native_op(plain)});
  }
  std::sort(out.begin(), out.end(), [](const OpChoice& a, const OpChoice& b) { return a.op < b.op; });
  return out;
}

}  // namespace apus
