// SPDX-License-Identifier: Apache-2.0
// Keys and values into their places of a paged cache. No gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/nonzero.h>
#include <torch/library.h>

#include "base/error.h"
#include "ops/coded_cache.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ops {
namespace {

void reference(const at::Tensor& k, const at::Tensor& v, at::Tensor& k_cache, at::Tensor& v_cache,
               const at::Tensor& slot);

const auto& store_op() {
  static const auto op = handle<decltype(reference)>("apus::store_kv");
  return op;
}

// Rows of codes and scales are moved as if they were f32.
void store_codes(const at::Tensor& k, const at::Tensor& v, at::Tensor& k_cache, at::Tensor& v_cache,
                 const at::Tensor& slot) {
  require(k_cache.size(3) == k.size(2) + kCacheScale && k_cache.size(3) % 4 == 0, Fault::Bug, "store_kv: heads of ",
          k.size(2), " numbers and a cache of ", k_cache.size(3));
  const auto type = k_cache.scalar_type();
  const at::Tensor keys = coded_heads(k, type).view(at::kFloat);
  at::Tensor keys_there = k_cache.view(at::kFloat);
  if (v_cache.is_same(k_cache)) return store_op().call(keys, keys, keys_there, keys_there, slot);
  at::Tensor values_there = v_cache.view(at::kFloat);
  store_op().call(keys, coded_heads(v, type).view(at::kFloat), keys_there, values_there, slot);
}

void reference(const at::Tensor& k, const at::Tensor& v, at::Tensor& k_cache, at::Tensor& v_cache,
               const at::Tensor& slot) {
  if (is_coded(k_cache)) return store_codes(k, v, k_cache, v_cache, slot);
  const at::Tensor row = at::nonzero(slot >= 0).squeeze(1), place = slot.index_select(0, row).to(at::kLong);
  const auto write = [&](at::Tensor& cache, const at::Tensor& x) {
    // view, not flatten: a cache that cannot be viewed as rows would be copied and the writes lost.
    cache.view({-1, cache.size(2), cache.size(3)})
        .index_copy_(0, place, x.index_select(0, row).to(cache.scalar_type()));
  };
  write(k_cache, k);
  write(v_cache, v);
}

void shape(const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&) {}

}  // namespace

void store_kv(const at::Tensor& k_TKH, const at::Tensor& v_TKH, at::Tensor& k_cache, at::Tensor& v_cache,
              const at::Tensor& slot_T) {
  const BelowAutograd guard;
  store_op().call(k_TKH, v_TKH, k_cache, v_cache, slot_T);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("store_kv(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot) -> ()");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("store_kv", apus::ops::reference); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("store_kv", apus::ops::shape); }
