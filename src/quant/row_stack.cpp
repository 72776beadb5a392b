// SPDX-License-Identifier: Apache-2.0
#include "quant/row_stack.h"

#include <algorithm>
#include <utility>

#include "quant/codes.h"

namespace apus::quant {

namespace {

constexpr int64_t kPanel = 32;  // formats give codes from a multiple of so many rows on

std::optional<CodeForm> form_of(const Matrix& matrix) {
  const auto* const coded = dynamic_cast<const Coded*>(&matrix);
  return coded ? coded->code_form() : std::nullopt;
}

class RowStack final : public Matrix, public Coded {
 public:
  explicit RowStack(std::vector<std::shared_ptr<const Matrix>> matrices)
      : Matrix({std::ssize(matrices) * matrices[0]->shape().rows, matrices[0]->shape().columns}),
        matrices_(std::move(matrices)),
        each_(matrices_[0]->shape().rows),
        form_(*form_of(*matrices_[0])) {}

  const char* format() const override { return matrices_[0]->format(); }
  int64_t bytes() const override {
    int64_t all = 0;
    for (const auto& matrix : matrices_) all += matrix->bytes();
    return all;
  }
  void dequantise(int64_t row, int64_t count, float* out) const override {
    parts(row, count, [&](const Matrix& matrix, int64_t first, int64_t some, int64_t before) {
      matrix.dequantise(first, some, out + before * shape().columns);
    });
  }
  std::optional<CodeForm> code_form() const override { return form_; }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns, groups = (columns + form_.group - 1) / form_.group;
    parts(row, count, [&](const Matrix& matrix, int64_t first, int64_t some, int64_t before) {
      const auto at = [&](float* numbers) { return numbers ? numbers + before * groups : nullptr; };
      const CodeRows to{out.code + before * columns, at(out.scale), at(out.zero), at(out.least)};
      const auto& coded = dynamic_cast<const Coded&>(matrix);
      const int64_t more = first % kPanel;
      if (more == 0) return coded.read_codes(first, some, to);
      std::vector<uint8_t> code(static_cast<size_t>((more + some) * columns));
      std::vector<float> scale(static_cast<size_t>((more + some) * groups)), zero(scale), least(scale);
      coded.read_codes(first - more, more + some, {code.data(), scale.data(), zero.data(), least.data()});
      std::copy(code.begin() + more * columns, code.end(), to.code);
      std::copy(scale.begin() + more * groups, scale.end(), to.scale);
      if (form_.zeros) std::copy(zero.begin() + more * groups, zero.end(), to.zero);
      if (form_.leasts) std::copy(least.begin() + more * groups, least.end(), to.least);
    });
  }

 private:
  // f(matrix, its first row, rows, rows before them), from top to bottom.
  template <class F>
  void parts(int64_t row, int64_t count, const F& f) const {
    for (int64_t before = 0; before < count;) {
      const int64_t at = row + before, first = at % each_, some = std::min(count - before, each_ - first);
      f(*matrices_[static_cast<size_t>(at / each_)], first, some, before);
      before += some;
    }
  }

  const std::vector<std::shared_ptr<const Matrix>> matrices_;
  const int64_t each_;  // rows of a matrix
  const CodeForm form_;
};

}  // namespace

std::shared_ptr<const Matrix> row_stack(std::vector<std::shared_ptr<const Matrix>> matrices) {
  const Matrix& first = *matrices.at(0);
  const auto form = form_of(first);
  const bool alike = std::all_of(matrices.begin(), matrices.end(), [&](const auto& other) {
    return other->shape() == first.shape() && form_of(*other) == form;
  });
  if (!form || !alike) return nullptr;
  return std::make_shared<RowStack>(std::move(matrices));
}

}  // namespace apus::quant
