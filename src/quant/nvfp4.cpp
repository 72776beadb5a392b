// SPDX-License-Identifier: Apache-2.0
#include "quant/nvfp4.h"

#include "base/error.h"
#include "quant/code_books.h"
#include "quant/codes.h"
#include "quant/compressed.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
constexpr int64_t kGroup = 16;

class Nvfp4 final : public Matrix, public Coded {
 public:
  Nvfp4(const StoredLayer& layer, Shape shape) : Matrix(shape), bytes_(layer.bytes()) {
    require(shape.columns % kGroup == 0, Fault::Model, layer.name, ": NVFP4 holds rows of a multiple of 16, not of ",
            shape.columns);
    codes_ = layer.need("weight_packed", {DiskType::U8}, shape.count() / 2);
    scales_ = layer.need("weight_scale", {DiskType::F8E4M3}, shape.count() / kGroup);
    global_ = number_at(layer.need("weight_global_scale", kScaleTypes, 1), 0);
    require(global_ > 0, Fault::Model, layer.name, ".weight_global_scale is ", global_, "; it must be above 0");
  }
  const char* format() const override { return "nvfp4"; }
  int64_t bytes() const override { return bytes_; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const int64_t groups = shape().columns / kGroup;
    for (int64_t g = row * groups; g < (row + count) * groups; ++g) {
      const float scale = number_at(scales_, g) / global_;
      const auto* pairs = reinterpret_cast<const uint8_t*>(codes_.data) + g * kGroup / 2;
      for (int64_t k = 0; k < kGroup / 2; ++k) {
        *out++ = kE2m1[pairs[k] & 15] * scale;
        *out++ = kE2m1[pairs[k] >> 4] * scale;
      }
    }
  }

  // Twice the numbers are whole ones.
  std::optional<CodeForm> code_form() const override {
    return CodeForm{.kind = CodeForm::Kind::Signed, .group = kGroup, .bits = 5, .lowest = -16};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t groups = shape().columns / kGroup;
    for (int64_t n = 0; n < count * groups; ++n) {
      const int64_t g = row * groups + n;
      out.scale[n] = number_at(scales_, g) / global_ / 2;
      const auto* pairs = reinterpret_cast<const uint8_t*>(codes_.data) + g * kGroup / 2;
      for (int64_t k = 0; k < kGroup; ++k) {
        const int code = k % 2 == 0 ? pairs[k / 2] & 15 : pairs[k / 2] >> 4;
        out.code[n * kGroup + k] = static_cast<uint8_t>(static_cast<int>(2 * kE2m1[code]));
      }
    }
  }

 private:
  int64_t bytes_;
  StoredTensor codes_, scales_;
  float global_ = 1;
};
}  // namespace

std::unique_ptr<Matrix> open_nvfp4(const StoredLayer& layer, Shape shape) {
  return std::make_unique<Nvfp4>(layer, shape);
}

namespace {
const RegisterFormat nvfp4(
    "nvfp4", {.methods = {"compressed-tensors"},
              .read = "compressed-tensors (nvfp4-pack-quantized)",
              .marks = {"weight_packed", "weight_scale"},
              .others = {"weight_global_scale", "input_global_scale"},
              .holds = [](const Pieces& pieces,
                          const Json&) { return pieces.count("weight_packed") && pieces.count("weight_global_scale"); },
              .open = [](const StoredLayer& layer, Shape shape, const Json&) { return open_nvfp4(layer, shape); },
              .bits = [](const Json& said) -> double {
                // Scales of 8 bits.
                return compressed_settings(said).format == "nvfp4-pack-quantized" ? 4 + 8.0 / kGroup : 0;
              }});
}  // namespace

}  // namespace apus::quant
