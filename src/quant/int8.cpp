// SPDX-License-Identifier: Apache-2.0
#include "quant/int8.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quant/bnb4.h"
#include "quant/codes.h"
#include "quant/compressed.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
class Int8 final : public Matrix, public Coded {
 public:
  // A weight is code * scale * factor, in this order.
  Int8(const StoredLayer& layer, Shape shape, const char* scales, float factor)
      : Matrix(shape),
        codes_(layer.need("weight", {DiskType::I8}, shape.count())),
        scales_(layer.need(scales, {DiskType::F32, DiskType::BF16, DiskType::F16}, -1)),
        factor_(factor) {
    require(scales_.count() == shape.rows || scales_.count() == 1, Fault::Model, layer.name, ".", scales, " holds ",
            scales_.count(), " scales; one, or one for each of the ", shape.rows, " rows, is read");
  }
  const char* format() const override { return "int8"; }
  int64_t bytes() const override { return codes_.bytes + scales_.bytes; }
  void dequantise(int64_t row, int64_t count, float* out) const override {
    for (int64_t r = row; r < row + count; ++r) {
      const float scale = number_at(scales_, scales_.count() == 1 ? 0 : r);
      const auto* codes = reinterpret_cast<const int8_t*>(codes_.data) + r * shape().columns;
      for (int64_t c = 0; c < shape().columns; ++c) *out++ = static_cast<float>(codes[c]) * scale * factor_;
    }
  }

  std::optional<CodeForm> code_form() const override {
    return CodeForm{.kind = CodeForm::Kind::Signed, .group = shape().columns};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    std::memcpy(out.code, codes_.data + row * shape().columns, static_cast<size_t>(count * shape().columns));
    for (int64_t r = 0; r < count; ++r) out.scale[r] = number_at(scales_, scales_.count() == 1 ? 0 : row + r) * factor_;
  }

 private:
  StoredTensor codes_, scales_;
  float factor_;
};
}  // namespace

std::unique_ptr<Matrix> open_bnb_int8(const StoredLayer& layer, Shape shape) {
  if (const StoredTensor* order = layer.find("weight_format"))
    require(order->bytes == 1 && order->at<uint8_t>(0) == 0, Fault::Model, layer.name,
            ".weight_format says that the rows are in the order of a card's kernels, which is not read; save the "
            "checkpoint again with a newer bitsandbytes");
  return std::make_unique<Int8>(layer, shape, "SCB", 7.874015718698502e-3f);
}

// Through f16, as the original does.
Pieces quantise_bnb_int8(std::span<const float> weight, Shape shape) {
  std::vector<float> most(static_cast<size_t>(shape.rows), 0.0f);
  std::vector<int8_t> codes(weight.size());
  for (int64_t r = 0; r < shape.rows; ++r) {
    const auto row = weight.subspan(static_cast<size_t>(r * shape.columns), static_cast<size_t>(shape.columns));
    float& m = most[static_cast<size_t>(r)];
    for (const float w : row) m = std::max(m, std::abs(rounded_to_f16(w)));
    const float factor = m > 0 ? 127 / m : 0;
    for (size_t c = 0; c < row.size(); ++c)
      codes[static_cast<size_t>(r * shape.columns) + c] =
          static_cast<int8_t>(std::nearbyint(rounded_to_f16(row[c]) * factor));
  }
  Pieces out;
  out["weight"] = stored(DiskType::I8, {shape.rows, shape.columns}, std::move(codes));
  out["SCB"] = stored(DiskType::F32, {shape.rows}, std::move(most));
  out["weight_format"] = stored(DiskType::U8, {}, std::vector<uint8_t>{0});
  return out;
}

std::unique_ptr<Matrix> open_int_quantised(const StoredLayer& layer, Shape shape) {
  require(!layer.find("weight_zero_point"), Fault::Model, layer.name,
          " is int-quantized with zero points, which is not read; symmetric ones are");
  return std::make_unique<Int8>(layer, shape, "weight_scale", 1.0f);
}

namespace {
const RegisterFormat bnb_int8(
    "bnb_int8",
    {.methods = {"bitsandbytes"},
     .read = "bitsandbytes (int8)",
     .marks = {"SCB"},
     .others = {"weight_format"},
     .holds = [](const Pieces& pieces, const Json&) { return pieces.count("SCB") > 0; },
     .open = [](const StoredLayer& layer, Shape shape, const Json&) { return open_bnb_int8(layer, shape); },
     .bits = [](const Json& said) { return said.value("load_in_4bit", false) ? 0 : bits_in_groups(8, 0, false); },
     .made = {.method = "bnb",
              .bits = {8},
              .settings = [](const Wish& wish, const Json& model_config,
                             const Json& plain) { return bnb_config(false, wish, model_config, plain); },
              .quantise = [](std::span<const float> weight, Shape shape,
                             const Json&) { return quantise_bnb_int8(weight, shape); }}});

const RegisterFormat int_quantised(
    "int_quantised",
    {.methods = {"compressed-tensors"},
     .read = "compressed-tensors (int-quantized)",
     .marks = {"weight_scale"},
     .others = {"weight_zero_point", "input_scale", "input_zero_point"},
     .holds =
         [](const Pieces& pieces, const Json&) {
           const auto weight = pieces.find("weight");
           return weight != pieces.end() && weight->second.type == DiskType::I8 && pieces.count("weight_scale") > 0;
         },
     .open = [](const StoredLayer& layer, Shape shape, const Json&) { return open_int_quantised(layer, shape); },
     .bits =
         [](const Json& said) {
           return compressed_settings(said).format == "int-quantized" ? bits_in_groups(8, 0, false) : 0;
         }});
}  // namespace

}  // namespace apus::quant
