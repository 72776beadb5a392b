// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/code_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace apus::cuda {

namespace {
constexpr int64_t kPanelRows = 32;  // that formats give at once
constexpr int64_t kWideFrom = 256;  // columns of a group: scales in f32 cost next to nothing

// A power of two by which f16 holds these numbers best.
float power_of(const std::vector<float>& numbers) {
  float most = 0;
  for (const float n : numbers) most = std::max(most, std::abs(n));
  return most > 0 && std::isfinite(most) ? std::ldexp(1.0f, std::clamp(14 - std::ilogb(most), -60, 60)) : 1.0f;
}

// Whole numbers one after the other, small enough for bf16 to hold all that kernels make of them.
bool is_counted(const quant::CodeBook4& book) {
  for (size_t i = 0; i < book.size(); ++i)
    if (book[i] != book[0] + static_cast<float>(i)) return false;
  return std::nearbyint(book[0]) == book[0] && std::abs(book[0]) <= 64;
}

int64_t up_to(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
}  // namespace

std::optional<CodeOrder> CodeOrder::of(const quant::Matrix& matrix, bool exact) {
  const auto* const coded = dynamic_cast<const quant::Coded*>(&matrix);
  const auto form = coded ? coded->code_form() : std::nullopt;
  if (!form) return std::nullopt;
  CodeOrder o{.kind = form->kind == quant::CodeForm::Kind::Signed ? Signed
                      : form->kind == quant::CodeForm::Kind::E4m3 ? E4m3
                      : is_counted(form->book)                    ? Counted
                                                                  : Book,
              .rows = matrix.shape().rows,
              .columns = matrix.shape().columns,
              .group = form->group};
  const bool one = o.group >= o.columns;
  const bool fits = one || (std::has_single_bit(static_cast<uint64_t>(o.group)) && o.group >= 128 / o.bits());
  if (!fits || o.columns % 8 != 0 || (form->zeros && form->leasts)) return std::nullopt;
  o.zeros = form->zeros, o.leasts = form->leasts, o.wide = exact || one || o.group >= kWideFrom, o.book = form->book;
  o.stretches = (o.columns + o.stretch() - 1) / o.stretch();
  o.groups = one ? 1 : (o.stretches * o.stretch() + o.group - 1) / o.group;
  o.word_shift = one ? 31 : std::countr_zero(static_cast<uint64_t>(o.group * o.bits() / 128));
  o.lay_out();
  return o;
}

void CodeOrder::lay_out() {
  const int64_t numbers = up_to(tiles() * 16 * groups * (wide ? 4 : 2), 256);
  scales_at = tiles() * stretches * 1024;
  zeros_at = scales_at + numbers;
  leasts_at = zeros_at + (zeros ? numbers : 0);
  bytes = leasts_at + (leasts ? numbers : 0);
}

// code [32, columns], of which the weight has all or some rows.
void CodeOrder::write_panel(int64_t panel, const uint8_t* code, uint8_t* out) const {
  const int64_t first = panel * kPanelRows, per_word = 32 / bits(), last_tile = std::min(first / 16 + 2, tiles());
  const auto word_of = [&](const uint8_t* row, int64_t column) {
    uint32_t word = 0;
    for (int64_t i = 0; i < per_word && column + i < columns; ++i) {
      const int64_t place = kind == Counted ? i % 2 * 4 + i / 2 : i;
      word |= uint32_t{row[column + i]} << place * bits();
    }
    return word;
  };
  for (int64_t row = first; row < last_tile * 16; ++row)
    for (int64_t s = 0; s < stretches; ++s) {
      uint8_t* const to = out + (row / 16 * stretches + s) * 1024 + row % 16 * 64;
      for (int64_t n = 0; n < 16; ++n) {
        const int64_t column = s * stretch() + (n % 4 * 4 + n / 4) * per_word;  // lane n / 4, word n % 4
        const uint32_t word = row < rows ? word_of(code + (row - first) * columns, column) : 0;
        std::memcpy(to + n * 4, &word, 4);
      }
    }
}

void CodeOrder::pack(const quant::Matrix& matrix, uint8_t* out, const ShareOut& share) {
  const auto& coded = dynamic_cast<const quant::Coded&>(matrix);
  const int64_t count = (columns + group - 1) / group;  // groups that the format has in a row
  const auto numbers = [&](bool there) { return std::vector<float>(there ? static_cast<size_t>(rows * count) : 0); };
  std::vector<float> scale = numbers(true), zero = numbers(zeros), least = numbers(leasts);
  share((rows + kPanelRows - 1) / kPanelRows, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> code(static_cast<size_t>(kPanelRows * columns));
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows, at = row * count;
      coded.read_codes(
          row, std::min(kPanelRows, rows - row),
          {code.data(), scale.data() + at, zeros ? zero.data() + at : nullptr, leasts ? least.data() + at : nullptr});
      write_panel(panel, code.data(), out);
    }
  });
  std::memset(out + scales_at, 0, static_cast<size_t>(bytes - scales_at));
  const auto write = [&](const std::vector<float>& from, float power, int64_t to) {
    if (from.empty()) return;
    share(rows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * count; i < end * count; ++i) {
        const int64_t row = i / count, at = (row / 16 * groups + i % count) * 16 + row % 8 * 2 + row % 16 / 8;
        const float number = from[static_cast<size_t>(i)];
        const uint16_t half = float_to_f16(number * power);
        if (wide)
          std::memcpy(out + to + at * 4, &number, 4);
        else
          std::memcpy(out + to + at * 2, &half, 2);
      }
    });
  };
  const float power = wide ? 1 : power_of(scale), least_power = wide ? 1 : power_of(least);
  factor = 1 / power, least_factor = 1 / least_power;
  write(scale, power, scales_at), write(zero, 1, zeros_at), write(least, least_power, leasts_at);
}

KernelCodes CodeOrder::at(const void* packed) const {
  const auto* const from = static_cast<const uint8_t*>(packed);
  const auto whole = [](int64_t n) { return static_cast<int>(n); };
  KernelCodes k{from,
                from + scales_at,
                zeros ? from + zeros_at : nullptr,
                leasts ? from + leasts_at : nullptr,
                factor,
                least_factor,
                whole(rows),
                whole(columns),
                whole(stretches),
                whole(groups),
                whole(word_shift),
                wide,
                {}};
  std::copy(book.begin(), book.end(), k.book);
  return k;
}

}  // namespace apus::cuda
