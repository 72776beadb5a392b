// SPDX-License-Identifier: Apache-2.0
// The processor's kernels on every instruction set path that this machine has: odd sizes against the reference bodies
// in f64, and bit for bit what must not depend on the rest of the batch, on chunking or on threads.
#include "tests/devices/cpu_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/ops/tensors.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

// As weights of a mapped file are taken.
at::Tensor in_place(const at::Tensor& w) {
  const at::Tensor packed = ops::pack_linear(w, true);
  EXPECT_TRUE(packed.is_alias_of(w));
  return packed;
}

TEST_P(CpuKernels, PackedLinearMultiplies) {
  const int64_t shapes[][3] = {{1, 1, 1},      {1, 64, 32},  {3, 33, 31},   {7, 100, 65},
                               {16, 896, 128}, {17, 31, 33}, {45, 520, 97}, {300, 1100, 70}};
  for (const auto type : kTypes)
    for (const auto& [m, k, n] : shapes) {
      const at::Tensor x = at::randn({m, k}).to(type), w = at::randn({n, k}).to(type), b = at::randn({n}).to(type);
      const at::Tensor expected = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
      const at::Tensor wide = at::cat({x, x}, 1), slice = wide.narrow(1, k, k);  // rows that lie apart
      for (const at::Tensor& packed : {ops::pack_linear(w), in_place(w)}) {
        ASSERT_TRUE(packed.defined());
        EXPECT_LT(error(ops::packed_linear(x, packed, {}, n), expected), tolerance(type)) << m << " " << k << " " << n;
        EXPECT_LT(error(ops::packed_linear(x, packed, b, n), expected + b.to(at::kDouble)), tolerance(type))
            << m << " " << k << " " << n;
        EXPECT_TRUE(ops::packed_linear(slice, packed, b, n).equal(ops::packed_linear(x, packed, b, n)));
      }
    }
}

TEST_P(CpuKernels, PlainLinearMultiplies) {
  const at::Tensor x = at::randn({3, 7, 75}).to(at::kBFloat16), all = at::randn({33, 150}).to(at::kBFloat16),
                   w = all.narrow(1, 75, 75);
  const at::Tensor b = at::randn({33}).to(at::kBFloat16),
                   expected = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
  EXPECT_LT(error(ops::linear(x, w, {}), expected), tolerance(at::kBFloat16));
  EXPECT_LT(error(ops::linear(x, w, b), expected + b.to(at::kDouble)), tolerance(at::kBFloat16));
  EXPECT_EQ(ops::linear(x.narrow(1, 0, 0), w, b).sizes().vec(), (std::vector<int64_t>{3, 0, 33}));
}

TEST_P(CpuKernels, PackedLinearRowsDoNotSeeEachOther) {
  for (const auto type : kTypes) {
    const int64_t k = 1100, n = 101;  // more than one block of k
    const at::Tensor x = at::randn({300, k}).to(type), w = at::randn({n, k}).to(type), b = at::randn({n}).to(type);
    for (const at::Tensor& packed : {ops::pack_linear(w), in_place(w)}) {
      const at::Tensor all = ops::packed_linear(x, packed, b, n);
      for (const int64_t m : {1, 2, 7, 12, 13, 16, 17, 31, 32, 33, 64, 257})
        EXPECT_TRUE(ops::packed_linear(x.narrow(0, 300 - m, m), packed, b, n).equal(all.narrow(0, 300 - m, m)))
            << m << " rows";
      const int threads = at::get_num_threads();
      at::set_num_threads(threads == 1 ? 2 : 1);
      EXPECT_TRUE(ops::packed_linear(x, packed, b, n).equal(all));
      at::set_num_threads(threads);
    }
  }
}

TEST_P(CpuKernels, RowsOfOddLength) {
  for (const auto type : kTypes)
    for (const int64_t d : {1, 15, 64, 97, 896}) {
      const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const at::Tensor both = at::randn({37, 2 * d}).to(type), x = both.narrow(1, 0, d), y = both.narrow(1, d, d),
                       w = at::randn({d}).to(type);
      EXPECT_LT(error(ops::rms_norm(x, w, 1e-6), ops::rms_norm(wide(x), wide(w), 1e-6)), tolerance(type)) << d;
      const auto [sum, normal] = ops::add_rms_norm(x, y, w, 1e-6);
      EXPECT_TRUE(sum.equal((x + y)));
      EXPECT_LT(error(normal, ops::rms_norm(wide(sum), wide(w), 1e-6)), tolerance(type)) << d;
      EXPECT_LT(error(ops::swiglu(x, y), ops::swiglu(wide(x), wide(y))), tolerance(type)) << d;
      using NormBackward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool);
      const auto backward = op<NormBackward>("apus::rms_norm_backward");
      const auto [dx, dw] = backward.call(y, x, w, 1e-6, true);
      const auto [dx64, dw64] = backward.call(wide(y), wide(x), wide(w), 1e-6, true);
      if (d > 1) {  // with one element it is nearly zero
        EXPECT_LT(error(dx, dx64), 4 * tolerance(type)) << d;
      }
      EXPECT_LT(error(dw, dw64), tolerance(type)) << d;
      const auto gate = op<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&)>("apus::swiglu_backward");
      const auto [dg, du] = gate.call(x, y, x);
      const auto [dg64, du64] = gate.call(wide(x), wide(y), wide(x));
      EXPECT_LT(error(dg, dg64), tolerance(type)) << d;
      EXPECT_LT(error(du, du64), tolerance(type)) << d;
    }
}

TEST_P(CpuKernels, RopeOfPartOfAHeadAndBack) {
  for (const auto type : kTypes)
    for (const auto& [h, r] : std::vector<std::pair<int64_t, int64_t>>{{64, 32}, {80, 20}, {10, 3}}) {
      const at::Tensor q = at::randn({19, 5, h}).to(type), k = at::randn({19, 2, h}).to(type),
                       angle = at::randn({19, r});
      const auto rope =
          op<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool)>("apus::rope");
      const auto [tq, tk] = rope.call(q, k, angle.cos(), angle.sin(), false);
      const auto [q64, k64] = rope.call(q.to(at::kDouble), k.to(at::kDouble), angle.cos(), angle.sin(), false);
      EXPECT_LT(error(tq, q64), tolerance(type));
      EXPECT_LT(error(tk, k64), tolerance(type));
      EXPECT_LT(error(std::get<0>(rope.call(tq, tk, angle.cos(), angle.sin(), true)), q), 2 * tolerance(type));
    }
}

TEST_P(CpuKernels, HeadLossAndLogprobOfAnOddVocabulary) {
  for (const auto type : kTypes) {
    const int64_t t = 77, d = 64, v = 2500;
    const at::Tensor hidden = at::randn({t, d}).to(type), head = (at::randn({v, d}) * 0.3).to(type),
                     weight = at::randn({t}).abs();
    at::Tensor label = at::randint(0, v, {t}, at::kLong);
    label[3] = label[76] = -100;
    const at::Tensor low = at::randn({t, 5}).to(type), low_head = (at::randn({v, 5}) * 0.3).to(type);
    constexpr std::array<bool, 4> all{true, true, true, true};
    using Loss = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&, const at::Tensor&, const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
        const OptionalTensor&, double, bool, std::array<bool, 4>, int64_t, double);
    const auto loss = op<Loss>("apus::head_loss");
    for (const auto& [chunk, softcap] : {std::pair<int64_t, double>{0, 0}, {32, 0}, {32, 4}, {0, 1.5}})
      for (const bool dft : {false, true}) {
        const auto [sum, nll, correct, dh, dw, dl, db] =
            loss.call(hidden, head, low, low_head, label, weight, dft ? 0.0 : 0.1, dft, all, chunk, softcap);
        const auto [sum64, nll64, correct64, dh64, dw64, dl64, db64] =
            loss.call(hidden.to(at::kDouble), head.to(at::kDouble), low.to(at::kDouble), low_head.to(at::kDouble),
                      label, weight, dft ? 0.0 : 0.1, dft, all, 0, softcap);
        EXPECT_LT(error(sum, sum64), 2e-6);
        EXPECT_LT(error(nll, nll64), 2e-6);
        EXPECT_TRUE(correct.equal(correct64));
        EXPECT_LT(error(dh, dh64), tolerance(type)) << "chunk " << chunk;
        EXPECT_LT(error(dw, dw64), tolerance(type)) << "chunk " << chunk;
        EXPECT_LT(error(dl, dl64), tolerance(type)) << "chunk " << chunk;
        EXPECT_LT(error(db, db64), tolerance(type)) << "chunk " << chunk;
      }
    const ops::HeadLogprob got = ops::head_logprob({hidden, head}, label, 0.7, true),
                           expected =
                               ops::head_logprob({hidden.to(at::kDouble), head.to(at::kDouble)}, label, 0.7, true);
    EXPECT_LT(error(got.logprob_T, expected.logprob_T), 2e-6);
    EXPECT_LT(error(got.entropy_T, expected.entropy_T), 2e-5);
  }
}

TEST_P(CpuKernels, AdamwInEveryMixOfTypes) {
  for (const auto param_type : kTypes)
    for (const auto state_type : kTypes)
      for (const bool with_master : {false, true}) {
        const int64_t n = 5001;
        at::Tensor p = at::randn({n}).to(param_type), m = (at::randn({n}) * 0.1).to(state_type),
                   v = at::randn({n}).abs().to(state_type), master;
        const at::Tensor g = at::randn({n}).to(param_type);
        if (with_master) master = p.to(at::kFloat);
        at::Tensor p64 = p.to(at::kDouble), m64 = m.to(at::kDouble), v64 = v.to(at::kDouble), none;
        const ops::AdamwStep step{0.01, 0.9, 0.99, 1e-8, 0.1, 3, 0.5};
        ops::adamw(p, g, m, v, master, step);
        ops::adamw(p64, g.to(at::kDouble), m64, v64, none, step);
        EXPECT_LT(error(p, p64), tolerance(param_type));
        EXPECT_LT(error(m, m64), tolerance(state_type));
        EXPECT_LT(error(v, v64), tolerance(state_type));
        if (with_master) {
          EXPECT_LT(error(master, p64), 2e-6);
        }
      }
}

// The same codes as the reference but where a value lies on the border between two, the same parameter to the last bit.
TEST_P(CpuKernels, AdamwWithMomentsOfAByteIsTheReferences) {
  using Step = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&,
                    const OptionalTensor&, double, double, double, double, double, int64_t, double, int64_t, bool);
  const auto step = op<Step>("apus::adamw_8bit");
  for (const auto type : kTypes)
    for (const bool with_master : {false, true}) {
      const int64_t n = 70001;  // more than one chunk of the reference
      const at::Tensor start = at::randn({n}).to(type);
      struct State {
        at::Tensor p, m, m_scale, v, v_scale, master;
      } a{start.clone(),
          at::zeros({n}, at::kChar),
          at::zeros({(n + 255) / 256}),
          at::zeros({n}, at::kByte),
          at::zeros({(n + 255) / 256}),
          {}},
          b;
      if (with_master) a.master = start.to(at::kFloat);
      for (int64_t t = 1; t <= 3; ++t) {
        const at::Tensor g = (at::randn({n}) * at::rand({n}).pow(8)).to(type);
        b = {a.p.clone(), a.m.clone(),       a.m_scale.clone(),
             a.v.clone(), a.v_scale.clone(), with_master ? a.master.clone() : at::Tensor()};
        const auto run = [&](State& s, bool reference) {
          const OptionalTensor master = with_master ? OptionalTensor(s.master) : OptionalTensor();
          if (reference)
            ops::call_reference(step, s.p, g, s.m, s.m_scale, s.v, s.v_scale, master, 0.01, 0.9, 0.99, 1e-8, 0.1, t,
                                0.5, 12345 * t, !with_master);
          else
            step.call(s.p, g, s.m, s.m_scale, s.v, s.v_scale, master, 0.01, 0.9, 0.99, 1e-8, 0.1, t, 0.5, 12345 * t,
                      !with_master);
        };
        run(a, false);
        run(b, true);
        EXPECT_LT(error(a.m_scale, b.m_scale), 1e-5);
        EXPECT_LT(error(a.v_scale, b.v_scale), 1e-5);
        for (const auto& [x, y] : {std::pair(a.m, b.m), std::pair(a.v, b.v)}) {
          const at::Tensor off = (x.to(at::kInt) - y.to(at::kInt)).abs();
          EXPECT_LE(off.max().item<int>(), 1);
          EXPECT_LT(off.sum().item<double>(), 0.001 * static_cast<double>(n));
        }
        EXPECT_LT(error(a.p, b.p), type == at::kFloat || !with_master ? tolerance(type) : tolerance(at::kBFloat16));
        EXPECT_LT((a.p != b.p).sum().item<double>(), (type == at::kFloat ? 1 : 0.01) * static_cast<double>(n));
      }
    }
}

// A head's gradient is made from kept gradients of logits, or, where those of all tokens would be large, summed.
TEST(Cpu, HeadGradientKeptOrSummed) {
  open_device("cpu");
  for (const auto type : kTypes) {
    // Logits: 169 MB.
    const int64_t tokens = type == at::kFloat ? 2112 : 4224, vocabulary = 20001, width = 32, rank = 5;
    const at::Tensor hidden = at::randn({tokens, width}).to(type), low = at::randn({tokens, rank}).to(type);
    const at::Tensor head = at::randn({vocabulary, width}).to(type).requires_grad_(),
                     low_head = at::randn({vocabulary, rank}).to(type).requires_grad_();
    const at::Tensor label = at::randint(vocabulary, {tokens}, at::kLong);
    const auto gradients = [&](int64_t begin, int64_t count) {
      head.mutable_grad().reset(), low_head.mutable_grad().reset();
      ops::head_loss({hidden.narrow(0, begin, count), head, low.narrow(0, begin, count), low_head},
                     label.narrow(0, begin, count), {}, {})
          .loss_sum.backward();
      return std::pair(head.grad().to(at::kDouble), low_head.grad().to(at::kDouble));
    };
    const auto summed = gradients(0, tokens), first = gradients(0, tokens / 2),
               second = gradients(tokens / 2, tokens / 2);
    const double limit = type == at::kFloat ? 1e-5 : tolerance(type);
    EXPECT_LT(error(summed.first, first.first + second.first), limit);
    EXPECT_LT(error(summed.second, first.second + second.second), limit);
    EXPECT_GT(summed.first.abs().max().item<double>(), 0.1);
  }
}

#if defined(__x86_64__)
// Processors on which the instruction for pairs does not pay still test it.
TEST(Cpu, PairsOfBf16MultiplyAsF32Does) {
  if (machine_isa() < Isa::Avx512) GTEST_SKIP() << "this machine has no vdpbf16ps";
  const int64_t k = 96;
  const at::Tensor b = at::randn({32, k}).to(at::kBFloat16);
  std::vector<const bf16*> columns;
  for (int64_t i = 0; i < 32; ++i) columns.push_back(static_cast<const bf16*>(b.data_ptr()) + i * k);
  std::vector<bf16> panel(static_cast<size_t>(panel_size<bf16>(k)));
  kAvx512PairKernels.b16.pack_columns(columns.data(), 32, k, panel.data());
  for (const int64_t m : {1, 5, 12, 13, 40}) {
    const at::Tensor a = at::randn({m, k}).to(at::kBFloat16), pairs = at::ones({m, 32}), f32 = at::ones({m, 32});
    const auto* rows = static_cast<const bf16*>(a.data_ptr());
    for (const bool add : {false, true}) {
      kAvx512PairKernels.b16.multiply(m, k, rows, k, panel.data(), pairs.data_ptr<float>(), 32, add, panel.data());
      kAvx512Kernels.b16.multiply(m, k, rows, k, panel.data(), f32.data_ptr<float>(), 32, add, panel.data());
      EXPECT_LT(error(f32, at::matmul(a.to(at::kDouble), b.to(at::kDouble).t()) * (add ? 2 : 1)), 1e-6) << m;
      EXPECT_LT(error(pairs, f32), 1e-6) << m;
    }
    std::vector<float> space(static_cast<size_t>(kDotStretch * kDotBatch));
    kAvx512PairKernels.b16.dots(m, 32, k - 5, rows, k, static_cast<const bf16*>(b.data_ptr()), k,
                                pairs.data_ptr<float>(), 32, space.data());
    kAvx512Kernels.b16.dots(m, 32, k - 5, rows, k, static_cast<const bf16*>(b.data_ptr()), k, f32.data_ptr<float>(), 32,
                            space.data());
    EXPECT_LT(error(f32, at::matmul(a.narrow(1, 0, k - 5).to(at::kDouble), b.narrow(1, 0, k - 5).to(at::kDouble).t())),
              1e-6)
        << m;
    EXPECT_LT(error(pairs, f32), 1e-6) << m;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Cpu, CpuKernels, ::testing::ValuesIn(isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

TEST(Isa, UnknownNameIsRefused) {
  EXPECT_EQ(parse_isa(isa_name(isas().back())), isas().back());
  EXPECT_THROW(parse_isa("sse9"), Error);
}

TEST(Heap, LargeTensorsComeBackAndNeighboursJoin) {
  open_device("cpu");
  ASSERT_TRUE(keep_large_tensors());
  const int64_t before = heap_use().used;
  void* first = nullptr;
  {
    const at::Tensor a = at::empty({4 << 20}, at::kByte), b = at::empty({4 << 20}, at::kByte);
    EXPECT_EQ(heap_use().used - before, 8 << 20);
    first = std::min(a.data_ptr(), b.data_ptr());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
  }
  EXPECT_EQ(heap_use().used, before);
  const at::Tensor joined = at::empty({8 << 20}, at::kByte);
  EXPECT_EQ(joined.data_ptr(), first);
  joined.fill_(1);
  release_kept();  // must not touch what is in use
  EXPECT_EQ(joined.sum().item<int64_t>(), 8 << 20);
}

}  // namespace
}  // namespace apus::cpu
