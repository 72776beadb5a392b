// SPDX-License-Identifier: Apache-2.0
// Quantised weights in the order of an NPU: what the vendor's product is given, on the simulated device and, where no
// device is needed, anywhere.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <span>

#include "devices/ascend/code_order.h"
#include "ops/ops.h"
#include "ops/quantised.h"
#include "quant/codes.h"
#include "quant/row_stack.h"
#include "tensor/noise.h"
#include "tests/devices/coded_weights.h"
#include "tests/golden.h"

namespace apus {
namespace {

// A format with everything at once: any number of rows, groups of any width, zeros or leasts, scales of 0.
class Made final : public quant::Matrix, public quant::Coded {
 public:
  Made(quant::Shape shape, quant::CodeForm form, int64_t seed = 0) : Matrix(shape), form_(form), seed_(seed) {}
  const char* format() const override { return "made"; }
  int64_t bytes() const override { return shape().count(); }
  void dequantise(int64_t row, int64_t count, float* out) const override {
    for (int64_t r = row; r < row + count; ++r)
      for (int64_t c = 0; c < shape().columns; ++c) {
        const int64_t g = c / form_.group, code = code_of(r, c);
        const float value = form_.kind == quant::CodeForm::Kind::Book ? form_.book[static_cast<size_t>(code)]
                                                                      : static_cast<float>(code + form_.lowest);
        *out++ = (value - zero_of(r, g)) * scale_of(r, g) - least_of(r, g);
      }
  }
  std::optional<quant::CodeForm> code_form() const override { return form_; }
  void read_codes(int64_t row, int64_t count, const quant::CodeRows& out) const override {
    const int64_t columns = shape().columns, groups = (columns + form_.group - 1) / form_.group;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        out.code[r * columns + c] =
            static_cast<uint8_t>(code_of(row + r, c) + (form_.kind == quant::CodeForm::Kind::Book ? 0 : form_.lowest));
      for (int64_t g = 0; g < groups; ++g) {
        out.scale[r * groups + g] = scale_of(row + r, g);
        if (form_.zeros) out.zero[r * groups + g] = zero_of(row + r, g);
        if (form_.leasts) out.least[r * groups + g] = least_of(row + r, g);
      }
    }
  }

 private:
  int64_t code_of(int64_t r, int64_t c) const {
    return (r * 7 + c * 5 + r * c + seed_ * (c + 3)) % (int64_t{1} << form_.bits);
  }
  float scale_of(int64_t r, int64_t g) const { return r % 5 == 2 ? 0 : 0.01f * static_cast<float>(1 + (r + g) % 7); }
  float zero_of(int64_t r, int64_t g) const { return form_.zeros ? static_cast<float>((r + 3 * g) % 16) : 0; }
  float least_of(int64_t r, int64_t g) const { return form_.leasts ? 0.02f * static_cast<float>(1 + (r + g) % 4) : 0; }

  const quant::CodeForm form_;
  const int64_t seed_;
};

constexpr quant::CodeBook4 kSigns = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

const std::vector<quant::CodeForm>& made_forms() {
  using Kind = quant::CodeForm::Kind;
  static const std::vector<quant::CodeForm> all = {
      {.kind = Kind::Book, .group = 32, .book = kSigns, .bits = 4},
      {.kind = Kind::Book, .group = 32, .zeros = true, .book = quant::kWholeNumbers, .bits = 4},
      {.kind = Kind::Book, .group = 32, .leasts = true, .book = quant::kWholeNumbers, .bits = 4},
      {.kind = Kind::Book, .group = 64, .leasts = true, .book = quant::kNf4, .bits = 4},
      {.kind = Kind::Signed, .group = 32, .bits = 8, .lowest = -128},
      {.kind = Kind::Signed, .group = 1000, .bits = 8, .lowest = -128},
      {.kind = Kind::Signed, .group = 16, .leasts = true, .bits = 5, .lowest = 0}};
  return all;
}

std::vector<std::shared_ptr<const quant::Matrix>> made_weights() {
  std::vector<std::shared_ptr<const quant::Matrix>> all;
  for (const quant::CodeForm& form : made_forms())
    for (const quant::Shape shape : {quant::Shape{43, 96}, {64, 112}})
      all.push_back(std::make_shared<Made>(shape, form));
  for (const auto& weight : coded_weights({96, 608})) all.push_back(weight.matrix);
  return all;
}

// Numbers of groups are rounded to the type of the product, and what they make of a code once more.
void expect_near(const at::Tensor& got, const at::Tensor& want, double relative, const char* what) {
  const at::Tensor miss = (got.to(at::kCPU, at::kFloat) - want).abs();
  EXPECT_LT(miss.max().item<float>(), relative * want.abs().max().item<float>()) << what;
}

TEST(AscendCodes, AreTheNumbersOfTheirFormatInF32) {
  for (const auto& matrix : made_weights()) {
    SCOPED_TRACE(str(matrix->format(), " ", matrix->shape().rows, " x ", matrix->shape().columns));
    const auto order = ascend::CodeOrder::of(*matrix, at::kFloat);
    ASSERT_EQ(order.pieces.size(), 1u);
    EXPECT_FALSE(order.multiplied);
    const at::Tensor want = ops::dequantised(*matrix, 0, order.rows, at::kFloat);
    expect_near(order.plain(order.pieces[0], 0, order.rows).t(), want, 1e-5, "all");
    expect_near(order.plain(order.pieces[0], 3, 30).t(), want.narrow(0, 3, 30), 1e-5, "some");
    const at::Tensor ids = at::tensor({5, 0, 31, 5}, at::kLong);
    expect_near(order.plain_rows(ids), want.index_select(0, ids), 1e-5, "rows");
  }
}

TEST(AscendCodes, ScalesTooSmallForF16AreNotRoundedToIt) {
  const quant::Shape shape{32, 64};
  const at::Tensor wide = normal_noise({32, 64}, 0, 1e-6, 3);
  const std::span<const float> w(wide.data_ptr<float>(), 32 * 64);
  const auto small = quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(w, shape)}, shape);
  EXPECT_TRUE(ascend::CodeOrder::of(*small, at::kBFloat16).multiplied);
  EXPECT_FALSE(ascend::CodeOrder::of(*small, at::kHalf).multiplied);
}

TEST(AscendCodes, ProductsRoundXOnlyForWholeRowsOfEightBits) {
  int rounded = 0;
  for (const auto& matrix : made_weights()) {
    const auto form = *dynamic_cast<const quant::Coded&>(*matrix).code_form();
    const auto order = ascend::CodeOrder::of(*matrix, at::kBFloat16, 0, /*may_round=*/true);
    const bool whole = form.kind == quant::CodeForm::Kind::Signed && form.group >= matrix->shape().columns;
    EXPECT_EQ(order.rounds, whole && !form.leasts && !form.zeros) << matrix->format();
    EXPECT_FALSE(ascend::CodeOrder::of(*matrix, at::kBFloat16).rounds);
    if (order.rounds) EXPECT_EQ(order.pieces[0].scale.scalar_type(), at::kFloat);
    rounded += order.rounds;
  }
  EXPECT_EQ(rounded, 3);
}

class NpuCodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (golden::device_named().rfind("npu", 0) != 0) GTEST_SKIP() << "of the simulated NPU";
  }
};

TEST_F(NpuCodes, ProductsAreThoseOfTheFormat) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat})
    for (const auto& matrix : made_weights()) {
      SCOPED_TRACE(
          str(matrix->format(), " ", matrix->shape().rows, " x ", matrix->shape().columns, " ", c10::toString(type)));
      const auto [rows, columns] = matrix->shape();
      const at::Tensor held = ops::quantised_tensor(matrix, type, golden::device());
      ASSERT_FALSE(ops::matrix_of(held)) << "it is not kept as codes";
      const double rounding = type == at::kBFloat16 ? 8e-3 : type == at::kHalf ? 2e-3 : 1e-5;
      const at::Tensor want = ops::dequantised(*matrix, 0, rows, at::kFloat);
      expect_near(ops::plain(held), want, rounding, "plain");
      const at::Tensor x = normal_noise({5, columns}, 0, 1, 1).to(type), b = normal_noise({rows}, 0, 1, 2).to(type);
      const at::Tensor y = at::matmul(x.to(at::kFloat), want.t());
      expect_near(ops::linear(x.to(held.device()), held, {}), y, rounding, "product");
      expect_near(ops::linear(x.to(held.device()), held, b.to(held.device())), y + b.to(at::kFloat), rounding, "bias");
      const at::Tensor ids = at::tensor({5, 0, 31, 5}, at::kLong).view({2, 2});
      expect_near(ops::embedding(ids.to(held.device()), held),
                  want.index_select(0, ids.view({-1})).view({2, 2, columns}), rounding, "table");
      EXPECT_LT(ops::held_bytes(held), matrix->shape().count() * 3 / 2 + 4096);
    }
}

// As the vendor rounds it: 127 steps to a row's largest number.
TEST_F(NpuCodes, ProductsWithXInEightBits) {
  const quant::Shape shape{43, 96};
  const auto matrix = std::make_shared<Made>(
      shape, quant::CodeForm{.kind = quant::CodeForm::Kind::Signed, .group = 1000, .bits = 8, .lowest = -128});
  const at::Tensor want = ops::dequantised(*matrix, 0, shape.rows, at::kFloat);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor held = ops::quantised_tensor(matrix, type, golden::device(), ops::Products::Int8);
    const at::Tensor x = normal_noise({5, shape.columns}, 0, 1, 1).to(type), b = normal_noise({43}, 0, 1, 2).to(type);
    const at::Tensor step = x.to(at::kFloat).abs().amax(1, /*keepdim=*/true) / 127,
                     whole = (x.to(at::kFloat) / step).round() * step;
    const double rounding = type == at::kBFloat16 ? 8e-3 : 2e-3;
    const at::Tensor y = at::matmul(whole, want.t()) + b.to(at::kFloat);
    const at::Tensor got = ops::linear(x.to(held.device()), held, b.to(held.device()));
    expect_near(got, y, rounding, "product");
    const at::Tensor exact = at::matmul(x.to(at::kFloat), want.t()) + b.to(at::kFloat);
    const auto miss = [&](const at::Tensor& t) { return (got.to(at::kCPU, at::kFloat) - t).norm().item<float>(); };
    EXPECT_LT(miss(y), miss(exact));
    expect_near(ops::plain(held), want, rounding, "plain");
  }
}

// Experts of a layer: of each form four matrices, whose codes differ.
std::vector<std::shared_ptr<const quant::Matrix>> experts_like(const quant::CodeForm& form) {
  std::vector<std::shared_ptr<const quant::Matrix>> all;
  for (int64_t e = 0; e < 4; ++e) all.push_back(std::make_shared<Made>(quant::Shape{64, 192}, form, e));
  return all;
}

at::Tensor stack_of(const std::vector<std::shared_ptr<const quant::Matrix>>& experts, at::ScalarType type) {
  return ops::quantised_stack(
      std::ssize(experts),
      [&](int64_t e) {
        return ops::StackEntry{experts[static_cast<size_t>(e)], {}};
      },
      {2, 2, 64, 192}, type, golden::device());
}

// Two experts of two matrices each (gate, up): many rows, few, none of one of them; products, gradients, parts.
TEST_F(NpuCodes, ExpertsAreMultipliedTogether) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const quant::CodeForm& form : made_forms()) {
      const auto experts = experts_like(form);
      SCOPED_TRACE(str(form.bits, " bits in groups of ", form.group, " ", c10::toString(type)));
      const at::Tensor held = stack_of(experts, type);
      ASSERT_TRUE(ops::codes_of(held)) << "it is not kept as codes";
      EXPECT_LT(ops::held_bytes(held), 4 * 64 * 192 * 2);
      std::vector<at::Tensor> values;
      for (const auto& matrix : experts) values.push_back(ops::dequantised(*matrix, 0, 64, at::kFloat));
      const at::Tensor want = at::stack(values).view({2, 128, 192});
      const double rounding = type == at::kBFloat16 ? 8e-3 : 2e-3;
      expect_near(ops::plain(held).view({2, 128, 192}), want, rounding, "plain");
      expect_near(ops::plain_rows(held, 1, 1).view({128, 192}), want[1], rounding, "the second");
      EXPECT_TRUE(at::equal(ops::plain(ops::matrix_in(held, 3)), ops::plain(held)[1][1]));
      for (const std::vector<int64_t>& ends : {std::vector<int64_t>{3, 7}, {0, 1}, {5, 5}, {0, 0}}) {
        at::Tensor x = normal_noise({ends[1], 192}, 0, 1, 1).to(type);
        const at::Tensor wide = x.to(at::kFloat), first = at::matmul(wide.narrow(0, 0, ends[0]), want[0].t());
        const at::Tensor y = at::cat({first, at::matmul(wide.narrow(0, ends[0], ends[1] - ends[0]), want[1].t())});
        x = x.to(held.device()).set_requires_grad(true);
        const at::Tensor got = ops::quantised_grouped_linear(x, held, at::tensor(ends, at::kLong).to(held.device()));
        ASSERT_EQ(got.sizes(), y.sizes());
        if (ends[1] == 0) continue;
        expect_near(got.detach(), y, rounding, "product");
        const at::Tensor g = normal_noise({ends[1], 128}, 0, 1, 2).to(type);
        got.backward(g.to(held.device()));
        const at::Tensor wide_g = g.to(at::kFloat), dx = at::matmul(wide_g.narrow(0, 0, ends[0]), want[0]);
        expect_near(x.grad(), at::cat({dx, at::matmul(wide_g.narrow(0, ends[0], ends[1] - ends[0]), want[1])}),
                    rounding, "gradient");
      }
    }
}

// What is not alike in all of them is held plain.
TEST_F(NpuCodes, ExpertsOfTwoFormsArePlain) {
  auto experts = experts_like(made_forms()[0]);
  experts[2] = std::make_shared<Made>(quant::Shape{64, 192}, made_forms()[1]);
  const at::Tensor held = stack_of(experts, at::kBFloat16);
  EXPECT_FALSE(ops::is_quantised(held));
  expect_near(held[1][0], ops::dequantised(*experts[2], 0, 64, at::kFloat), 8e-3, "the third");
}

TEST(AscendCodes, WhichExpertsTheGroupedProductTakes) {
  int together = 0;
  for (const quant::CodeForm& form : made_forms()) {
    const auto all = quant::row_stack(experts_like(form));
    ASSERT_TRUE(all);
    const auto order = ascend::CodeOrder::of(*all, at::kBFloat16, 2);
    const bool counted = form.kind == quant::CodeForm::Kind::Book ? form.book == kSigns : form.group > 192;
    EXPECT_EQ(order.multiplied_together, counted) << form.bits << " bits in groups of " << form.group;
    together += counted;
  }
  EXPECT_EQ(together, 2);
}

TEST_F(NpuCodes, TablesOfMoreRowsThanTheProductTakes) {
  const auto matrix = std::make_shared<Made>(
      quant::Shape{65504 + 77, 64},
      quant::CodeForm{
          .kind = quant::CodeForm::Kind::Book, .group = 32, .zeros = true, .book = quant::kWholeNumbers, .bits = 4});
  const int64_t rows = matrix->shape().rows;
  const at::Tensor held = ops::quantised_tensor(matrix, at::kBFloat16, golden::device());
  const at::Tensor want = ops::dequantised(*matrix, 0, rows, at::kFloat);
  const at::Tensor x = normal_noise({2, 64}, 0, 1, 1).to(at::kBFloat16);
  expect_near(ops::linear(x.to(held.device()), held, {}), at::matmul(x.to(at::kFloat), want.t()), 8e-3, "product");
  expect_near(ops::plain_rows(held, 65472, 100), want.narrow(0, 65472, 100), 8e-3, "rows of two pieces");
  const at::Tensor ids = at::tensor({65503, 65504, 0, 65580}, at::kLong);
  expect_near(ops::embedding(ids.to(held.device()), held), want.index_select(0, ids), 8e-3, "table");
}

}  // namespace
}  // namespace apus
