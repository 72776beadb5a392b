// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/ops/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "devices/cpu/memory.h"
#include "devices/cpu/ops/tensors.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

using CodeKind = quant::CodeForm::Kind;

namespace {
constexpr int64_t kWideGroup = 256;  // columns: from here on scales in f32 cost next to nothing

// A power of two by which f16 holds these numbers best: the largest of them becomes about 2^14.
float power_for(const std::vector<float>& numbers) {
  float most = 0;
  for (const float n : numbers) most = std::max(most, std::abs(n));
  return most > 0 && std::isfinite(most) ? std::ldexp(1.0f, std::clamp(14 - std::ilogb(most), -60, 60)) : 1.0f;
}

// [rows, count] numbers as [rows / 32][groups][32 rows].
void write_numbers(const std::vector<float>& numbers, int64_t rows, int64_t groups, bool wide, float power,
                   uint8_t* out) {
  const int64_t count = static_cast<int64_t>(numbers.size()) / rows;
  share(rows, kPanel, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t g = 0; g < count; ++g) {
        const float number = numbers[row * count + g];
        const int64_t at = (row / kPanel * groups + g) * kPanel + row % kPanel;
        if (wide) {
          std::memcpy(out + at * 4, &number, 4);
        } else {
          const uint16_t half = float_to_f16(number * power);
          std::memcpy(out + at * 2, &half, 2);
        }
      }
  });
}

// Four whole numbers of eight bits, each with this added.
uint32_t added_to_bytes(uint32_t bytes, int more) {
  constexpr uint32_t kTop = 0x80808080;
  const uint32_t all = static_cast<uint8_t>(more) * 0x01010101U;
  return ((bytes & ~kTop) + (all & ~kTop)) ^ ((bytes ^ all) & kTop);
}

// One row's codes of six bits, as they lie in a panel, as whole numbers of eight.
void widen_six(const uint8_t* from, int64_t columns, int lowest, uint8_t* out) {
  for (int64_t column = 0; column < columns; column += 16, from += 12, out += 16) {
    uint32_t lower[2], upper;
    std::memcpy(lower, from, 8), std::memcpy(&upper, from + 8, 4);
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = (lower[i / 2] >> 4 * (i % 2) & 0x0f0f0f0f) | (upper >> 2 * i & 0x03030303) << 4,
                     number = added_to_bytes(code, lowest);
      std::memcpy(out + 4 * i, &number, 4);
    }
  }
}

bool fits(const quant::CodeForm& form, int64_t columns) {
  return form.group >= columns || form.group % (form.kind == CodeKind::Book ? 32 : 16) == 0;
}
}  // namespace

// The nearest whole numbers of eight bits: the book's own where it has such, or would if doubled.
void Codes::Head::read_book(const quant::CodeBook4& from) {
  std::copy(from.begin(), from.end(), book);
  const auto whole = [&](float times) {
    return std::all_of(from.begin(), from.end(),
                       [&](float n) { return n * times == std::nearbyint(n * times) && std::abs(n * times) <= 127; });
  };
  float most = 0;
  for (const float n : from) most = std::max(most, std::abs(n));
  const float times = whole(1) ? 1 : whole(2) ? 2 : most > 0 ? 127 / most : 1;
  for (int i = 0; i < 16; ++i) whole_book[i] = static_cast<int8_t>(std::nearbyint(from[i] * times));
  book_factor = 1 / times, offset = whole_book[0], counts = times == 1;
  for (int i = 0; i < 16; ++i) counts = counts && whole_book[i] == offset + i;
}

void Codes::Head::lay_out() {
  const int64_t each = (panels() * kPanel * groups * scale_bytes() + 2 * kBehind - 1) / kBehind * kBehind;
  scales_at = kHeadBytes + panels() * panel_bytes();
  zeros_at = scales_at + each;
  leasts_at = zeros_at + (zeros ? each : 0);
  bytes = leasts_at + (leasts ? each : 0);
}

// Of six bits, from what gives four columns of a row.
template <class Four>
void Codes::write_six(const Head& head, const Four& four, uint8_t* out) {
  constexpr int64_t kPart = 4 * kPanel;
  for (int64_t column = 0; column < head.filled(); column += 16, out += 3 * kPart)
    for (int64_t row = 0; row < kPanel; ++row) {
      uint32_t code[4], upper = 0;
      for (int i = 0; i < 4; ++i) {
        code[i] = added_to_bytes(four(row, column + 4 * i), -head.offset);
        upper |= (code[i] >> 4 & 0x03030303) << 2 * i;
      }
      for (int half = 0; half < 2; ++half) {
        const uint32_t lower = (code[2 * half] & 0x0f0f0f0f) | (code[2 * half + 1] & 0x0f0f0f0f) << 4;
        std::memcpy(out + half * kPart + 4 * row, &lower, 4);
      }
      std::memcpy(out + 2 * kPart + 4 * row, &upper, 4);
    }
}

// The codes of 32 rows, [32, columns] bytes, in their order.
void Codes::write_codes(const Head& head, int64_t panel, const uint8_t* code, uint8_t* out) {
  out += kHeadBytes + panel * head.panel_bytes();
  const int64_t rows = std::min(kPanel, head.rows - panel * kPanel);
  const auto four = [&](int64_t row, int64_t column) {
    uint32_t all = 0;
    const int64_t there = row < rows ? head.columns - column : 0;
    if (there >= 4) [[likely]]
      std::memcpy(&all, code + row * head.columns + column, 4);
    else if (there > 0)
      std::memcpy(&all, code + row * head.columns + column, static_cast<size_t>(there));
    return all;
  };
  if (head.six) return write_six(head, four, out);
  const int64_t step = 32 / head.bits();
  for (int64_t column = 0; column < head.filled(); column += step)
    for (int64_t row = 0; row < kPanel; ++row, out += 4) {
      const uint32_t all = step == 4 ? four(row, column) : four(row, column) | four(row, column + 4) << 4;
      std::memcpy(out, &all, 4);
    }
}

at::Tensor Codes::pack(const quant::Matrix& matrix, bool int8) {
  const auto* coded = dynamic_cast<const quant::Coded*>(&matrix);
  const auto form = coded ? coded->code_form() : std::nullopt;
  const auto [rows, columns] = matrix.shape();
  if (!form || !fits(*form, columns)) return {};
  Head head{.rows = rows, .columns = columns, .kind = form->kind, .zeros = form->zeros, .leasts = form->leasts};
  head.group = form->group >= columns ? head.filled() : form->group;
  head.groups = (head.filled() + head.group - 1) / head.group;
  head.wide = head.group >= kWideGroup, head.int8 = int8 && head.kind != CodeKind::E4m3;
  head.book_factor = 1;
  // As two and four bits; the others stay whole bytes.
  head.six = head.kind == CodeKind::Signed && form->bits <= 6;
  if (head.six) head.counts = true, head.offset = form->lowest;
  if (head.kind == CodeKind::Book) head.read_book(form->book);
  head.lay_out();
  const at::Tensor packed = empty_huge(head.bytes, at::kByte);
  auto* const out = data<uint8_t>(packed);
  const int64_t count = (columns + head.group - 1) / head.group;  // that the format has a row
  const auto numbers = [&](bool there) { return std::vector<float>(there ? static_cast<size_t>(rows * count) : 0); };
  std::vector<float> scale = numbers(true), zero = numbers(form->zeros), least = numbers(form->leasts);
  share(head.panels(), 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> code(static_cast<size_t>(kPanel * columns));
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanel, at = row * count;
      coded->read_codes(row, std::min(kPanel, rows - row),
                        {code.data(), scale.data() + at, zero.empty() ? nullptr : zero.data() + at,
                         least.empty() ? nullptr : least.data() + at});
      write_codes(head, panel, code.data(), out);
    }
  });
  std::memset(out + head.scales_at, 0, static_cast<size_t>(head.bytes - head.scales_at));
  const float power = head.wide ? 1 : power_for(scale), least_power = head.wide ? 1 : power_for(least);
  // Kernels read FP8 codes as 2^-8 of what they stand for.
  head.factor = (head.kind == CodeKind::E4m3 ? 256.0f : 1.0f) / power, head.least_factor = 1 / least_power;
  const auto write = [&](const std::vector<float>& from, float by, int64_t to) {
    if (!from.empty()) write_numbers(from, rows, head.groups, head.wide, by, out + to);
  };
  write(scale, power, head.scales_at), write(zero, 1, head.zeros_at), write(least, least_power, head.leasts_at);
  std::memcpy(out, &head, sizeof head);
  return packed;
}

Codes::Codes(const at::Tensor& packed) : held_(packed), head_(reinterpret_cast<const Head*>(data<uint8_t>(packed))) {
  require(packed.scalar_type() == at::kByte && packed.is_contiguous() && packed.numel() >= kHeadBytes &&
              packed.numel() == head_->bytes,
          Fault::Bug, "these are no codes of a weight");
}

CodePanel Codes::panel(int64_t panel) const {
  const Head& h = *head_;
  const int64_t before = panel * kPanel * h.groups * h.scale_bytes();
  return {bytes() + kHeadBytes + panel * h.panel_bytes(),
          {bytes() + h.scales_at + before, h.zeros ? bytes() + h.zeros_at + before : nullptr,
           h.leasts ? bytes() + h.leasts_at + before : nullptr, h.wide, h.factor, h.least_factor, h.group},
          h.filled(),
          h.bits(),
          h.counts ? nullptr : h.whole_book,
          h.book_factor,
          h.counts ? h.offset : 0};
}

void Codes::plain(int64_t row, int64_t count, int64_t first, int64_t depth, bf16* out, int64_t apart) const {
  const Head& h = *head_;
  const int64_t columns = padded_depth<bf16>(depth), group = first / h.group, size = h.scale_bytes(),
                groups = (first + columns - 1) / h.group - group + 1, in_panel = row % kPanel;
  const CodePanel from = panel(row / kPanel);
  // Row by row, all rows before the first is read: a read right behind the small writes that it spans waits for them.
  constexpr int64_t kNumbers = kCodeStretch / 16 + 1 + 16;
  alignas(64) uint8_t codes[kPanel][kCodeStretch], numbers[3][kPanel][kNumbers * 4];
  const auto gather = [&](const uint8_t* at, int64_t steps, auto bytes, uint8_t* to, int64_t row_bytes) {
    at += in_panel * bytes;
    for (int64_t i = 0; i < steps; ++i, at += kPanel * bytes, to += bytes)
      for (int64_t r = 0; r < count; ++r) std::memcpy(to + r * row_bytes, at + r * bytes, bytes);
  };
  constexpr std::integral_constant<int, 2> kTwo;
  constexpr std::integral_constant<int, 4> kFour;
  gather(from.codes + first * kPanel * h.bits() / 8, columns * h.bits() / 32, kFour, codes[0], kCodeStretch);
  const void* const all[] = {from.scales.scale, from.scales.zero, from.scales.least};
  for (int i = 0; i < 3; ++i)
    if (const auto* at = static_cast<const uint8_t*>(all[i])) {
      at += group * kPanel * size;
      if (h.wide)
        gather(at, groups, kFour, numbers[i][0], kNumbers * 4);
      else
        gather(at, groups, kTwo, numbers[i][0], kNumbers * 4);
    }
  for (int64_t r = 0; r < count; ++r, out += apart) {
    CodeScales scales = from.scales;
    scales.scale = numbers[0][r];
    if (scales.zero) scales.zero = numbers[1][r];
    if (scales.least) scales.least = numbers[2][r];
    if (h.six) {
      alignas(64) uint8_t whole[kCodeStretch];
      widen_six(codes[r], columns, h.offset, whole);
      kernels().codes8(first, columns, whole, scales, out);
    } else if (h.kind == CodeKind::Book)
      kernels().codes4(first, columns, codes[r], scales, h.book, out);
    else
      (h.kind == CodeKind::Signed ? kernels().codes8 : kernels().codes_e4m3)(first, columns, codes[r], scales, out);
  }
}

}  // namespace apus::cpu
