// SPDX-License-Identifier: Apache-2.0
// Parts of quantised weights, and stacks of them: their numbers, as numbers and as codes.
#include "quant/cutout.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "quant/bnb4.h"
#include "quant/codes.h"
#include "quant/fp8.h"
#include "quant/hqq.h"
#include "quant/int8.h"
#include "quant/row_stack.h"

namespace apus::quant {
namespace {

constexpr Shape kShape{96, 320};
using MatrixPtr = std::shared_ptr<const Matrix>;

std::vector<MatrixPtr> weights() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<size_t>(kShape.count()));
  for (float& x : w) x = normal(random);
  const HqqForm groups{.bits = 4, .group = 64, .axis = 1};
  std::vector<MatrixPtr> all;
  all.push_back(open_bnb4({"layer", quantise_bnb4(w, kShape, {})}, kShape));
  all.push_back(open_bnb_int8({"layer", quantise_bnb_int8(w, kShape)}, kShape));
  all.push_back(open_hqq({"layer", quantise_hqq(w, kShape, groups, false)}, kShape, groups));
  all.push_back(open_fp8({"layer", quantise_fp8(w, kShape, {})}, kShape, {}));
  return all;
}

std::vector<float> numbers(const Matrix& m, int64_t row, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count * m.shape().columns));
  m.dequantise(row, count, out.data());
  return out;
}

// What the codes stand for, of formats that are no FP8; read so many rows at a time.
std::vector<float> from_codes(const Matrix& m, int64_t step = 1000) {
  const auto& coded = dynamic_cast<const Coded&>(m);
  const CodeForm form = *coded.code_form();
  const auto [rows, columns] = m.shape();
  const int64_t groups = (columns + form.group - 1) / form.group;
  std::vector<uint8_t> code(static_cast<size_t>(rows * columns));
  std::vector<float> scale(static_cast<size_t>(rows * groups)), zero(scale.size()), least(scale.size()), out;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t at = row * groups;
    coded.read_codes(row, std::min(step, rows - row),
                     {code.data() + row * columns, scale.data() + at, zero.data() + at, least.data() + at});
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(r * columns + c), group = static_cast<size_t>(r * groups + c / form.group);
      const float value =
          form.kind == CodeForm::Kind::Book ? form.book[code[at]] : static_cast<float>(static_cast<int8_t>(code[at]));
      out.push_back((value - zero[group]) * scale[group] - least[group]);
    }
  return out;
}

TEST(Cutout, HoldsTheNumbersOfTheWhole) {
  const std::vector<Cutout> cuts = {{0, 0, {48, 320}},   {48, 0, {48, 320}}, {7, 0, {13, 320}},  {0, 128, {96, 192}},
                                    {31, 64, {33, 128}}, {5, 96, {70, 224}}, {0, 20, {96, 300}}, {95, 319, {1, 1}}};
  for (const MatrixPtr& whole : weights()) {
    const std::vector<float> all = numbers(*whole, 0, kShape.rows);
    for (const Cutout& cut : cuts) {
      SCOPED_TRACE(
          str(whole->format(), ": ", cut.shape.rows, " x ", cut.shape.columns, " at ", cut.row, ", ", cut.column));
      const MatrixPtr part = cut_out(whole, cut);
      ASSERT_EQ(part->shape(), cut.shape);
      std::vector<float> want;
      for (int64_t r = 0; r < cut.shape.rows; ++r) {
        const auto begin = all.begin() + (cut.row + r) * kShape.columns + cut.column;
        want.insert(want.end(), begin, begin + cut.shape.columns);
      }
      EXPECT_EQ(numbers(*part, 0, cut.shape.rows), want);
      const int64_t last = cut.shape.rows - 1;
      EXPECT_EQ(numbers(*part, last, 1), std::vector<float>(want.end() - cut.shape.columns, want.end()));
      EXPECT_LE(part->bytes(), whole->bytes());
      const auto form = dynamic_cast<const Coded&>(*part).code_form();
      const bool groups = dynamic_cast<const Coded&>(*whole).code_form()->group < kShape.columns;
      EXPECT_EQ(form.has_value(), !groups || cut.column % 32 == 0);
      if (!form || form->kind == CodeForm::Kind::E4m3) continue;
      const std::vector<float> coded = from_codes(*part);
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(coded[i], want[i], 1e-6f * std::abs(want[i]) + 1e-7f) << i;
    }
  }
}

TEST(Cutout, IsTheWeightItselfWhereItIsAllOfIt) {
  const MatrixPtr whole = weights()[0];
  EXPECT_EQ(cut_out(whole, {.shape = kShape}), whole);
  EXPECT_THROW(cut_out(whole, {.row = 1, .shape = kShape}), Error);
}

TEST(Cutout, IsWidenedToAGridThatEndsWithTheWhole) {
  const Cutout wide = widened({30, 200, {40, 100}}, kShape, 64);
  EXPECT_EQ(wide.row, 0);
  EXPECT_EQ(wide.column, 192);
  EXPECT_EQ(wide.shape, (Shape{96, 128}));
}

TEST(RowStack, HoldsTheNumbersOfAllOneBelowTheOther) {
  for (const MatrixPtr& first : weights()) {
    SCOPED_TRACE(first->format());
    const MatrixPtr second = cut_out(first, {.row = 32, .shape = {40, 320}}),
                    third = cut_out(first, {.row = 0, .shape = {40, 320}}), all = row_stack({second, third});
    ASSERT_TRUE(all);
    EXPECT_EQ(all->shape(), (Shape{80, 320}));
    EXPECT_EQ(all->bytes(), second->bytes() + third->bytes());
    std::vector<float> want = numbers(*second, 0, 40);
    const std::vector<float> more = numbers(*third, 0, 40);
    want.insert(want.end(), more.begin(), more.end());
    EXPECT_EQ(numbers(*all, 0, 80), want);
    EXPECT_EQ(numbers(*all, 35, 10), std::vector<float>(want.begin() + 35 * 320, want.begin() + 45 * 320));
    if (dynamic_cast<const Coded&>(*all).code_form()->kind == CodeForm::Kind::E4m3) continue;
    const std::vector<float> coded = from_codes(*all, 32);  // from within the second on
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(coded[i], want[i], 1e-6f * std::abs(want[i]) + 1e-7f) << i;
  }
}

TEST(RowStack, TakesNoneThatAreNotAlike) {
  const auto all = weights();
  EXPECT_FALSE(row_stack({all[0], all[1]}));                                 // forms
  EXPECT_FALSE(row_stack({all[0], cut_out(all[0], {.shape = {32, 320}})}));  // sizes
  // rows that end within a panel
  EXPECT_TRUE(row_stack({all[0], all[0]}));
}

}  // namespace
}  // namespace apus::quant
