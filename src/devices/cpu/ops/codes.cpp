// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/ops/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

void write_numbers(const std::vector<float>& numbers, bool wide, float power, uint8_t* out) {
  if (wide) return void(std::memcpy(out, numbers.data(), numbers.size() * sizeof(float)));
  std::vector<uint16_t> halves(numbers.size());
  std::transform(numbers.begin(), numbers.end(), halves.begin(), [&](float n) { return float_to_f16(n * power); });
  std::memcpy(out, halves.data(), halves.size() * sizeof(uint16_t));
}

bool fits(const quant::CodeForm& form, int64_t columns) {
  return form.group >= columns || form.group % (form.kind == CodeKind::Book ? 32 : 16) == 0;
}
}  // namespace

void Codes::Head::lay_out() {
  const int64_t each = (rows * groups * scale_bytes() + 2 * kBehind - 1) / kBehind * kBehind;
  scales_at = kHeadBytes + panels() * kPanel * row_bytes(filled());
  zeros_at = scales_at + each;
  leasts_at = zeros_at + (zeros ? each : 0);
  bytes = leasts_at + (leasts ? each : 0);
}

// The codes of 32 rows, [32, columns] bytes, in their order.
void Codes::write_codes(const Head& head, int64_t panel, const uint8_t* code, uint8_t* out) {
  out += kHeadBytes + panel * kPanel * head.row_bytes(head.filled());
  const int64_t rows = std::min(kPanel, head.rows - panel * kPanel);
  for (int64_t first = 0; first < head.filled(); first += kCodeStretch) {
    const int64_t depth = std::min(kCodeStretch, head.filled() - first);
    for (int64_t r = 0; r < kPanel; ++r, out += head.row_bytes(depth)) {
      uint8_t there[kCodeStretch] = {};
      if (r < rows)
        std::copy_n(code + r * head.columns + first, std::clamp<int64_t>(head.columns - first, 0, depth), there);
      if (head.bits() == 8) {
        std::copy_n(there, depth, out);
        continue;
      }
      for (int64_t c = 0; c < depth; c += 128) {
        uint16_t words[32];
        const uint8_t* at = there + c;
        for (int i = 0; i < 32; ++i)
          words[i] = static_cast<uint16_t>(at[i] | at[32 + i] << 4 | at[64 + i] << 8 | at[96 + i] << 12);
        std::memcpy(out + c / 2, words, sizeof words);
      }
    }
  }
}

at::Tensor Codes::pack(const quant::Matrix& matrix) {
  const auto* coded = dynamic_cast<const quant::Coded*>(&matrix);
  const auto form = coded ? coded->code_form() : std::nullopt;
  const auto [rows, columns] = matrix.shape();
  if (!form || !fits(*form, columns)) return {};
  const int64_t group = std::min(form->group, columns), groups = (columns + group - 1) / group;
  Head head{rows, columns, form->group, groups, form->kind, form->zeros, form->leasts, group >= kWideGroup, 1, 1,
            {},   0,       0,           0,      0};
  std::copy(form->book.begin(), form->book.end(), head.book);
  head.lay_out();
  const at::Tensor packed = empty_huge(head.bytes, at::kByte);
  auto* const out = data<uint8_t>(packed);
  const auto numbers = [&](bool there) { return std::vector<float>(there ? static_cast<size_t>(rows * groups) : 0); };
  std::vector<float> scale = numbers(true), zero = numbers(form->zeros), least = numbers(form->leasts);
  share(head.panels(), 1, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> code(static_cast<size_t>(kPanel * columns));
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t row = panel * kPanel, at = row * groups;
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
  write_numbers(scale, head.wide, power, out + head.scales_at);
  if (head.zeros) write_numbers(zero, head.wide, 1, out + head.zeros_at);
  if (head.leasts) write_numbers(least, head.wide, least_power, out + head.leasts_at);
  std::memcpy(out, &head, sizeof head);
  return packed;
}

Codes::Codes(const at::Tensor& packed) : held_(packed), head_(reinterpret_cast<const Head*>(data<uint8_t>(packed))) {
  require(packed.scalar_type() == at::kByte && packed.is_contiguous() && packed.numel() >= kHeadBytes &&
              packed.numel() == head_->bytes,
          Fault::Bug, "these are no codes of a weight");
}

void Codes::plain(int64_t panel, int64_t count, int64_t first, int64_t depth, bf16* out, int64_t apart) const {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(head_);
  const int64_t whole = std::min(kCodeStretch, head_->filled() - first), row_bytes = head_->row_bytes(whole);
  const uint8_t* codes =
      bytes + kHeadBytes + panel * kPanel * head_->row_bytes(head_->filled()) + kPanel * head_->row_bytes(first);
  const int64_t step = head_->groups * head_->scale_bytes(), columns = padded_depth<bf16>(depth);
  const uint8_t* const base = bytes + panel * kPanel * step;
  CodeScales scales{base + head_->scales_at,
                    head_->zeros ? base + head_->zeros_at : nullptr,
                    head_->leasts ? base + head_->leasts_at : nullptr,
                    head_->wide,
                    head_->factor,
                    head_->least_factor,
                    head_->group};
  const auto on = [&](const void*& p) {
    if (p) p = static_cast<const uint8_t*>(p) + step;
  };
  for (int64_t r = 0; r < count; ++r, codes += row_bytes, out += apart) {
    if (head_->kind == CodeKind::Book)
      kernels().codes4(first, columns, codes, scales, head_->book, out);
    else
      (head_->kind == CodeKind::Signed ? kernels().codes8 : kernels().codes_e4m3)(first, columns, codes, scales, out);
    on(scales.scale), on(scales.zero), on(scales.least);
  }
}

}  // namespace apus::cpu
