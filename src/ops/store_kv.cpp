// SPDX-License-Identifier: Apache-2.0
// Keys and values into their cache places.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("store_kv(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot) -> ()");
}
