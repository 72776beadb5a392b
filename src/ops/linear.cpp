// SPDX-License-Identifier: Apache-2.0
// x W' + b, plain and with a weight packed for the device.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  // -> dx, dweight, dbias, each only when asked. x may be absent when dweight is not asked, weight when dx is not.
  m.def("linear_backward(Tensor grad, Tensor? x, Tensor? weight, bool[3] need) -> (Tensor, Tensor, Tensor)");
  // An empty result: this device, or this type, gains nothing from packing.
  m.def("pack_linear(Tensor weight) -> Tensor");
  m.def("packed_linear(Tensor x, Tensor packed, Tensor? bias, int out) -> Tensor");
}
