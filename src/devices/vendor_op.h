// SPDX-License-Identifier: Apache-2.0
// An operator of a vendor's library (or of libtorch itself, where signatures change), called by name through the
// dispatcher. Argument lists differ between versions:
// what is not given here takes the default of the schema that is registered.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

namespace apus {

class VendorOp {
 public:
  using Named = std::vector<std::pair<std::string, c10::IValue>>;

  // "npu::npu_rms_norm", or with an overload "npu::npu_apply_adam_w.out"
  explicit VendorOp(const std::string& name);
  // Registered, and with a kernel for this device: also where the only one is that which records the gradient.
  bool present(c10::DispatchKey device) const;
  bool takes(const std::string& argument) const;
  std::vector<c10::IValue> operator()(std::vector<c10::IValue> first, const Named& named = {}) const;

 private:
  void call(std::vector<c10::IValue>& stack) const;

  std::string name_;
  std::vector<c10::OperatorHandle> found_;  // none or one
};

inline const at::Tensor& tensor(const c10::IValue& value) { return value.toTensor(); }

}  // namespace apus
