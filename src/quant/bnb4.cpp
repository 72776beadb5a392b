// SPDX-License-Identifier: Apache-2.0
#include "quant/bnb4.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/wish.h"

namespace apus::quant {

namespace {
constexpr const char *kNf4State = "weight.quant_state.bitsandbytes__nf4",
                     *kFp4State = "weight.quant_state.bitsandbytes__fp4";
constexpr int64_t kNestedBlock = 256;

int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }

Json state_of(const StoredLayer& layer, const char* key) {
  const StoredTensor& raw = layer.need(key, {DiskType::U8}, -1);
  require(raw.bytes < 4096, Fault::Model, layer.name, ".", key, " is no description of a weight: it is ", raw.bytes,
          " bytes long");
  Json state = parse_json(std::string(reinterpret_cast<const char*>(raw.data), static_cast<size_t>(raw.bytes)),
                          layer.name + "." + key);
  require(state.is_object(), Fault::Model, layer.name, ".", key, " must hold an object");
  return state;
}

int64_t whole_number(const Json& state, const char* key, int64_t otherwise) {
  const auto it = state.find(key);
  return it != state.end() && it->is_number_integer() ? it->get<int64_t>() : otherwise;
}

class Bnb4 final : public Matrix, public Coded {
 public:
  Bnb4(const StoredLayer& layer, Shape shape, const Json& state)
      : Matrix(shape),
        nf4_(layer.find(kNf4State) != nullptr),
        bytes_(layer.bytes()),
        block_(whole_number(state, "blocksize", 64)) {
    require(block_ >= 32 && block_ <= 4096 && std::has_single_bit(static_cast<uint64_t>(block_)), Fault::Model,
            layer.name, ": blocks of ", block_, " numbers are none of bitsandbytes' (32 to 4096)");
    const auto said = state.find("shape");
    require(said != state.end() && *said == Json({shape.rows, shape.columns}), Fault::Model, layer.name,
            ".weight was quantised with the shape ", said == state.end() ? "?" : said->dump(), ", and the model has [",
            shape.rows, ", ", shape.columns, "]");
    const int64_t blocks = blocks_of(shape.count(), block_);
    codes_ = layer.need("weight", {DiskType::U8, DiskType::BF16, DiskType::F16, DiskType::F32, DiskType::I8}, -1);
    require(codes_.bytes >= (shape.count() + 1) / 2, Fault::Model, layer.name, ".weight is too short: ", codes_.bytes,
            " bytes");
    const StoredTensor& map = layer.need("weight.quant_map", {DiskType::F32}, 16);
    for (int64_t i = 0; i < 16; ++i) book_[static_cast<size_t>(i)] = map.at<float>(i);
    nested_ = layer.find("weight.nested_absmax") != nullptr;
    absmax_ = layer.need("weight.absmax", {nested_ ? DiskType::U8 : DiskType::F32}, blocks);
    if (!nested_) return;
    nested_block_ = whole_number(state, "nested_blocksize", kNestedBlock);
    require(nested_block_ > 0, Fault::Model, layer.name, ": nested_blocksize must be above 0");
    nested_absmax_ = layer.need("weight.nested_absmax", {DiskType::F32}, blocks_of(blocks, nested_block_));
    const StoredTensor& nested_map = layer.need("weight.nested_quant_map", {DiskType::F32}, 256);
    for (int64_t i = 0; i < 256; ++i) nested_book_[static_cast<size_t>(i)] = nested_map.at<float>(i);
    const auto offset = state.find("nested_offset");
    require(offset != state.end() && offset->is_number(), Fault::Model, layer.name, ": its state has no nested_offset");
    offset_ = static_cast<float>(offset->get<double>());
  }

  const char* format() const override { return nf4_ ? "nf4" : "fp4"; }
  int64_t bytes() const override { return bytes_; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const int64_t end = (row + count) * shape().columns;
    for (int64_t i = row * shape().columns; i < end;) {
      const int64_t stop = std::min(end, (i / block_ + 1) * block_);
      const float scale = absmax(i / block_);
      CodeBook4 value;
      for (size_t k = 0; k < 16; ++k) value[k] = book_[k] * scale;
      if (i % 2) *out++ = value[codes_.at<uint8_t>(i / 2) & 15], ++i;
      for (; i + 1 < stop; i += 2) {
        const auto pair = codes_.at<uint8_t>(i / 2);
        *out++ = value[pair >> 4], *out++ = value[pair & 15];
      }
      if (i < stop) *out++ = value[codes_.at<uint8_t>(i / 2) >> 4], ++i;
    }
  }

  std::optional<CodeForm> code_form() const override {
    if (shape().columns % block_ != 0 || shape().columns % 2 != 0) return std::nullopt;
    return CodeForm{.kind = CodeForm::Kind::Book, .group = block_, .book = book_};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t columns = shape().columns, groups = columns / block_;
    const auto* pairs = reinterpret_cast<const uint8_t*>(codes_.data) + row * columns / 2;
    for (int64_t i = 0; i < count * columns / 2; ++i) {
      out.code[2 * i] = pairs[i] >> 4;
      out.code[2 * i + 1] = pairs[i] & 15;
    }
    for (int64_t g = 0; g < count * groups; ++g) out.scale[g] = absmax(row * groups + g);
  }

 private:
  float absmax(int64_t block) const {
    if (!nested_) return absmax_.at<float>(block);
    return nested_book_[absmax_.at<uint8_t>(block)] * nested_absmax_.at<float>(block / nested_block_) + offset_;
  }

  bool nf4_, nested_ = false;
  int64_t bytes_, block_, nested_block_ = kNestedBlock;
  StoredTensor codes_, absmax_, nested_absmax_;
  CodeBook4 book_;
  CodeBook8 nested_book_{};
  float offset_ = 0;
};

// An ascending book with the codes that its numbers have, and the borders between neighbours.
struct Ladder {
  std::array<float, 16> number{}, border{};
  std::array<uint8_t, 16> code{};
  size_t size = 0;
  uint8_t operator()(float value) const {
    size_t i = 0;
    for (size_t k = 0; k + 1 < size; ++k) i += value > border[k];
    return code[i];
  }
};

Ladder ladder(const CodeBook4& book, size_t size) {
  Ladder out;
  out.size = size;
  for (size_t i = 0; i < size; ++i) out.code[i] = static_cast<uint8_t>(i);
  std::sort(out.code.begin(), out.code.begin() + static_cast<std::ptrdiff_t>(size),
            [&](uint8_t a, uint8_t b) { return book[a] < book[b]; });
  for (size_t i = 0; i < size; ++i) out.number[i] = book[out.code[i]];
  for (size_t i = 0; i + 1 < size; ++i) out.border[i] = (out.number[i] + out.number[i + 1]) / 2;
  return out;
}

// The maxima less their mean, quantised in blocks of 256 by the dynamic map.
void quantise_maxima(const std::vector<float>& absmax, Pieces& out, Json& state) {
  const CodeBook8 map = dynamic_map();
  double sum = 0;
  for (const float m : absmax) sum += m;
  const auto blocks = static_cast<int64_t>(absmax.size());
  const auto offset = static_cast<float>(sum / static_cast<double>(blocks));
  std::vector<float> nested(static_cast<size_t>(blocks_of(blocks, kNestedBlock)), 0.0f);
  std::vector<uint8_t> code(absmax.size());
  for (size_t i = 0; i < absmax.size(); ++i)
    nested[i / kNestedBlock] = std::max(nested[i / kNestedBlock], std::abs(absmax[i] - offset));
  for (size_t i = 0; i < absmax.size(); ++i) {
    const float most = nested[i / kNestedBlock];
    const float value = std::clamp((absmax[i] - offset) * (most > 0 ? 1 / most : 0), -1.0f, 1.0f);
    // Of two as near the lower.
    const auto above = static_cast<size_t>(std::lower_bound(map.begin(), map.end(), value) - map.begin());
    const size_t high = std::min<size_t>(above, 255), low = high == 0 ? 0 : high - 1;
    code[i] = static_cast<uint8_t>(value > (map[low] + map[high]) / 2 ? high : low);
  }
  state["nested_blocksize"] = kNestedBlock;
  state["nested_dtype"] = "float32";
  state["nested_offset"] = static_cast<double>(offset);
  const auto groups = static_cast<int64_t>(nested.size());
  out["weight.absmax"] = stored(DiskType::U8, {blocks}, std::move(code));
  out["weight.nested_absmax"] = stored(DiskType::F32, {groups}, std::move(nested));
  out["weight.nested_quant_map"] = stored(DiskType::F32, {256}, std::vector<float>(map.begin(), map.end()));
}

// As Python's json writes it: a space behind commas and colons.
std::string spaced(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.items()) {
    std::string text = value.dump();
    if (value.is_array()) text = "[" + value[0].dump() + ", " + value[1].dump() + "]";
    out += (out.empty() ? "\"" : ", \"") + key + "\": " + text;
  }
  return "{" + out + "}";
}
}  // namespace

std::unique_ptr<Matrix> open_bnb4(const StoredLayer& layer, Shape shape) {
  return std::make_unique<Bnb4>(layer, shape, state_of(layer, layer.find(kNf4State) ? kNf4State : kFp4State));
}

Pieces quantise_bnb4(std::span<const float> weight, Shape shape, const Bnb4Options& options) {
  const int64_t n = shape.count();
  require(static_cast<int64_t>(weight.size()) == n, Fault::Bug, "quantise_bnb4: the weight has another shape");
  const CodeBook4& book = options.nf4 ? kNf4 : kFp4;
  const Ladder nearest = ladder(book, options.nf4 ? 16 : 8);
  std::vector<float> absmax(static_cast<size_t>(blocks_of(n, options.block)), 0.0f);
  std::vector<uint8_t> packed(static_cast<size_t>((n + 1) / 2), 0);
  for (int64_t begin = 0; begin < n; begin += options.block) {
    const int64_t end = std::min(n, begin + options.block);
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(weight[static_cast<size_t>(i)]));
    absmax[static_cast<size_t>(begin / options.block)] = most;
    const float inverse = most > 0 ? 1 / most : 0;
    for (int64_t i = begin; i < end; ++i) {
      const float value = std::clamp(weight[static_cast<size_t>(i)] * inverse, -1.0f, 1.0f);
      const int code =
          options.nf4 ? nearest(value) : nearest(std::abs(value)) | (value < 0 && nearest(-value) != 0 ? 8 : 0);
      packed[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(i % 2 ? code : code << 4);
    }
  }
  const auto bytes = static_cast<int64_t>(packed.size());
  Pieces out;
  Json state = {{"quant_type", options.nf4 ? "nf4" : "fp4"},
                {"blocksize", options.block},
                {"dtype", options.dtype},
                {"shape", {shape.rows, shape.columns}}};
  out["weight"] = stored(DiskType::U8, {bytes, 1}, std::move(packed));
  out["weight.quant_map"] = stored(DiskType::F32, {16}, std::vector<float>(book.begin(), book.end()));
  if (options.double_quant) {
    quantise_maxima(absmax, out, state);
  } else {
    const auto blocks = static_cast<int64_t>(absmax.size());
    out["weight.absmax"] = stored(DiskType::F32, {blocks}, std::move(absmax));
  }
  const std::string text = spaced(state);
  out[options.nf4 ? kNf4State : kFp4State] =
      stored(DiskType::U8, {static_cast<int64_t>(text.size())}, std::vector<uint8_t>(text.begin(), text.end()));
  return out;
}

Json bnb_config(bool four, const Wish& wish, const Json& model_config, const Json& plain) {
  const Json dtype = model_config.contains("dtype") ? model_config["dtype"] : model_config.value("torch_dtype", Json());
  return {{"_load_in_4bit", four},
          {"_load_in_8bit", !four},
          {"bnb_4bit_compute_dtype", dtype == "bfloat16" ? "bfloat16" : "float32"},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", wish.quant_type},
          {"bnb_4bit_use_double_quant", wish.double_quant},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", plain.size() > 1 ? plain : Json()},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", four},
          {"load_in_8bit", !four},
          {"quant_method", "bitsandbytes"}};
}

namespace {
const RegisterFormat bnb4(
    "bnb4",
    {.methods = {"bitsandbytes"},
     .read = "bitsandbytes (nf4, fp4)",
     .marks = {"weight."},
     .holds = [](const Pieces& pieces, const Json&) { return pieces.count(kNf4State) || pieces.count(kFp4State); },
     .open = [](const StoredLayer& layer, Shape shape, const Json&) { return open_bnb4(layer, shape); },
     .bits = [](const Json& said) { return said.value("load_in_4bit", false) ? bits_in_groups(4, 64, false) : 0; },
     .made = {.method = "bnb",
              .bits = {4},
              .settings = [](const Wish& wish, const Json& model_config,
                             const Json& plain) { return bnb_config(true, wish, model_config, plain); },
              .quantise =
                  [](std::span<const float> weight, Shape shape, const Json& said) {
                    return quantise_bnb4(weight, shape,
                                         {.nf4 = said["bnb_4bit_quant_type"] == "nf4",
                                          .double_quant = said["bnb_4bit_use_double_quant"].get<bool>()});
                  }}});
}  // namespace

}  // namespace apus::quant
