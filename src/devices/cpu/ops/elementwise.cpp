// SPDX-License-Identifier: Apache-2.0
// The gate of the feed-forward, rotary embedding, rows into the cache and out of the embedding table.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "devices/cpu/kernels/coded_row.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"
#include "ops/ops.h"

namespace apus::cpu {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (!same_small_float(gate, up) || gate.sizes() != up.sizes())
    return Reference<at::Tensor(const at::Tensor&, const at::Tensor&)>::call("apus::swiglu", gate, up);
  const at::Tensor y = at::empty(gate.sizes(), gate.options());
  by_type(gate, [&](auto e) {
    using E = decltype(e);
    const Lines<E> g(gate), u(up);
    share(g.count, lines_at_once(g.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) row_kernels<E>().swiglu(g.width, g[i], u[i], data<E>(y) + i * g.width);
    });
  });
  return y;
}

Pair swiglu_backward(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up) {
  if (!same_small_float(gate, up, grad) || gate.sizes() != up.sizes())
    return Reference<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&)>::call("apus::swiglu_backward", grad,
                                                                                          gate, up);
  const at::Tensor dgate = at::empty(gate.sizes(), gate.options()), dup = at::empty(up.sizes(), up.options());
  by_type(gate, [&](auto e) {
    using E = decltype(e);
    const Lines<E> g(gate), u(up), dy(grad);
    share(g.count, lines_at_once(g.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        row_kernels<E>().swiglu_gradient(g.width, g[i], u[i], dy[i], data<E>(dgate) + i * g.width,
                                         data<E>(dup) + i * g.width);
    });
  });
  return {dgate, dup};
}

template <class E>
at::Tensor turned(const at::Tensor& x_TNH, const at::Tensor& cos_TR, const at::Tensor& sin_TR, float sign) {
  const at::Tensor y = at::empty(x_TNH.sizes(), x_TNH.options());
  const Lines<E> in(x_TNH);
  const int64_t heads = x_TNH.size(1), r = cos_TR.size(1);
  share(x_TNH.size(0), lines_at_once(heads * in.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * heads; i < end * heads; ++i)
      row_kernels<E>().rope(in.width, r, in[i], data<float>(cos_TR) + i / heads * r,
                            data<float>(sin_TR) + i / heads * r, sign, data<E>(y) + i * in.width);
  });
  return y;
}

Pair rope(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const bool plain = q.dim() == 3 && k.dim() == 3 && cos.dim() == 2 && cos.scalar_type() == at::kFloat &&
                     sin.scalar_type() == at::kFloat && cos.sizes() == sin.sizes() && cos.size(0) == q.size(0) &&
                     k.size(0) == q.size(0);
  if (!plain || !same_small_float(q, k))
    return Reference<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool)>::call(
        "apus::rope", q, k, cos, sin, inverse);
  require(2 * cos.size(1) <= q.size(2) && 2 * cos.size(1) <= k.size(2), Fault::Bug, "rope: ", 2 * cos.size(1),
          " rotated elements in heads of ", q.size(2));
  const at::Tensor c = cos.contiguous(), s = sin.contiguous();
  return by_type(q, [&](auto e) {
    using E = decltype(e);
    return Pair{turned<E>(q, c, s, inverse ? -1.0f : 1.0f), turned<E>(k, c, s, inverse ? -1.0f : 1.0f)};
  });
}

// Rows of heads into a cache of codes.
void store_codes(const at::Tensor& x, at::Tensor& cache, const int64_t* place) {
  const int64_t heads = cache.size(2), h = x.size(2), row = cache.size(3);
  const bool whole = cache.scalar_type() == at::kChar;
  require(cache.is_contiguous() && row == h + ops::kCacheScale && x.size(1) == heads, Fault::Bug, "store_kv: rows of ",
          h, " numbers and a cache of ", row);
  auto* const to = static_cast<uint8_t*>(cache.data_ptr());
  const at::Tensor rows = as_heads(x);
  by_type(rows, [&](auto e) {
    using E = decltype(e);
    share(x.size(0), 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t head = 0; head < heads && place[t] >= 0; ++head)
          write_coded(data<E>(rows) + t * rows.stride(0) + head * h, h, whole, to + (place[t] * heads + head) * row);
    });
  });
}

void store_kv(const at::Tensor& k, const at::Tensor& v, at::Tensor& k_cache, at::Tensor& v_cache,
              const at::Tensor& slot) {
  if (ops::is_coded(k_cache)) {
    const at::Tensor places = slot.to(at::kLong).contiguous();
    store_codes(k, k_cache, data<int64_t>(places));
    if (!v_cache.is_same(k_cache)) store_codes(v, v_cache, data<int64_t>(places));
    return;
  }
  const bool plain = k.scalar_type() == k_cache.scalar_type() && v.scalar_type() == v_cache.scalar_type() &&
                     k_cache.is_contiguous() && v_cache.is_contiguous() && slot.scalar_type() == at::kLong;
  if (!plain)
    return Reference<void(const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const at::Tensor&)>::call(
        "apus::store_kv", k, v, k_cache, v_cache, slot);
  const at::Tensor places = slot.contiguous();
  const int64_t *place = data<int64_t>(places), slots = k_cache.size(0) * k_cache.size(1);
  const auto write = [&](const at::Tensor& x, at::Tensor& cache) {
    const at::Tensor rows = as_heads(x);
    const int64_t bytes = x.size(1) * x.size(2) * static_cast<int64_t>(x.element_size()),
                  stride = rows.stride(0) * static_cast<int64_t>(x.element_size());
    for (int64_t t = 0; t < x.size(0); ++t) {
      require(place[t] < slots, Fault::Bug, "store_kv: slot ", place[t], " in a cache of ", slots);
      if (place[t] >= 0)
        std::memcpy(data<char>(cache) + place[t] * bytes, data<char>(rows) + t * stride, static_cast<size_t>(bytes));
    }
  };
  write(k, k_cache);
  write(v, v_cache);
}

at::Tensor embedding(const at::Tensor& id, const at::Tensor& weight) {
  if (id.scalar_type() != at::kLong || weight.dim() != 2 || weight.stride(1) != 1)
    return Reference<at::Tensor(const at::Tensor&, const at::Tensor&)>::call("apus::embedding", id, weight);
  const at::Tensor ids = id.contiguous();
  std::vector<int64_t> shape = id.sizes().vec();
  shape.push_back(weight.size(1));
  const at::Tensor out = at::empty(shape, weight.options());
  const int64_t bytes = weight.size(1) * static_cast<int64_t>(weight.element_size()),
                stride = weight.stride(0) * static_cast<int64_t>(weight.element_size());
  share(ids.numel(), lines_at_once(weight.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = data<int64_t>(ids)[i];
      require(row >= 0 && row < weight.size(0), Fault::Data, "token id ", row, " is outside of the vocabulary of ",
              weight.size(0));
      std::memcpy(data<char>(out) + i * bytes, data<char>(weight) + row * stride, static_cast<size_t>(bytes));
    }
  });
  return out;
}

// Tokens of one id are summed in f32, in the order of their positions.
template <class E>
void add_by_id(const at::Tensor& grad, const int64_t* ids, int64_t rows, E* dense) {
  const Lines<E> dy(grad);
  std::vector<int64_t> order(dy.count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < dy.count; ++i) {
    require(ids[i] >= 0 && ids[i] < rows, Fault::Data, "token id ", ids[i], " is outside of the vocabulary of ", rows);
    if (i == 0 || ids[order[i]] != ids[order[i - 1]]) starts.push_back(i);
  }
  starts.push_back(dy.count);
  share(static_cast<int64_t>(starts.size()) - 1, lines_at_once(dy.width), [&](int64_t begin, int64_t end) {
    float *sum = scratch(0, dy.width), *one = scratch(1, dy.width);
    for (int64_t r = begin; r < end; ++r) {
      std::fill_n(sum, dy.width, 0.0f);
      for (int64_t i = starts[r]; i < starts[r + 1]; ++i) {
        row_kernels<E>().widen(dy.width, dy[order[i]], one);
        for (int64_t j = 0; j < dy.width; ++j) sum[j] += one[j];
      }
      row_kernels<E>().narrow(dy.width, sum, 1.0f, dense + ids[order[starts[r]]] * dy.width);
    }
  });
}

at::Tensor embedding_backward(const at::Tensor& grad, const at::Tensor& id, int64_t rows) {
  if (!same_small_float(grad) || id.scalar_type() != at::kLong)
    return Reference<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>::call("apus::embedding_backward", grad,
                                                                                      id, rows);
  const at::Tensor dense = at::zeros({rows, grad.size(-1)}, grad.options()), ids = id.contiguous(),
                   lines = as_rows(grad);
  by_type(grad, [&](auto e) { add_by_id(lines, data<int64_t>(ids), rows, data<decltype(e)>(dense)); });
  return dense;
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("swiglu", apus::cpu::swiglu);
  m.impl("swiglu_backward", apus::cpu::swiglu_backward);
  m.impl("rope", apus::cpu::rope);
  m.impl("store_kv", apus::cpu::store_kv);
  m.impl("embedding", apus::cpu::embedding);
  m.impl("embedding_backward", apus::cpu::embedding_backward);
}
