// SPDX-License-Identifier: Apache-2.0
#include "tensor/noise.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "base/every_width.h"
#include "base/random.h"

namespace apus {
namespace {

// 32 mixed bits; two rounds of multiply and shift, a form that compilers turn into vector code.
inline uint32_t hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// out = in where 16 hashed bits reach the threshold, else 0. Two elements share a hash.
template <class Bits>
APUS_EVERY_WIDTH __attribute__((optimize("O3"))) void mask_pairs(const Bits* in, Bits* out, int64_t begin, int64_t end,
                                                                 uint32_t seed, uint32_t threshold) {
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t h = hash(static_cast<uint32_t>(i) + seed);
    out[2 * i] = (h & 0xffff) >= threshold ? in[2 * i] : Bits{0};
    out[2 * i + 1] = (h >> 16) >= threshold ? in[2 * i + 1] : Bits{0};
  }
}

template <class Bits>
at::Tensor dropped_host(const at::Tensor& x, uint32_t seed, uint32_t threshold) {
  at::Tensor out = at::empty_like(x);
  const auto* in = static_cast<const Bits*>(x.data_ptr());
  auto* to = static_cast<Bits*>(out.data_ptr());
  const int64_t n = x.numel();
  at::parallel_for(0, n / 2, 1 << 15,
                   [&](int64_t begin, int64_t end) { mask_pairs<Bits>(in, to, begin, end, seed, threshold); });
  if (n % 2) to[n - 1] = (hash(static_cast<uint32_t>(n / 2) + seed) & 0xffff) >= threshold ? in[n - 1] : Bits{0};
  return out;
}

// The same bits by tensor operators, in 32-bit integers that wrap:
// a device's mask is the host's, whatever its generator.
at::Tensor dropped_by_operators(const at::Tensor& x, int64_t wide_seed, int64_t threshold) {
  const auto seed = static_cast<uint32_t>(wide_seed);
  const int64_t n = x.numel();
  const auto shifted = [](const at::Tensor& t, int64_t bits) {
    return at::bitwise_right_shift(t, bits).bitwise_and((int64_t{1} << (32 - bits)) - 1);
  };
  at::Tensor h = at::arange((n + 1) / 2, x.options().dtype(at::kInt)).add_(static_cast<int32_t>(seed));
  h = h.bitwise_xor(shifted(h, 16)).mul_(static_cast<int32_t>(0x7feb352du));
  h = h.bitwise_xor(shifted(h, 15)).mul_(static_cast<int32_t>(0x846ca68bu));
  h = h.bitwise_xor(shifted(h, 16));
  const at::Tensor pairs = at::stack({h.bitwise_and(0xffff), shifted(h, 16)}, 1).view({-1}).narrow(0, 0, n);
  return x * pairs.ge(threshold).view(x.sizes()).to(x.scalar_type());
}

at::Tensor like(const at::Tensor& x, int64_t, int64_t) { return at::empty(x.sizes(), x.options()); }

// By the device's own kernel where it has one. It has no gradient: x is multiplied by a mask where that is asked for.
at::Tensor dropped_device(const at::Tensor& x, uint32_t seed, uint32_t threshold) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("apus::dropped", "")
                             .typed<at::Tensor(const at::Tensor&, int64_t, int64_t)>();
  const auto call = [&](const at::Tensor& t) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(t, seed, threshold);
  };
  if (at::GradMode::is_enabled() && x.requires_grad()) return x * call(at::ones(x.sizes(), x.options()));
  return call(x);
}

}  // namespace

at::Tensor dropped(const at::Tensor& x, double p, uint64_t seed, int64_t before) {
  require(p >= 0 && p < 1, Fault::Bug, "dropout probability ", p);
  const auto threshold = static_cast<uint32_t>(p * 65536 + 0.5);
  // Two elements share a hash, of their number plus this.
  const auto small_seed = static_cast<uint32_t>(mix(seed, 0, 0) + static_cast<uint64_t>(before / 2));
  if (x.is_cpu() && x.scalar_type() == at::kBFloat16)
    return dropped_host<uint16_t>(x.contiguous(), small_seed, threshold);
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return dropped_host<uint32_t>(x.contiguous(), small_seed, threshold);
  return dropped_device(x, small_seed, threshold);
}

at::Tensor uniform_noise(at::IntArrayRef shape, double low, double high, uint64_t seed, at::Device device) {
  at::Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  float* to = out.data_ptr<float>();
  at::parallel_for(0, out.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = static_cast<float>(
          low + (high - low) * static_cast<double>(mix(seed, 0, static_cast<uint64_t>(i)) >> 11) * 0x1.0p-53);
  });
  return out.to(device);
}

at::Tensor normal_noise(at::IntArrayRef shape, double mean, double deviation, uint64_t seed) {
  at::Tensor out = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  Random random(seed);
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) to[i] = static_cast<float>(mean + deviation * random.normal());
  return out;
}

}  // namespace apus

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // seed and threshold of 32 and 16 bits
  m.def("dropped(Tensor x, int seed, int threshold) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("dropped", apus::dropped_by_operators); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("dropped", apus::like); }
