// SPDX-License-Identifier: Apache-2.0
// Rotary embedding, SwiGLU, and keys and values into their places of the cache.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "ops/rope_table.h"

namespace apus::cuda {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Rope = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool);
using Swiglu = at::Tensor(const at::Tensor&, const at::Tensor&);
using SwigluBackward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&);
using StoreKv = void(const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&);

// As kernels/rope.cu has it.
struct Heads {
  long long token_stride, head_stride;
  int heads;
};
Heads heads_of(const at::Tensor& x) { return {x.stride(0), x.stride(1), static_cast<int>(x.size(1))}; }

at::Tensor with_dense_heads(const at::Tensor& x) { return x.stride(2) == 1 ? x : x.contiguous(); }

Pair rope(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& cos_in, const at::Tensor& sin_in,
          bool inverse) {
  const auto type = q_in.scalar_type();
  if (!is_narrow_or_float(type) || k_in.scalar_type() != type || cos_in.scalar_type() != at::kFloat ||
      q_in.numel() == 0 || 2 * cos_in.size(1) > q_in.size(2)) {
    static const auto reference = ops::handle<Rope>("apus::rope");
    return ops::call_reference(reference, q_in, k_in, cos_in, sin_in, inverse);
  }
  static const TypedKernel kernel("rope", "forward");
  const at::Tensor q = with_dense_heads(q_in), k = with_dense_heads(k_in), cos = cos_in.contiguous(),
                   sin = sin_in.contiguous();
  const at::Tensor turned_q = at::empty(q.sizes(), q.options()), turned_k = at::empty(k.sizes(), k.options());
  const int64_t tokens = q.size(0), size = q.size(2), r = cos.size(1), work = (q.size(1) + k.size(1)) * (size - r);
  kernel.of(type)(Extent{tokens}, Extent{std::clamp<int64_t>((work + 31) / 32 * 32, 32, 512)}, address(q), address(k),
                  address(turned_q), address(turned_k), heads_of(q), heads_of(k), address(cos), address(sin), tokens,
                  static_cast<int>(size), static_cast<int>(r), inverse ? -1.f : 1.f);
  return {turned_q, turned_k};
}

// [rows, size] with rows that may lie apart.
at::Tensor as_rows(const at::Tensor& x) { return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)}); }

constexpr int64_t kRowsOfGrid = 65535, kThreads = 256;

bool takes(const at::Tensor& rows, at::ScalarType type) {
  return rows.scalar_type() == type && rows.numel() > 0 && rows.size(0) <= kRowsOfGrid * 16 && in_packs(rows);
}

// Of rows [begin, begin + count): a grid has 65,535 of them at most.
template <class F>
void in_grids(const at::Tensor& rows, const F& launch) {
  const int64_t packs = rows.size(1) / pack_of(rows);
  for (int64_t begin = 0; begin < rows.size(0); begin += kRowsOfGrid) {
    const int64_t count = std::min(kRowsOfGrid, rows.size(0) - begin);
    launch(begin, Extent{(packs + kThreads - 1) / kThreads, count, 1}, Extent{kThreads});
  }
}
const void* row_of(const at::Tensor& rows, int64_t row) {
  return static_cast<const char*>(rows.data_ptr()) + row * rows.stride(0) * rows.element_size();
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const auto type = gate.scalar_type();
  const at::Tensor g = as_rows(gate), u = as_rows(up);
  if (!is_narrow_or_float(type) || !takes(g, type) || !takes(u, type)) {
    static const auto reference = ops::handle<Swiglu>("apus::swiglu");
    return ops::call_reference(reference, gate, up);
  }
  static const TypedKernel kernel("swiglu", "forward");
  const at::Tensor y = at::empty(g.sizes(), g.options());
  in_grids(g, [&](int64_t row, Extent grid, Extent block) {
    kernel.of(type)(grid, block, row_of(g, row), row_of(u, row), row_of(y, row), static_cast<long long>(g.stride(0)),
                    static_cast<long long>(u.stride(0)), static_cast<int>(g.size(1)));
  });
  return y.view(gate.sizes());
}

Pair swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  const auto type = gate.scalar_type();
  const at::Tensor d = as_rows(grad), g = as_rows(gate), u = as_rows(up);
  if (!is_narrow_or_float(type) || !takes(d, type) || !takes(g, type) || !takes(u, type)) {
    static const auto reference = ops::handle<SwigluBackward>("apus::swiglu_backward");
    return ops::call_reference(reference, grad, gate, up);
  }
  static const TypedKernel kernel("swiglu", "backward");
  const at::Tensor dgate = at::empty(g.sizes(), g.options()), dup = at::empty(u.sizes(), u.options());
  in_grids(g, [&](int64_t row, Extent grid, Extent block) {
    kernel.of(type)(grid, block, row_of(d, row), row_of(g, row), row_of(u, row), row_of(dgate, row), row_of(dup, row),
                    static_cast<long long>(d.stride(0)), static_cast<long long>(g.stride(0)),
                    static_cast<long long>(u.stride(0)), static_cast<long long>(g.size(1)),
                    static_cast<int>(g.size(1)));
  });
  return {dgate.view(gate.sizes()), dup.view(up.sizes())};
}

// A cache in codes takes the same arguments as a plain one.
void store_kv(const at::Tensor& k_in, const at::Tensor& v_in, at::Tensor& k_cache, at::Tensor& v_cache,
              const at::Tensor& slot) {
  const auto type = k_in.scalar_type();
  const bool coded = ops::is_coded(k_cache), held = coded || k_cache.scalar_type() == type;
  const bool same = held && v_in.scalar_type() == type && v_cache.scalar_type() == k_cache.scalar_type() &&
                    k_in.size(1) == v_in.size(1);
  if (!is_narrow_or_float(type) || !same || slot.scalar_type() != at::kLong || !k_cache.is_contiguous() ||
      !v_cache.is_contiguous() || k_in.numel() == 0) {
    static const auto reference = ops::handle<StoreKv>("apus::store_kv");
    return ops::call_reference(reference, k_in, v_in, k_cache, v_cache, slot);
  }
  static const TypedKernel plain("store_kv", "store"), whole("store_kv", "store_codes", ", true"),
      fp8("store_kv", "store_codes", ", false");
  const TypedKernel& kernel = !coded ? plain : k_cache.scalar_type() == at::kChar ? whole : fp8;
  const at::Tensor k = with_dense_heads(k_in), v = with_dense_heads(v_in), place = slot.contiguous();
  const int64_t work = k.size(1) * std::max(k.size(2), v.size(2));
  kernel.of(type)(Extent{k.size(0)}, Extent{std::clamp<int64_t>((work + 31) / 32 * 32, 32, 256)}, address(k),
                  address(v), address(k_cache), address(v_cache), address(place), static_cast<long long>(k.stride(0)),
                  static_cast<long long>(k.stride(1)), static_cast<long long>(v.stride(0)),
                  static_cast<long long>(v.stride(1)), static_cast<int>(k.size(1)), static_cast<int>(k.size(2)),
                  static_cast<int>(v.size(2)));
}

using Dropped = at::Tensor(const at::Tensor&, int64_t, int64_t);

at::Tensor dropped(const at::Tensor& x_in, int64_t seed, int64_t threshold) {
  if (!is_narrow_or_float(x_in.scalar_type())) {
    static const auto reference = ops::handle<Dropped>("apus::dropped");
    return ops::call_reference(reference, x_in, seed, threshold);
  }
  static const TypedKernel kernel("dropped", "dropped");
  const at::Tensor x = x_in.contiguous(), y = at::empty(x.sizes(), x.options());
  constexpr int64_t kMostBlocks = 8192;
  const int64_t pairs = (x.numel() + 1) / 2;
  if (pairs > 0)
    kernel.of(x.scalar_type())(Extent{std::min(kMostBlocks, (pairs + kThreads - 1) / kThreads)}, Extent{kThreads},
                               address(x), address(y), static_cast<unsigned>(seed), static_cast<unsigned>(threshold),
                               static_cast<long long>(x.numel()));
  return y;
}

// As kernels/rope_table.cu has it.
struct Frequencies {
  float inverse[ops::kMostFrequencies];
  unsigned char axis[ops::kMostFrequencies];
};

Pair rope_table(const at::Tensor& position_in, at::ArrayRef<double> inverse, at::IntArrayRef axis, double scale,
                bool backwards) {
  static const Kernel kernel("rope_table", "table");
  const at::Tensor position = position_in.to(at::kLong).contiguous();
  Frequencies f{};
  for (size_t i = 0; i < inverse.size(); ++i)
    f.inverse[i] = static_cast<float>(inverse[i]), f.axis[i] = static_cast<unsigned char>(axis[i]);
  const int64_t tokens = position.size(-1), r = std::ssize(inverse);
  const int64_t sizes[] = {tokens, r};
  const at::TensorOptions wide = position.options().dtype(at::kFloat);
  const at::Tensor cos = at::empty(sizes, wide), sin = at::empty(sizes, wide);
  if (tokens > 0)
    kernel(Extent{(tokens * r + kThreads - 1) / kThreads}, Extent{kThreads}, address(position), address(cos),
           address(sin), f, static_cast<long long>(tokens), static_cast<int>(r), scale, backwards ? -1.0 : 1.0);
  return {cos, sin};
}

}  // namespace

std::vector<OwnOp> pointwise_ops() {
  return {own<rope>("rope", kOwnKernel),
          own<rope_table>("rope_table", kOwnKernel),
          own<dropped>("dropped", kOwnKernel),
          own<swiglu>("swiglu", kOwnKernel),
          own<swiglu_backward>("swiglu_backward", kOwnKernel),
          own<store_kv>("store_kv", kOwnKernel)};
}

}  // namespace apus::cuda
