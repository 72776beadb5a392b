// SPDX-License-Identifier: Apache-2.0
#include "quant/fp8.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/compressed.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
int64_t blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

const char* scale_name(const Pieces& pieces) {
  return pieces.count("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
}

class Fp8 final : public Matrix, public Coded {
 public:
  Fp8(const StoredLayer& layer, Shape shape, Fp8Block block)
      : Matrix(shape),
        codes_(layer.need("weight", {DiskType::F8E4M3}, shape.count())),
        scales_(layer.need(scale_name(layer.pieces), kScaleTypes, -1)) {
    require(block.rows > 0 && block.columns > 0, Fault::Model, layer.name, ": FP8 blocks of [", block.rows, ", ",
            block.columns, "]");
    const int64_t across = blocks(shape.columns, block.columns);
    if (scales_.count() == 1) {
      block_ = {shape.rows, shape.columns};
    } else if (scales_.shape.size() == 2 && scales_.shape[0] == blocks(shape.rows, block.rows) &&
               scales_.shape[1] == across) {
      block_ = block;
    } else {
      require(scales_.count() == shape.rows, Fault::Model, layer.name, ".", scale_name(layer.pieces), " holds ",
              scales_.count(), " scales; one, one for each of the ", shape.rows, " rows, or one for each block of ",
              block.rows, " x ", block.columns, " is read");
      block_ = {1, shape.columns};
    }
  }
  const char* format() const override { return "fp8"; }
  int64_t bytes() const override { return codes_.bytes + scales_.bytes; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    static const auto table = e4m3_table();
    const int64_t columns = shape().columns, across = blocks(columns, block_.columns);
    for (int64_t r = row; r < row + count; ++r) {
      const auto* codes = reinterpret_cast<const uint8_t*>(codes_.data) + r * columns;
      for (int64_t b = 0; b < across; ++b) {
        const float scale = number_at(scales_, r / block_.rows * across + b);
        const int64_t end = std::min(columns, (b + 1) * block_.columns);
        for (int64_t c = b * block_.columns; c < end; ++c) *out++ = table[codes[c]] * scale;
      }
    }
  }

  // Where all codes are numbers.
  std::optional<CodeForm> code_form() const override {
    const auto* codes = reinterpret_cast<const uint8_t*>(codes_.data);
    if (std::any_of(codes, codes + shape().count(), [](uint8_t c) { return (c & 0x7f) == 0x7f; })) return std::nullopt;
    return CodeForm{.kind = CodeForm::Kind::E4m3, .group = block_.columns};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns, across = blocks(columns, block_.columns);
    std::memcpy(out.code, codes_.data + row * columns, static_cast<size_t>(count * columns));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t b = 0; b < across; ++b)
        out.scale[r * across + b] = number_at(scales_, (row + r) / block_.rows * across + b);
  }

 private:
  StoredTensor codes_, scales_;
  Fp8Block block_;
};

float clamped(float value) { return std::clamp(value, -kMostE4m3, kMostE4m3); }
}  // namespace

std::unique_ptr<Matrix> open_fp8(const StoredLayer& layer, Shape shape, Fp8Block block) {
  return std::make_unique<Fp8>(layer, shape, block);
}

Pieces quantise_fp8(std::span<const float> weight, Shape shape, Fp8Block block) {
  const int64_t down = blocks(shape.rows, block.rows), across = blocks(shape.columns, block.columns);
  std::vector<uint8_t> codes(weight.size());
  std::vector<float> scales;
  for (int64_t i = 0; i < down; ++i)
    for (int64_t j = 0; j < across; ++j) {
      const int64_t row_end = std::min(shape.rows, (i + 1) * block.rows);
      const int64_t begin = j * block.columns, end = std::min(shape.columns, begin + block.columns);
      const auto each = [&](const auto& f) {
        for (int64_t r = i * block.rows; r < row_end; ++r)
          for (int64_t c = begin; c < end; ++c) f(static_cast<size_t>(r * shape.columns + c));
      };
      float most = 0;
      each([&](size_t at) { most = std::max(most, std::abs(weight[at])); });
      const float factor = most > 0 ? kMostE4m3 / most : 1;
      each([&](size_t at) { codes[at] = to_e4m3(clamped(weight[at] * factor)); });
      scales.push_back(1 / factor);
    }
  Pieces out;
  out["weight"] = stored(DiskType::F8E4M3, {shape.rows, shape.columns}, std::move(codes));
  out["weight_scale_inv"] = stored(DiskType::F32, {down, across}, std::move(scales));
  return out;
}

// The scale is rounded to its type before anything is divided by it.
Pieces quantise_fp8_rows(std::span<const float> weight, Shape shape) {
  std::vector<uint8_t> codes(weight.size());
  std::vector<uint16_t> scales;
  for (int64_t r = 0; r < shape.rows; ++r) {
    const auto row = weight.subspan(static_cast<size_t>(r * shape.columns), static_cast<size_t>(shape.columns));
    float most = 0;
    for (const float w : row) most = std::max(most, std::abs(w));
    scales.push_back(float_to_bf16(std::max(most / kMostE4m3, 0x1p-23f)));
    const float scale = bf16_to_float(scales.back());
    for (size_t c = 0; c < row.size(); ++c)
      codes[static_cast<size_t>(r * shape.columns) + c] = to_e4m3(clamped(row[c] / scale));
  }
  Pieces out;
  out["weight"] = stored(DiskType::F8E4M3, {shape.rows, shape.columns}, std::move(codes));
  out["weight_scale"] = stored(DiskType::BF16, {shape.rows, 1}, std::move(scales));
  return out;
}

namespace {
Fp8Block fp8_block(const Json& said) {
  if (said.value("quant_method", Json()) == "compressed-tensors") {
    const auto block = compressed_settings(said).block;
    return {block[0], block[1]};
  }
  const auto format = setting<std::string>(said, "fmt", "e4m3");
  require(format == "e4m3" || format == "float8_e4m3fn", Fault::Model, "config.json: FP8 of the format '", format,
          "' is not read; e4m3 is");
  const auto block = setting<std::vector<int64_t>>(said, "weight_block_size", {128, 128});
  require(block.size() == 2, Fault::Model, "config.json: weight_block_size must have two numbers");
  return {block[0], block[1]};
}

double fp8_bits(const Json& said) {
  if (said.value("quant_method", Json()) == "compressed-tensors") {
    const auto format = compressed_settings(said).format;
    if (format != "float-quantized" && format != "naive-quantized") return 0;
  }
  return bits_in_groups(8, 128, false);
}

Json fp8_settings(const Wish&, const Json&, const Json& plain) {
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"modules_to_not_convert", plain},
          {"quant_method", "fp8"},
          {"weight_block_size", {128, 128}}};
}

const RegisterFormat fp8("fp8", {.methods = {"fp8", "fbgemm_fp8", "compressed-tensors"},
                                 .read = "fp8, fbgemm_fp8, compressed-tensors (float-quantized)",
                                 .marks = {"weight_scale", "weight_scale_inv"},
                                 .others = {"input_scale", "input_scale_ub", "output_scale", "activation_scale"},
                                 .holds =
                                     [](const Pieces& pieces, const Json&) {
                                       const auto weight = pieces.find("weight");
                                       return weight != pieces.end() && weight->second.type == DiskType::F8E4M3 &&
                                              pieces.count(scale_name(pieces)) > 0;
                                     },
                                 .open = [](const StoredLayer& layer, Shape shape,
                                            const Json& said) { return open_fp8(layer, shape, fp8_block(said)); },
                                 .bits = fp8_bits,
                                 .check = [](const Json& said) { fp8_block(said); },
                                 .made = {.method = "fp8",
                                          .bits = {8},
                                          .settings = fp8_settings,
                                          .quantise = [](std::span<const float> weight, Shape shape, const Json& said) {
                                            return quantise_fp8(weight, shape, fp8_block(said));
                                          }}});
}  // namespace

}  // namespace apus::quant
