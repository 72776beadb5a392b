// SPDX-License-Identifier: Apache-2.0
// What stands for a weight that a device keeps as codes: a tensor of their bytes that only the device's own operators
// understand. `Codes`: its order of them.
#pragma once

#include <ATen/OpaqueTensorImpl.h>

#include <utility>

#include "base/error.h"
#include "tensor/compat.h"

namespace apus {

template <class Codes>
at::Tensor code_tensor(Codes codes, int64_t bytes, c10::Device device) {
  const int64_t sizes[] = {bytes};
  return at::detail::make_tensor<at::OpaqueTensorImpl<Codes>>(
      c10::DispatchKeySet(c10::computeDispatchKey(at::kByte, kNone, device)), caffe2::TypeMeta::Make<uint8_t>(), device,
      std::move(codes), at::IntArrayRef(sizes));
}

template <class Codes>
const Codes& codes_in(const at::Tensor& codes) {
  auto* const impl =
      codes.has_storage() ? nullptr : dynamic_cast<at::OpaqueTensorImpl<Codes>*>(codes.unsafeGetTensorImpl());
  require(impl, Fault::Bug, "these are no codes of a weight");
  return impl->opaque_handle();
}

}  // namespace apus
