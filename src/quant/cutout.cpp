// SPDX-License-Identifier: Apache-2.0
#include "quant/cutout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "quant/codes.h"

namespace apus::quant {

namespace {

constexpr int64_t kRows = 32;     // that formats do best with
constexpr int64_t kColumns = 32;  // of the smallest groups that products are made with

// Columns of `from`, whose rows are `width` long, from `first` on.
template <class T>
void copy_columns(const T* from, int64_t width, int64_t first, Shape shape, T* to) {
  for (int64_t row = 0; row < shape.rows; ++row)
    std::copy_n(from + row * width + first, shape.columns, to + row * shape.columns);
}

class Part final : public Matrix, public Coded {
 public:
  Part(std::shared_ptr<const Matrix> whole, const Cutout& cutout)
      : Matrix(cutout.shape), whole_(std::move(whole)), row_(cutout.row), column_(cutout.column) {}

  const char* format() const override { return whole_->format(); }
  int64_t bytes() const override {
    const double share = static_cast<double>(shape().count()) / static_cast<double>(whole_->shape().count());
    return static_cast<int64_t>(static_cast<double>(whole_->bytes()) * share);
  }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const int64_t width = whole_->shape().columns, columns = shape().columns;
    if (width == columns) return whole_->dequantise(row_ + row, count, out);
    std::vector<float> some(static_cast<size_t>(std::min(kRows, count) * width));
    for (int64_t done = 0; done < count; done += kRows) {
      const int64_t n = std::min(kRows, count - done);
      whole_->dequantise(row_ + row + done, n, some.data());
      copy_columns(some.data(), width, column_, {n, columns}, out + done * columns);
    }
  }

  std::optional<CodeForm> code_form() const override {
    auto form = form_of_whole();
    if (!form || column_ == 0) return form;
    const bool alone = form->group >= whole_->shape().columns;  // one group a row
    form->group = alone ? shape().columns : std::gcd(form->group, column_);
    return alone || form->group % kColumns == 0 ? form : std::nullopt;
  }

  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const CodeForm wide = *form_of_whole();
    const int64_t width = whole_->shape().columns, wide_groups = groups_of(width, wide.group);
    const int64_t first = (row_ + row) / kRows * kRows, before = row_ + row - first, rows = before + count;
    std::vector<uint8_t> code(static_cast<size_t>(rows * width));
    const auto numbers = [&](bool there) {
      return std::vector<float>(there ? static_cast<size_t>(rows * wide_groups) : 0);
    };
    std::vector<float> scale = numbers(true), zero = numbers(wide.zeros), least = numbers(wide.leasts);
    dynamic_cast<const Coded&>(*whole_).read_codes(first, rows, {code.data(), scale.data(), zero.data(), least.data()});
    copy_columns(code.data() + before * width, width, column_, {count, shape().columns}, out.code);
    const int64_t group = code_form()->group, groups = groups_of(shape().columns, group);
    const auto take = [&](const std::vector<float>& from, float* to) {
      for (int64_t r = 0; r < count && !from.empty(); ++r)
        for (int64_t g = 0; g < groups; ++g)
          to[r * groups + g] =
              from[static_cast<size_t>((before + r) * wide_groups + (column_ + g * group) / wide.group)];
    };
    take(scale, out.scale), take(zero, out.zero), take(least, out.least);
  }

 private:
  static int64_t groups_of(int64_t columns, int64_t group) { return (columns + group - 1) / group; }
  std::optional<CodeForm> form_of_whole() const {
    const auto* coded = dynamic_cast<const Coded*>(whole_.get());
    return coded ? coded->code_form() : std::nullopt;
  }

  const std::shared_ptr<const Matrix> whole_;
  const int64_t row_, column_;
};

}  // namespace

std::shared_ptr<const Matrix> cut_out(std::shared_ptr<const Matrix> whole, const Cutout& cutout) {
  const auto [row, column, shape] = cutout;
  const Shape all = whole->shape();
  require(row >= 0 && column >= 0 && row + shape.rows <= all.rows && column + shape.columns <= all.columns, Fault::Bug,
          "a cutout [", shape.rows, ", ", shape.columns, "] at ", row, ", ", column, " of a weight [", all.rows, ", ",
          all.columns, "]");
  if (shape == all) return whole;
  return std::make_shared<Part>(std::move(whole), cutout);
}

Cutout widened(const Cutout& cutout, Shape whole, int64_t grid) {
  const auto side = [grid](int64_t begin, int64_t size, int64_t all) {
    const int64_t first = begin / grid * grid, last = (begin + size + grid - 1) / grid * grid;
    return std::pair{first, std::min(last, all) - first};
  };
  const auto [row, rows] = side(cutout.row, cutout.shape.rows, whole.rows);
  const auto [column, columns] = side(cutout.column, cutout.shape.columns, whole.columns);
  return {row, column, {rows, columns}};
}

}  // namespace apus::quant
