// SPDX-License-Identifier: Apache-2.0
#include "quant/awq.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
// Output 8 c + j lies in this nibble of word c.
constexpr std::array<int, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t code_in(uint32_t word, int64_t output) {
  return (word >> (4 * kNibble[static_cast<size_t>(output % 8)])) & 15;
}

class Awq final : public Matrix, public Coded {
 public:
  Awq(const StoredLayer& layer, Shape shape, int64_t group)
      : Matrix(shape), group_(group > 0 ? group : shape.columns), bytes_(layer.bytes()) {
    require(shape.rows % 8 == 0 && shape.columns % group_ == 0, Fault::Model, layer.name, ": AWQ with groups of ",
            group_, " cannot hold [", shape.rows, ", ", shape.columns, "]");
    codes_ = layer.need("qweight", {DiskType::I32}, shape.columns * shape.rows / 8);
    zeros_ = layer.need("qzeros", {DiskType::I32}, shape.columns / group_ * shape.rows / 8);
    scales_ = layer.need("scales", kScaleTypes, shape.columns / group_ * shape.rows);
  }
  const char* format() const override { return "awq"; }
  int64_t bytes() const override { return bytes_; }

  // A word holds eight outputs of one input: some inputs at a time, so that whole lines of `out` are written.
  void dequantise(int64_t row, int64_t count, float* out) const override {
    constexpr int64_t kSome = 16;
    const int64_t columns = shape().columns, words = shape().rows / 8;
    for (int64_t word = row / 8; word * 8 < row + count; ++word)
      for (int64_t g = 0; g < columns / group_; ++g) {
        std::array<float, 8> scale, zero;
        const uint32_t zeros = zeros_.at<uint32_t>(g * words + word);
        for (int64_t j = 0; j < 8; ++j) {
          scale[static_cast<size_t>(j)] = number_at(scales_, g * shape().rows + word * 8 + j);
          zero[static_cast<size_t>(j)] = static_cast<float>(code_in(zeros, j));
        }
        for (int64_t c = g * group_; c < (g + 1) * group_; c += kSome) {
          const int64_t n = std::min(kSome, (g + 1) * group_ - c);
          uint32_t packed[kSome];
          for (int64_t k = 0; k < n; ++k) packed[k] = codes_.at<uint32_t>((c + k) * words + word);
          for (int64_t o = std::max(row, word * 8); o < std::min(row + count, word * 8 + 8); ++o) {
            const auto j = static_cast<size_t>(o % 8);
            float* to = out + (o - row) * columns + c;
            for (int64_t k = 0; k < n; ++k) to[k] = scale[j] * (static_cast<float>(code_in(packed[k], o)) - zero[j]);
          }
        }
      }
  }

  std::optional<CodeForm> code_form() const override {
    return CodeForm{.kind = CodeForm::Kind::Book, .group = group_, .zeros = true, .book = kWholeNumbers};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns, words = shape().rows / 8, groups = columns / group_;
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < count; r += 8) {
        const uint32_t word = codes_.at<uint32_t>(c * words + (row + r) / 8);
        for (int64_t j = 0; j < 8; ++j) out.code[(r + j) * columns + c] = static_cast<uint8_t>(code_in(word, j));
      }
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t r = 0; r < count; ++r) {
        out.scale[r * groups + g] = number_at(scales_, g * shape().rows + row + r);
        out.zero[r * groups + g] = static_cast<float>(code_in(zeros_.at<uint32_t>(g * words + (row + r) / 8), r));
      }
  }

 private:
  int64_t group_, bytes_;
  StoredTensor codes_, zeros_, scales_;
};
}  // namespace

std::unique_ptr<Matrix> open_awq(const StoredLayer& layer, Shape shape, int64_t group) {
  return std::make_unique<Awq>(layer, shape, group);
}

Integers round_to_awq(std::span<const float> weight, Shape shape, int64_t group) {
  const auto [rows, columns] = shape;
  const int64_t size = group > 0 ? group : columns, groups = columns / size;
  const auto half = rounded_to_f16;
  Integers out{std::vector<uint8_t>(weight.size()), std::vector<float>(static_cast<size_t>(groups * rows)),
               std::vector<uint8_t>(static_cast<size_t>(groups * rows)),
               std::vector<int32_t>(static_cast<size_t>(columns))};
  for (int64_t c = 0; c < columns; ++c) out.group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / size);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const auto part = weight.subspan(static_cast<size_t>(r * columns + g * size), static_cast<size_t>(size));
      float low = half(part[0]), high = low;
      for (const float w : part) low = std::min(low, half(w)), high = std::max(high, half(w));
      const float scale = half(std::max(half(high - low), half(1e-5f)) / 15);
      const float zero = std::clamp(-std::nearbyint(half(low / scale)), 0.0f, 15.0f);
      const auto at = static_cast<size_t>(g * rows + r);
      out.scale[at] = scale, out.zero[at] = static_cast<uint8_t>(zero);
      for (size_t k = 0; k < part.size(); ++k)
        out.code[static_cast<size_t>(r * columns + g * size) + k] =
            static_cast<uint8_t>(std::clamp(std::nearbyint(half(half(part[k]) / scale)) + zero, 0.0f, 15.0f));
    }
  return out;
}

Pieces pack_awq(const Integers& integers, Shape shape) {
  const auto [rows, columns] = shape;
  const int64_t groups = static_cast<int64_t>(integers.scale.size()) / rows, words = rows / 8;
  std::vector<uint32_t> codes(static_cast<size_t>(columns * words), 0u), zeros(static_cast<size_t>(groups * words), 0u);
  for (int64_t r = 0; r < rows; ++r) {
    const int shift = 4 * kNibble[static_cast<size_t>(r % 8)];
    for (int64_t c = 0; c < columns; ++c)
      codes[static_cast<size_t>(c * words + r / 8)] |=
          static_cast<uint32_t>(integers.code[static_cast<size_t>(r * columns + c)]) << shift;
    for (int64_t g = 0; g < groups; ++g)
      zeros[static_cast<size_t>(g * words + r / 8)] |=
          static_cast<uint32_t>(integers.zero[static_cast<size_t>(g * rows + r)]) << shift;
  }
  std::vector<uint16_t> scales(integers.scale.size());
  std::transform(integers.scale.begin(), integers.scale.end(), scales.begin(), float_to_f16);
  Pieces out;
  out["qweight"] = stored(DiskType::I32, {columns, words}, std::move(codes));
  out["qzeros"] = stored(DiskType::I32, {groups, words}, std::move(zeros));
  out["scales"] = stored(DiskType::F16, {groups, rows}, std::move(scales));
  return out;
}

namespace {
GptqForm awq_form(const Json& said) {
  const auto version = setting<std::string>(said, "version", "gemm");
  require(version == "gemm" || version == "GEMM", Fault::Model, "config.json: AWQ's version '", version,
          "' is not read; gemm is");
  const GptqForm form{setting<int64_t>(said, "bits", setting<int64_t>(said, "w_bit", 4)),
                      setting<int64_t>(said, "group_size", setting<int64_t>(said, "q_group_size", 128)), true};
  require(form.bits == 4, Fault::Model, "config.json: AWQ with ", form.bits, " bits is not read; 4 is");
  return form;
}

Json awq_config(const Calibration& made) {
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", made.form.group},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", made.plain.empty() ? Json() : Json(made.plain)}};
}

const RegisterFormat awq("awq",
                         {.methods = {"awq"},
                          .read = "awq (gemm)",
                          .marks = {"qweight"},
                          .others = {"qzeros", "scales"},
                          .holds =
                              [](const Pieces& pieces, const Json& said) {
                                return pieces.count("qweight") && pieces.count("qzeros") &&
                                       said.value("quant_method", Json()) == "awq";
                              },
                          .open = [](const StoredLayer& layer, Shape shape,
                                     const Json& said) { return open_awq(layer, shape, awq_form(said).group); },
                          .bits = [](const Json& said) { return bits_in_groups(4, awq_form(said).group, true); },
                          .check = [](const Json& said) { awq_form(said); },
                          .calibrated = {.methods = {"awq"},
                                         .bits = {4},
                                         .form =
                                             [](const std::string&, int64_t bits, int64_t group) {
                                               return GptqForm{bits, group, true};
                                             },
                                         .fits =
                                             [](Shape shape, const GptqForm& form) {
                                               return shape.rows % 8 == 0 &&
                                                      shape.columns % form.group_of(shape.columns) == 0;
                                             },
                                         .round =
                                             [](std::span<const float> weight, Shape shape, const GptqForm& form) {
                                               return pack_awq(
                                                   round_to_awq(weight, shape, form.group_of(shape.columns)), shape);
                                             },
                                         .config = awq_config}});
}  // namespace

}  // namespace apus::quant
