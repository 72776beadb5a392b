// SPDX-License-Identifier: Apache-2.0
#include "quant/gptq.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/numbers.h"

namespace apus::quant {

namespace {
constexpr int64_t kUnit = 32;  // codes in `bits` whole words

// Codes lie one behind the other from the lowest bit of the first word on; those of three bits may cross words.
template <int kBits>
void unpack_unit(const uint32_t* words, uint8_t* codes) {
  for (int k = 0; k < kUnit; ++k) {
    const int bit = k * kBits, word = bit / 32, shift = bit % 32;
    uint32_t value = words[word] >> shift;
    if (shift + kBits > 32) value |= words[word + 1] << (32 - shift);
    codes[k] = static_cast<uint8_t>(value & ((1u << kBits) - 1));
  }
}

void unpack_unit(int64_t bits, const uint32_t* words, uint8_t* codes) {
  switch (bits) {
    case 2:
      return unpack_unit<2>(words, codes);
    case 3:
      return unpack_unit<3>(words, codes);
    case 4:
      return unpack_unit<4>(words, codes);
    default:
      return unpack_unit<8>(words, codes);
  }
}

void pack_unit(int64_t bits, const uint8_t* codes, uint32_t* words) {
  std::fill(words, words + bits, 0u);
  for (int64_t k = 0; k < kUnit; ++k) {
    const int64_t bit = k * bits, word = bit / 32, shift = bit % 32;
    words[word] |= static_cast<uint32_t>(codes[k]) << shift;
    if (shift + bits > 32) words[word + 1] |= static_cast<uint32_t>(codes[k]) >> (32 - shift);
  }
}

class Gptq final : public Matrix, public Coded {
 public:
  Gptq(const StoredLayer& layer, Shape shape, const GptqForm& form) : Matrix(shape), form_(form) {
    const auto [rows, columns] = shape;
    require(rows % kUnit == 0 && columns % kUnit == 0, Fault::Model, layer.name, ": GPTQ packs sides that are ",
            "multiples of 32, this layer is [", rows, ", ", columns, "]");
    groups_ = (columns + form.group_of(columns) - 1) / form.group_of(columns);
    codes_ = layer.need("qweight", {DiskType::I32}, columns * form.bits / 32 * rows);
    zeros_ = layer.need("qzeros", {DiskType::I32}, groups_ * rows * form.bits / 32);
    scales_ = layer.need("scales", kScaleTypes, groups_ * rows);
    bytes_ = layer.bytes();
    group_ = layer.groups_of_columns("g_idx", columns, groups_, form.group_of(columns));
  }
  const char* format() const override { return "gptq"; }
  int64_t bytes() const override { return bytes_; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const int64_t columns = shape().columns;
    const Grid grid = grid_of(row, count);
    for (int64_t c = 0; c < columns; c += kUnit) {
      const int32_t* group = group_.data() + c;
      const bool one = std::all_of(group, group + kUnit, [&](int32_t g) { return g == group[0]; });
      for (int64_t r = 0; r < count; ++r) {
        uint8_t codes[kUnit];
        unit(c, row + r, codes);
        float* to = out + r * columns + c;
        if (one) {
          const auto at = static_cast<size_t>(group[0] * count + r);
          const float scale = grid.scale[at], zero = grid.zero[at];
          for (int64_t k = 0; k < kUnit; ++k) to[k] = scale * (static_cast<float>(codes[k]) - zero);
          continue;
        }
        for (int64_t k = 0; k < kUnit; ++k) {
          const auto at = static_cast<size_t>(group[k] * count + r);
          to[k] = grid.scale[at] * (static_cast<float>(codes[k]) - grid.zero[at]);
        }
      }
    }
  }

  // Where inputs are in the order of their groups.
  std::optional<CodeForm> code_form() const override {
    const int64_t width = form_.group_of(shape().columns);
    for (size_t c = 0; c < group_.size(); ++c)
      if (group_[c] != static_cast<int64_t>(c) / width) return std::nullopt;
    return CodeForm{.kind = form_.bits == 4 ? CodeForm::Kind::Book : CodeForm::Kind::Signed,
                    .group = width,
                    .zeros = true,
                    .book = kWholeNumbers,
                    .bits = static_cast<int>(form_.bits),
                    .lowest = form_.bits == 8 ? -128 : 0};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns;
    const uint8_t shift = form_.bits == 8 ? 128 : 0;  // bytes have a sign
    for (int64_t c = 0; c < columns; c += kUnit)
      for (int64_t r = 0; r < count; ++r) {
        uint8_t* const codes = out.code + r * columns + c;
        unit(c, row + r, codes);
        for (int64_t k = 0; k < kUnit; ++k) codes[k] = static_cast<uint8_t>(codes[k] - shift);
      }
    const Grid grid = grid_of(row, count);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t g = 0; g < groups_; ++g) {
        out.scale[r * groups_ + g] = grid.scale[static_cast<size_t>(g * count + r)];
        out.zero[r * groups_ + g] = grid.zero[static_cast<size_t>(g * count + r)] - static_cast<float>(shift);
      }
  }

 private:
  // The codes of kUnit columns of a row.
  void unit(int64_t column, int64_t row, uint8_t* out) const {
    uint32_t words[8];
    for (int64_t w = 0; w < form_.bits; ++w)
      words[w] = codes_.at<uint32_t>((column * form_.bits / 32 + w) * shape().rows + row);
    unpack_unit(form_.bits, words, out);
  }
  struct Grid {
    std::vector<float> scale, zero;  // [groups, count]
  };
  Grid grid_of(int64_t row, int64_t count) const {
    const auto size = static_cast<size_t>(groups_ * count);
    Grid grid{std::vector<float>(size), std::vector<float>(size)};
    const int64_t bits = form_.bits, words = shape().rows * bits / 32;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t r = 0; r < count; ++r) {
        const auto at = static_cast<size_t>(g * count + r);
        grid.scale[at] = number_at(scales_, g * shape().rows + row + r);
        const int64_t bit = (row + r) * bits, word = bit / 32, shift = bit % 32;
        uint32_t zero = zeros_.at<uint32_t>(g * words + word) >> shift;
        if (shift + bits > 32) zero |= zeros_.at<uint32_t>(g * words + word + 1) << (32 - shift);
        grid.zero[at] = static_cast<float>((zero + (form_.plain_zeros ? 0 : 1)) & mask);
      }
    return grid;
  }

  GptqForm form_;
  int64_t groups_ = 0, bytes_ = 0;
  StoredTensor codes_, zeros_, scales_;
  std::vector<int32_t> group_;
};
}  // namespace

GptqForm gptq_form(const Json& said) {
  const auto format = setting<std::string>(said, "checkpoint_format", "gptq");
  require(format == "gptq" || format == "gptq_v2", Fault::Model, "config.json: checkpoint_format '", format,
          "' is not read; gptq and gptq_v2 are");
  const GptqForm form{setting<int64_t>(said, "bits", 4), setting<int64_t>(said, "group_size", 128),
                      format == "gptq_v2"};
  require(form.bits == 2 || form.bits == 3 || form.bits == 4 || form.bits == 8, Fault::Model, "config.json: GPTQ with ",
          form.bits, " bits is not read; 2, 3, 4 and 8 are");
  return form;
}

std::unique_ptr<Matrix> open_gptq(const StoredLayer& layer, Shape shape, const GptqForm& form) {
  return std::make_unique<Gptq>(layer, shape, form);
}

Range8 range_of(std::span<const float> weights, int64_t bits, bool symmetric) {
  float low = 0, high = 0;
  for (const float w : weights) low = std::min(low, w), high = std::max(high, w);
  if (symmetric) {
    high = std::max(-low, high);
    if (low < 0) low = -high;
  }
  if (low == 0 && high == 0) low = -1, high = 1;
  const auto most = static_cast<float>((1 << bits) - 1);
  const float scale = (high - low) / most;
  return {scale, symmetric ? (most + 1) / 2 : std::nearbyint(-low / scale)};
}

float nearest_code(float weight, const Range8& range, int64_t bits) {
  return std::clamp(std::nearbyint(weight / range.scale) + range.zero, 0.0f, static_cast<float>((1 << bits) - 1));
}

Integers round_to_integers(std::span<const float> weight, Shape shape, const GptqForm& form, bool symmetric) {
  const auto [rows, columns] = shape;
  const int64_t group = form.group_of(columns), groups = (columns + group - 1) / group;
  Integers out{std::vector<uint8_t>(weight.size()), std::vector<float>(static_cast<size_t>(groups * rows)),
               std::vector<uint8_t>(static_cast<size_t>(groups * rows)),
               std::vector<int32_t>(static_cast<size_t>(columns))};
  for (int64_t c = 0; c < columns; ++c) out.group_of[static_cast<size_t>(c)] = static_cast<int32_t>(c / group);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = r * columns + g * group, size = std::min(group, columns - g * group);
      const auto part = weight.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
      const Range8 range = range_of(part, form.bits, symmetric);
      const auto at = static_cast<size_t>(g * rows + r);
      out.scale[at] = range.scale, out.zero[at] = static_cast<uint8_t>(range.zero);
      for (int64_t k = 0; k < size; ++k)
        out.code[static_cast<size_t>(begin + k)] =
            static_cast<uint8_t>(nearest_code(part[static_cast<size_t>(k)], range, form.bits));
    }
  return out;
}

Pieces pack_gptq(const Integers& integers, Shape shape, const GptqForm& form) {
  const auto [rows, columns] = shape;
  const int64_t bits = form.bits, groups = static_cast<int64_t>(integers.scale.size()) / rows;
  require(rows % kUnit == 0 && columns % kUnit == 0, Fault::Usage, "a matrix of [", rows, ", ", columns,
          "] cannot be written as GPTQ, whose sides are multiples of ", kUnit, "; --quant_method bnb or fp8 can");
  std::vector<uint32_t> codes(static_cast<size_t>(columns * bits / 32 * rows));
  std::vector<uint32_t> zeros(static_cast<size_t>(groups * rows * bits / 32));
  uint8_t unit[kUnit];
  uint32_t words[8];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += kUnit) {
      pack_unit(bits, integers.code.data() + r * columns + c, words);
      for (int64_t w = 0; w < bits; ++w) codes[static_cast<size_t>((c * bits / 32 + w) * rows + r)] = words[w];
    }
  const auto mask = static_cast<uint8_t>((1 << bits) - 1);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t r = 0; r < rows; r += kUnit) {
      for (int64_t k = 0; k < kUnit; ++k)
        unit[k] =
            static_cast<uint8_t>(integers.zero[static_cast<size_t>(g * rows + r + k)] - (form.plain_zeros ? 0 : 1)) &
            mask;
      pack_unit(bits, unit, zeros.data() + g * rows * bits / 32 + r * bits / 32);
    }
  std::vector<uint16_t> scales(integers.scale.size());
  std::transform(integers.scale.begin(), integers.scale.end(), scales.begin(), float_to_f16);
  Pieces out;
  out["qweight"] = stored(DiskType::I32, {columns * bits / 32, rows}, std::move(codes));
  out["qzeros"] = stored(DiskType::I32, {groups, rows * bits / 32}, std::move(zeros));
  out["scales"] = stored(DiskType::F16, {groups, rows}, std::move(scales));
  out["g_idx"] = stored(DiskType::I32, {columns}, integers.group_of);
  return out;
}

namespace {
// What transformers, AutoGPTQ, GPTQModel and vLLM read.
Json gptq_config(const Calibration& made) {
  Json config = {{"bits", made.form.bits},
                 {"group_size", made.form.group},
                 {"damp_percent", 0.1},
                 {"desc_act", made.by_importance},
                 {"static_groups", false},
                 {"sym", true},
                 {"true_sequential", true},
                 {"quant_method", "gptq"},
                 {"checkpoint_format", made.form.plain_zeros ? "gptq_v2" : "gptq"},
                 {"lm_head", false},
                 {"block_name_to_quantize", made.layers},
                 {"modules_in_block_to_quantize", made.groups},
                 {"meta", {{"quantizer", {"apus"}}}}};
  // Names as patterns.
  for (const std::string& name : made.plain)
    config["dynamic"]["-:^" + std::regex_replace(name, std::regex("\\."), "\\.") + "$"] = Json::object();
  return config;
}

const RegisterFormat gptq(
    "gptq",
    {.methods = {"gptq"},
     .read = "gptq",
     .marks = {"qweight"},
     .others = {"qzeros", "scales", "g_idx"},
     .holds =
         [](const Pieces& pieces, const Json& said) {
           return pieces.count("qweight") && pieces.count("qzeros") && said.value("quant_method", Json()) != "awq";
         },
     .open = [](const StoredLayer& layer, Shape shape,
                const Json& said) { return open_gptq(layer, shape, gptq_form(said)); },
     .bits =
         [](const Json& said) {
           const GptqForm form = gptq_form(said);
           return bits_in_groups(form.bits, form.group, true);
         },
     .check = [](const Json& said) { gptq_form(said); },
     .calibrated = {.methods = {"gptq", "gptq_v2"},
                    .bits = {2, 3, 4, 8},
                    .by_importance = true,
                    .form =
                        [](const std::string& method, int64_t bits, int64_t group) {
                          return GptqForm{bits, group, method == "gptq_v2"};
                        },
                    .fits = [](Shape shape,
                               const GptqForm&) { return shape.rows % kUnit == 0 && shape.columns % kUnit == 0; },
                    .round =
                        [](std::span<const float> weight, Shape shape, const GptqForm& form) {
                          return pack_gptq(round_to_integers(weight, shape, form, true), shape, form);
                        },
                    .config = gptq_config}});
}  // namespace

}  // namespace apus::quant
