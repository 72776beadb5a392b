// SPDX-License-Identifier: Apache-2.0
#include "quant/packed_ints.h"

#include <vector>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/compressed.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
class PackedInts final : public Matrix, public Coded {
 public:
  PackedInts(const StoredLayer& layer, Shape shape, int64_t bits)
      : Matrix(shape), bits_(bits), bytes_(layer.bytes()), words_((shape.columns * bits + 31) / 32) {
    codes_ = layer.need("weight_packed", {DiskType::I32}, shape.rows * words_);
    scales_ = layer.need("weight_scale", kScaleTypes, -1);
    const int64_t found = scales_.count();
    require(found == 1 || (found % shape.rows == 0 && shape.columns % (found / shape.rows) == 0), Fault::Model,
            layer.name, ".weight_scale holds ", found, " scales, which do not share out [", shape.rows, ", ",
            shape.columns, "]");
    per_tensor_ = found == 1;
    groups_ = per_tensor_ ? 1 : found / shape.rows;
    const int64_t per_word = 32 / bits;
    if (layer.find("weight_zero_point"))
      zeros_ = layer.need("weight_zero_point", {DiskType::I32}, (shape.rows + per_word - 1) / per_word * groups_);
    group_ = layer.groups_of_columns("weight_g_idx", shape.columns, groups_, shape.columns / groups_);
  }
  const char* format() const override { return "packed int"; }
  int64_t bytes() const override { return bytes_; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const int64_t columns = shape().columns, per_word = 32 / bits_;
    const uint32_t mask = (1u << bits_) - 1;
    const int32_t offset = 1 << (bits_ - 1);
    std::vector<float> scale(static_cast<size_t>(groups_)), zero(static_cast<size_t>(groups_), 0.0f);
    for (int64_t r = row; r < row + count; ++r) {
      for (int64_t g = 0; g < groups_; ++g) {
        scale[static_cast<size_t>(g)] = number_at(scales_, per_tensor_ ? 0 : r * groups_ + g);
        if (!zeros_.data) continue;
        const uint32_t word = zeros_.at<uint32_t>(r / per_word * groups_ + g);
        zero[static_cast<size_t>(g)] =
            static_cast<float>(static_cast<int32_t>((word >> (r % per_word * bits_)) & mask) - offset);
      }
      for (int64_t c = 0; c < columns;) {
        uint32_t word = codes_.at<uint32_t>(r * words_ + c / per_word);
        for (int64_t k = 0; k < per_word && c < columns; ++k, ++c, word >>= bits_) {
          const auto g = static_cast<size_t>(group_[static_cast<size_t>(c)]);
          *out++ = (static_cast<float>(static_cast<int32_t>(word & mask) - offset) - zero[g]) * scale[g];
        }
      }
    }
  }

  // Where inputs are in the order of their groups.
  std::optional<CodeForm> code_form() const override {
    const int64_t width = shape().columns / groups_;
    for (size_t c = 0; c < group_.size(); ++c)
      if (group_[c] != static_cast<int64_t>(c) / width) return std::nullopt;
    CodeForm form{.kind = bits_ == 4 ? CodeForm::Kind::Book : CodeForm::Kind::Signed,
                  .group = width,
                  .zeros = zeros_.data != nullptr};
    for (int i = 0; i < 16; ++i) form.book[static_cast<size_t>(i)] = static_cast<float>(i - 8);
    return form;
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns, per_word = 32 / bits_;
    const uint32_t mask = (1u << bits_) - 1, shift = bits_ == 8 ? 128 : 0;
    for (int64_t r = row; r < row + count; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const uint32_t word = codes_.at<uint32_t>(r * words_ + c / per_word);
        *(out.code + (r - row) * columns + c) = static_cast<uint8_t>(((word >> (c % per_word * bits_)) & mask) - shift);
      }
      for (int64_t g = 0; g < groups_; ++g) {
        out.scale[(r - row) * groups_ + g] = number_at(scales_, per_tensor_ ? 0 : r * groups_ + g);
        if (!zeros_.data) continue;
        const uint32_t word = zeros_.at<uint32_t>(r / per_word * groups_ + g);
        const auto stored = static_cast<int32_t>((word >> (r % per_word * bits_)) & mask);
        out.zero[(r - row) * groups_ + g] = static_cast<float>(stored - (1 << (bits_ - 1)));
      }
    }
  }

 private:
  int64_t bits_, bytes_, words_, groups_ = 1;
  bool per_tensor_ = false;
  StoredTensor codes_, scales_, zeros_;
  std::vector<int32_t> group_;
};
}  // namespace

std::unique_ptr<Matrix> open_packed_ints(const StoredLayer& layer, Shape shape, int64_t bits) {
  require(bits == 4 || bits == 8, Fault::Model, layer.name, ": packed integers of ", bits,
          " bits are not read; 4 and 8 are");
  return std::make_unique<PackedInts>(layer, shape, bits);
}

namespace {
const RegisterFormat packed_ints(
    "packed_ints",
    {.methods = {"compressed-tensors"},
     .read = "compressed-tensors (pack-quantized)",
     .marks = {"weight_packed", "weight_scale"},
     .others = {"weight_shape", "weight_zero_point", "weight_g_idx"},
     .holds = [](const Pieces& pieces,
                 const Json&) { return pieces.count("weight_packed") && !pieces.count("weight_global_scale"); },
     .open = [](const StoredLayer& layer, Shape shape,
                const Json& said) { return open_packed_ints(layer, shape, compressed_settings(said).bits); },
     .bits = [](const Json& said) -> double {
       const Compressed c = compressed_settings(said);
       const bool own = c.format == "pack-quantized" || c.format == "mixed-precision";
       return own ? bits_in_groups(c.bits, 128, false) : 0;
     },
     .check = [](const Json& said) { compressed_settings(said); }});
}  // namespace

}  // namespace apus::quant
