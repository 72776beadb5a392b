// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mxfp4.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "quant/codes.h"

namespace apus {

namespace {
constexpr int64_t kBlock = 32;  // numbers that share a scale

// A power of two; 255 says that the block holds no numbers.
float scale_of(uint8_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, static_cast<int>(code) - 127);
}

class Mxfp4 final : public quant::Matrix, public quant::Coded {
 public:
  Mxfp4(at::Tensor blocks, at::Tensor scales)
      : Matrix({scales.size(0), scales.size(1) * kBlock}), blocks_(std::move(blocks)), scales_(std::move(scales)) {}
  const char* format() const override { return "mxfp4"; }
  int64_t bytes() const override { return blocks_.numel() + scales_.numel(); }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    each_block(row, count, [&](const uint8_t* pairs, uint8_t power) {
      const float scale = scale_of(power);
      for (int64_t j = 0; j < kBlock / 2; ++j) {
        *out++ = quant::kE2m1[pairs[j] & 15] * scale;
        *out++ = quant::kE2m1[pairs[j] >> 4] * scale;
      }
    });
  }
  std::optional<quant::CodeForm> code_form() const override {
    return quant::CodeForm{.kind = quant::CodeForm::Kind::Book, .group = kBlock, .book = quant::kE2m1};
  }
  void read_codes(int64_t row, int64_t count, const quant::CodeRows& out) const override {
    uint8_t* code = out.code;
    float* scale = out.scale;
    each_block(row, count, [&](const uint8_t* pairs, uint8_t power) {
      *scale++ = scale_of(power);
      for (int64_t j = 0; j < kBlock / 2; ++j) *code++ = pairs[j] & 15, *code++ = pairs[j] >> 4;
    });
  }

 private:
  template <class F>
  void each_block(int64_t row, int64_t count, const F& f) const {
    const int64_t blocks = scales_.size(1);
    const uint8_t *pairs = blocks_.data_ptr<uint8_t>(), *powers = scales_.data_ptr<uint8_t>();
    for (int64_t b = row * blocks; b < (row + count) * blocks; ++b) f(pairs + b * kBlock / 2, powers[b]);
  }
  const at::Tensor blocks_, scales_;
};

template <class T>
void take_out(const uint8_t* blocks, const uint8_t* scales, int64_t count, T* out) {
  at::parallel_for(0, count, 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::array<T, 16> scaled;
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] = static_cast<T>(quant::kE2m1[i] * scale_of(scales[b]));
      for (int64_t j = 0; j < kBlock / 2; ++j) {
        const uint8_t two = blocks[b * kBlock / 2 + j];
        out[b * kBlock + 2 * j] = scaled[two & 15], out[b * kBlock + 2 * j + 1] = scaled[two >> 4];
      }
    }
  });
}
}  // namespace

std::vector<DiskShape> mxfp4_shapes(const std::string& name, const std::vector<int64_t>& stack) {
  const int64_t blocks = (stack[2] + kBlock - 1) / kBlock;
  return {{name + kMxfp4Blocks, {stack[0], stack[1], blocks, kBlock / 2}},
          {name + kMxfp4Scales, {stack[0], stack[1], blocks}}};
}

at::Tensor mxfp4_values(const at::Tensor& blocks, const at::Tensor& scales, at::ScalarType dtype) {
  const bool half = dtype == at::kBFloat16;
  const at::Tensor out = at::empty({scales.size(0), scales.size(1), scales.size(2) * kBlock},
                                   at::TensorOptions().dtype(half ? at::kBFloat16 : at::kFloat));
  const auto *numbers = blocks.data_ptr<uint8_t>(), *powers = scales.data_ptr<uint8_t>();
  if (half)
    take_out(numbers, powers, scales.numel(), out.data_ptr<at::BFloat16>());
  else
    take_out(numbers, powers, scales.numel(), out.data_ptr<float>());
  return out.to(dtype);
}

std::shared_ptr<const quant::Matrix> mxfp4_matrix(const at::Tensor& blocks, const at::Tensor& scales) {
  return std::make_shared<Mxfp4>(blocks, scales);
}

}  // namespace apus
