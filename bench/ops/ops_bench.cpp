// SPDX-License-Identifier: Apache-2.0
// Every op's time, reference body and registered kernel, beside what the machine allows: the bytes it must move at the
// bandwidth of a plain copy, the products it must make at the rate of a plain matmul, both measured first.
//   ops_bench [device] [dtype] [part of an op's name]     e.g. ops_bench cpu bfloat16 attention
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>

#include "base/error.h"
#include "device/device.h"
#include "ops/op.h"
#include "tensor/dtype.h"

namespace apus::ops {
namespace {

using T = const at::Tensor&;
using O = const OptionalTensor&;
using One = at::Tensor;
using Two = std::tuple<One, One>;
using Three = std::tuple<One, One, One>;
using Four = std::tuple<One, One, One, One>;
using Seven = std::tuple<One, One, One, One, One, One, One>;

// The 0.5B shape: hidden, heads, key heads, head size, feed-forward, vocabulary.
constexpr int64_t D = 896, N = 14, K = 2, H = 64, F = 4864, V = 151936;

class Bench {
 public:
  Bench(const std::string& device, at::ScalarType type, std::string only)
      : choice_(open_device(device)), options_(at::TensorOptions(choice_.device).dtype(type)), only_(std::move(only)) {
    const at::Tensor from = at::zeros({int64_t{1} << 28}, options_.dtype(at::kByte)), to = from.clone();
    copy_rate_ = 2.0 * from.numel() / seconds([&] { const_cast<at::Tensor&>(to).copy_(from); });
    const at::Tensor a = random({2048, 1024}), b = random({1024, 2048}), c = at::empty({2048, 2048}, options_);
    product_rate_ = 2.0 * 2048 * 2048 * 1024 / seconds([&] { at::mm_out(const_cast<at::Tensor&>(c), a, b); });
    std::printf("%s, %s: copy %.1f GB/s, matmul %.0f GFLOP/s\n", choice_.name().c_str(), float_type_name(type),
                copy_rate_ / 1e9, product_rate_ / 1e9);
    std::printf("%-34s %10s %10s %10s %8s %8s\n", "", "floor us", "op us", "ref us", "op/floor", "ref/op");
  }

  at::Tensor random(at::IntArrayRef sizes) const {
    return at::randn(sizes, options_.dtype(at::kFloat)).to(options_.dtype());
  }
  at::Tensor f32(at::IntArrayRef sizes) const { return at::rand(sizes, options_.dtype(at::kFloat)); }
  at::Tensor ids(int64_t count, int64_t below) const { return at::randint(below, {count}, options_.dtype(at::kLong)); }
  at::Tensor int32(const std::vector<int64_t>& v) const { return at::tensor(v, at::kInt).to(choice_.device); }
  bool wants(const std::string& label) const { return label.find(only_) != std::string::npos; }
  double size() const { return static_cast<double>(options_.dtype().itemsize()); }

  // elements: of the tensors' type, read or written at least once; products: multiply-adds.
  template <class Signature, class... Args>
  void measure(const char* op, const std::string& what, double elements, double products, Args... args) const {
    const std::string label = std::string(op) + " " + what;
    if (!wants(label)) return;
    const auto typed = handle<Signature>((std::string("apus::") + op).c_str());
    const BelowAutograd guard;
    const double floor = std::max(elements * size() / copy_rate_, 2 * products / product_rate_);
    const double registered = seconds([&] { typed.call(args...); });
    const double reference = seconds([&] { call_reference(typed, args...); });
    std::printf("%-34s %10.1f %10.1f %10.1f %8.1f %8.1f\n", label.c_str(), floor * 1e6, registered * 1e6,
                reference * 1e6, registered / floor, reference / registered);
    std::fflush(stdout);
  }

 private:
  // The best of several runs within about a third of a second.
  template <class Fn>
  double seconds(const Fn& fn) const {
    using Clock = std::chrono::steady_clock;
    double best = 1e30;
    const auto begin = Clock::now();
    for (int run = 0; run < 3 || (run < 2000 && Clock::now() - begin < std::chrono::milliseconds(300)); ++run) {
      const auto start = Clock::now();
      fn();
      choice_.kind->synchronize(choice_.device.index());
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    return best;
  }

  DeviceChoice choice_;
  at::TensorOptions options_;
  std::string only_;
  double copy_rate_ = 1, product_rate_ = 1;
};

void rows(const Bench& b, int64_t t) {
  const std::string what = std::to_string(t);
  const double td = static_cast<double>(t) * D, tf = static_cast<double>(t) * F,
               th = static_cast<double>(t) * (N + K) * H;
  const at::Tensor x = b.random({t, D}), y = b.random({t, D}), w = b.random({D}), gate = b.random({t, F}),
                   up = b.random({t, F});
  b.measure<One(T, T, double)>("rms_norm", what, 2 * td, 0, x, w, 1e-6);
  b.measure<Two(T, T, T, double, bool)>("rms_norm_backward", what, 3 * td, 0, y, x, w, 1e-6, true);
  b.measure<Two(T, T, T, double)>("add_rms_norm", what, 4 * td, 0, x, y, w, 1e-6);
  b.measure<Two(O, T, T, T, double, bool)>("add_rms_norm_backward", what, 4 * td, 0, maybe(x), y, x, w, 1e-6, true);
  b.measure<One(T, T)>("swiglu", what, 3 * tf, 0, gate, up);
  b.measure<Two(T, T, T)>("swiglu_backward", what, 5 * tf, 0, up, gate, up);
  const at::Tensor q = b.random({t, N, H}), k = b.random({t, K, H}), cos = b.f32({t, H / 2}), sin = b.f32({t, H / 2});
  b.measure<Two(T, T, T, T, bool)>("rope", what, 2 * th, 0, q, k, cos, sin, false);
  at::Tensor k_cache = b.random({t / 16 + 1, 16, K, H}), v_cache = k_cache.clone();
  b.measure<void(T, T, at::Tensor&, at::Tensor&, T)>("store_kv", what, 4.0 * t * K * H, 0, k, k, k_cache, v_cache,
                                                     at::arange(t, cos.options().dtype(at::kLong)));
}

void attend(const Bench& b, int64_t queries, int64_t keys) {
  const std::string what = std::to_string(queries) + " of " + std::to_string(keys);
  const double scale = 1 / std::sqrt(static_cast<double>(H));
  const at::Tensor q = b.random({queries, N, H}), k = b.random({keys, K, H}), v = b.random({keys, K, H});
  const at::Tensor cu_q = b.int32({0, queries}), cu_k = b.int32({0, keys});
  const double seen = static_cast<double>(queries) * (keys - (queries - 1) / 2.0), products = seen * N * H * 2;
  const double qs = static_cast<double>(queries) * N * H, ks = static_cast<double>(keys) * K * H;
  b.measure<Two(T, T, T, T, T, int64_t, int64_t, double, bool, int64_t, double, O)>(
      "attention", what, 2 * qs + 2 * ks, products, q, k, v, cu_q, cu_k, queries, keys, scale, true, 0, 0.0,
      OptionalTensor());
  if (queries == keys) {
    const auto forward =
        handle<Two(T, T, T, T, T, int64_t, int64_t, double, bool, int64_t, double, O)>("apus::attention");
    const auto [out, lse] = forward.call(q, k, v, cu_q, cu_k, queries, keys, scale, true, 0, 0, OptionalTensor());
    b.measure<Three(T, T, T, T, T, T, T, T, int64_t, int64_t, double, bool, int64_t, double, O)>(
        "attention_backward", what, 4 * qs + 4 * ks, products * 2.5, q, q, k, v, out, lse, cu_q, cu_k, queries, keys,
        scale, true, 0, 0.0, OptionalTensor());
  }
  const int64_t blocks = (keys + 15) / 16;
  const at::Tensor k_cache = b.random({blocks, 16, K, H}), v_cache = k_cache.clone();
  const at::Tensor table = at::arange(blocks, cu_q.options()).view({1, blocks});
  b.measure<One(T, T, T, T, T, T, int64_t, int64_t, double, bool, int64_t, double, O)>(
      "paged_attention", what, 2 * qs + 2 * ks, products, q, k_cache, v_cache, cu_q, cu_k, table, queries, keys, scale,
      true, 0, 0.0, OptionalTensor());
}

void multiply(const Bench& b, int64_t t) {
  const std::string what = std::to_string(t) + " to 2F";
  const double x_size = static_cast<double>(t) * D, w_size = 2.0 * F * D, products = x_size * 2 * F;
  const at::Tensor x = b.random({t, D}), w = b.random({2 * F, D}), g = b.random({t, 2 * F});
  b.measure<One(T, T, O)>("linear", what, x_size + w_size + t * 2.0 * F, products, x, w, OptionalTensor());
  b.measure<Three(T, O, O, std::array<bool, 3>)>("linear_backward", what, x_size + w_size + t * 2.0 * F, 2 * products,
                                                 g, maybe(x), maybe(w), std::array<bool, 3>{true, true, false});
  b.measure<Three(T, O, O, std::array<bool, 3>)>("linear_backward", what + ", input only",
                                                 x_size + w_size + t * 2.0 * F, products, g, OptionalTensor(), maybe(w),
                                                 std::array<bool, 3>{true, false, false});
}

void vocabulary(const Bench& b, int64_t t) {
  const std::string what = std::to_string(t);
  const double td = static_cast<double>(t) * D, head_size = static_cast<double>(V) * D, products = td * V;
  const at::Tensor hidden = b.random({t, D}), head = b.random({V, D}) * 0.02, label = b.ids(t, V), weight = b.f32({t});
  b.measure<One(T, T)>("embedding", what, 2 * td, 0, label, head);
  b.measure<One(T, T, int64_t)>("embedding_backward", what, td + head_size, 0, hidden, label, V);
  const OptionalTensor none;
  using Needs = std::array<bool, 4>;  // the gradients of hidden states, head, and a pair of low rank
  using Loss = Seven(T, T, O, O, T, O, double, bool, Needs, int64_t, double);
  const auto loss = [&](const std::string& asked, double bytes, double times, Needs need) {
    b.measure<Loss>("head_loss", what + asked, bytes, times * products, hidden, head, none, none, label, maybe(weight),
                    0.0, false, need, 0, 0.0);
  };
  loss("", head_size, 1, {});
  loss(", d hidden", head_size, 2, {true});
  loss(", d both", 2 * head_size, 3, {true, true});
  using Logprob = Three(T, T, O, O, T, double, bool, int64_t, double);
  b.measure<Logprob>("head_logprob", what, head_size, products, hidden, head, none, none, label, 1.0, false, 0, 0.0);
  b.measure<Logprob>("head_logprob", what + ", entropy", head_size, products, hidden, head, none, none, label, 1.0,
                     true, 0, 0.0);
  if (!b.wants("head_logprob_backward")) return;
  const auto [logprob, entropy, lse] =
      handle<Logprob>("apus::head_logprob").call(hidden, head, none, none, label, 1.0, true, 0, 0);
  b.measure<Four(O, O, T, T, O, O, T, T, O, double, Needs, int64_t, double)>(
      "head_logprob_backward", what + ", d hidden", head_size, 2 * products, maybe(weight), none, hidden, head, none,
      none, label, lse, none, 1.0, Needs{true}, 0, 0.0);
}

void experts(const Bench& b, int64_t t) {
  constexpr int64_t count = 32, k = 4, ffn = 768;
  const std::string what = std::to_string(t) + ", 4 of 32";
  const at::Tensor x = b.random({t, D}), logits = b.random({t, count}), gate_up = b.random({count, 2 * ffn, D}) * 0.02;
  const at::Tensor down = b.random({count, D, ffn}) * 0.02;
  b.measure<Two(T, int64_t, bool)>("route_topk", what, static_cast<double>(t) * count, 0, logits, k, true);
  const auto [weight, expert] = handle<Two(T, int64_t, bool)>("apus::route_topk").call(logits, k, true);
  b.measure<One(T, T, T, bool)>("route_topk_backward", what, 2.0 * t * count, 0, weight, logits, expert, true);
  const double used = std::min<double>(count, static_cast<double>(t) * k) * 3 * ffn * D,
               products = static_cast<double>(t) * k * 3 * ffn * D;
  b.measure<One(T, T, T, T, T)>("moe_ffn", what, used + 2.0 * t * D, products, x, weight, expert, gate_up, down);
  b.measure<Four(T, T, T, T, T, T, std::array<bool, 4>)>("moe_ffn_backward", what, 2 * used, products * 8 / 3, x, x,
                                                         weight, expert, gate_up, down,
                                                         std::array<bool, 4>{true, true, true, true});
}

void optimise(const Bench& b) {
  const int64_t count = int64_t{1} << 25;
  at::Tensor p = b.random({count}), m = at::zeros({count}, p.options().dtype(at::kFloat)), v = m.clone();
  const at::Tensor g = b.random({count});
  const bool half = p.scalar_type() != m.scalar_type();
  // p, g once each way or once; m, v (and the master) in f32, read and written
  const double elements = 3.0 * count + (half ? 6 : 4) * count * (4 / b.size());
  using Step = void(at::Tensor&, T, at::Tensor&, at::Tensor&, O, double, double, double, double, double, int64_t,
                    double, int64_t);
  b.measure<Step>("adamw", "32 M", elements, 0, p, g, m, v, half ? maybe(p.to(at::kFloat)) : OptionalTensor(), 1e-3,
                  0.9, 0.95, 1e-8, 0.1, int64_t{3}, 1.0, int64_t{-1});
  at::Tensor m8 = at::zeros({count}, p.options().dtype(at::kChar)),
             v8 = at::zeros({count}, p.options().dtype(at::kByte));
  at::Tensor m_scale = at::zeros({count / 256}, m.options()), v_scale = m_scale.clone();
  using Step8 = void(at::Tensor&, T, at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&, O, double, double, double,
                     double, double, int64_t, double, int64_t, bool);
  b.measure<Step8>("adamw_8bit", "32 M, stochastic", 3.0 * count + 4 * (count + 4.0 * (count / 256)) / b.size(), 0, p,
                   g, m8, m_scale, v8, v_scale, OptionalTensor(), 1e-3, 0.9, 0.95, 1e-8, 0.1, int64_t{3}, 1.0,
                   int64_t{5}, true);
  const std::vector<at::Tensor> all{g};
  b.measure<One(at::TensorList)>("sum_of_squares", "32 M", count / 2.0, 0, all);  // read only: half of a copy's bytes
}

// Qwen3-Next's shapes: the delta net of a layer that keeps a state, beside the attention of one that keeps keys.
void keep_state(const Bench& b) {
  const int64_t tokens = 8192, groups = 16, heads = 32, size = 128;
  const at::Tensor q = b.f32({tokens, groups, size}) / std::sqrt(static_cast<double>(size)), k = q.clone(),
                   v = b.f32({tokens, heads, size}), decay = -b.f32({tokens, heads}).abs(),
                   share = b.f32({tokens, heads}).sigmoid();
  at::Tensor state = at::zeros({1, heads, size, size}, v.options());
  const double products = 3.0 * tokens * heads * size * size;
  b.measure<One(T, T, T, T, O, at::IntArrayRef, T, at::Tensor&)>(
      "state_scan_on", "8192", 2.0 * tokens * heads * size, products, q, k, v, decay, maybe(share),
      at::IntArrayRef(tokens), at::zeros({1}, v.options().dtype(at::kLong)), state);
  const int64_t keys = 2048;
  const at::Tensor query = b.random({keys, 16, 256}), key = b.random({keys, 2, 256}), cu = b.int32({0, keys});
  b.measure<Two(T, T, T, T, T, int64_t, int64_t, double, bool, int64_t, double, O)>(
      "attention", "2048, Qwen3-Next's", 40.0 * keys * 256, 32.0 * keys * (keys + 1) / 2 * 256, query, key, key, cu, cu,
      keys, keys, 1.0 / 16, true, 0, 0.0, OptionalTensor());
}

int run(int argc, char** argv) {
  const auto type = parse_float_type(argc > 2 ? argv[2] : "bfloat16");
  require(type.has_value(), Fault::Usage, "no such type: ", argv[2]);
  const Bench bench(argc > 1 ? argv[1] : "cpu", *type, argc > 3 ? argv[3] : "");
  for (const int64_t t : {1, 512, 2048}) rows(bench, t);
  attend(bench, 1, 512);
  attend(bench, 1, 4096);
  attend(bench, 512, 512);
  attend(bench, 2048, 2048);
  for (const int64_t t : {1, 512}) multiply(bench, t);
  vocabulary(bench, 128);
  for (const int64_t t : {1, 512}) experts(bench, t);
  keep_state(bench);
  optimise(bench);
  return 0;
}

}  // namespace
}  // namespace apus::ops

int main(int argc, char** argv) {
  try {
    return apus::ops::run(argc, argv);
  } catch (const apus::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return apus::exit_code(e.at.fault);
  }
}
