// SPDX-License-Identifier: Apache-2.0
#include "devices/vendor_op.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>

#include "base/error.h"

namespace apus {

VendorOp::VendorOp(const std::string& name) : name_(name) {
  const size_t colon = name.find("::"), dot = name.find('.', colon);
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (found) found_.push_back(*found);
}

namespace {
c10::DispatchKey autograd_of(c10::DispatchKey device) {
  const c10::DispatchKeySet keys = c10::getAutogradRelatedKeySetFromBackend(c10::toBackendComponent(device));
  return keys.highestPriorityTypeId();
}
}  // namespace

bool VendorOp::present(c10::DispatchKey device) const {
  return !found_.empty() &&
         (found_[0].hasKernelForDispatchKey(device) || found_[0].hasKernelForDispatchKey(autograd_of(device)));
}

// Gradients are ours, so the kernel below autograd is called; where there is none, the other, which records nothing
// while gradients are off.
void VendorOp::call(std::vector<c10::IValue>& stack) const {
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const c10::DispatchKey device = c10::computeDispatchKey(c10::kFloat, c10::kStrided, value.toTensor().device());
    if (found_[0].hasKernelForDispatchKey(device) || !found_[0].hasKernelForDispatchKey(autograd_of(device))) break;
    const at::NoGradGuard no_grad;
    return found_[0].redispatchBoxed(c10::DispatchKeySet(autograd_of(device)), &stack);
  }
  found_[0].callBoxed(&stack);
}

bool VendorOp::takes(const std::string& argument) const {
  return !found_.empty() && found_[0].schema().argumentIndexWithName(argument).has_value();
}

std::vector<c10::IValue> VendorOp::operator()(std::vector<c10::IValue> first, const Named& named) const {
  require(!found_.empty(), Fault::Bug, name_, " is called, and the installed library has no such operator");
  const auto& arguments = found_[0].schema().arguments();
  require(first.size() <= arguments.size(), Fault::Device, name_, " of the installed library takes ", arguments.size(),
          " arguments, not ", first.size());
  std::vector<c10::IValue> stack = std::move(first);
  size_t used = 0;
  for (size_t i = stack.size(); i < arguments.size(); ++i) {
    const auto given =
        std::find_if(named.begin(), named.end(), [&](const auto& pair) { return pair.first == arguments[i].name(); });
    if (given != named.end()) {
      stack.push_back(given->second);
      ++used;
      continue;
    }
    require(
        arguments[i].default_value().has_value(), Fault::Device, name_, " of the installed library wants an argument '",
        arguments[i].name(),
        "' that this version of Apus does not know; APUS_REFERENCE_OPS=all computes without the vendor's operators");
    stack.push_back(*arguments[i].default_value());
  }
  require(used == named.size(), Fault::Device, name_,
          " of the installed library lacks one of the arguments that Apus gives by name; "
          "APUS_REFERENCE_OPS=all computes without the vendor's operators");
  call(stack);
  return stack;
}

}  // namespace apus
