// SPDX-License-Identifier: Apache-2.0
#include "quant/scheme.h"

#include <set>

#include "base/error.h"
#include "quant/awq.h"
#include "quant/bnb4.h"
#include "quant/int8.h"
#include "quant/nvfp4.h"
#include "quant/packed_ints.h"

namespace apus::quant {

namespace {
const char* const kRead =
    "read are bitsandbytes (nf4, fp4, int8), gptq, awq (gemm), fp8, fbgemm_fp8, compressed-tensors (pack-quantized, "
    "int-quantized, float-quantized, nvfp4-pack-quantized) and hqq";

template <class T>
T said(const Json& object, const char* key, T otherwise) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return otherwise;
  try {
    return it->get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(Fault::Model, "config.json: quantization_config: ", key, " is ", it->dump(),
         ", of another type than expected");
  }
}

void read_gptq(const Json& c, Scheme& s) {
  s.gptq = {said<int64_t>(c, "bits", 4), said<int64_t>(c, "group_size", 128),
            said<std::string>(c, "checkpoint_format", "gptq") == "gptq_v2"};
  require(s.gptq.bits == 2 || s.gptq.bits == 3 || s.gptq.bits == 4 || s.gptq.bits == 8, Fault::Model,
          "config.json: GPTQ with ", s.gptq.bits, " bits is not read; 2, 3, 4 and 8 are");
  const auto format = said<std::string>(c, "checkpoint_format", "gptq");
  require(format == "gptq" || format == "gptq_v2", Fault::Model, "config.json: checkpoint_format '", format,
          "' is not read; gptq and gptq_v2 are");
}

void read_awq(const Json& c, Scheme& s) {
  s.gptq = {said<int64_t>(c, "bits", said<int64_t>(c, "w_bit", 4)),
            said<int64_t>(c, "group_size", said<int64_t>(c, "q_group_size", 128)), true};
  const auto version = said<std::string>(c, "version", "gemm");
  require(version == "gemm" || version == "GEMM", Fault::Model, "config.json: AWQ's version '", version,
          "' is not read; gemm is");
  require(s.gptq.bits == 4, Fault::Model, "config.json: AWQ with ", s.gptq.bits, " bits is not read; 4 is");
}

void read_fp8(const Json& c, Scheme& s) {
  const auto format = said<std::string>(c, "fmt", "e4m3");
  require(format == "e4m3" || format == "float8_e4m3fn", Fault::Model, "config.json: FP8 of the format '", format,
          "' is not read; e4m3 is");
  const auto block = said<std::vector<int64_t>>(c, "weight_block_size", {128, 128});
  require(block.size() == 2, Fault::Model, "config.json: weight_block_size must have two numbers");
  s.fp8 = {block[0], block[1]};
}

// Bits and blocks are the groups': all groups must agree, as one layer does not say to which it belongs.
void read_compressed(const Json& c, Scheme& s) {
  const auto format = said<std::string>(c, "format", "");
  for (const char* known : {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                            "nvfp4-pack-quantized", "mixed-precision"})
    if (format == known) {
      std::optional<int64_t> bits;
      const Json groups = c.value("config_groups", Json::object());
      for (const auto& [name, group] : groups.items()) {
        if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
        const Json& weights = group["weights"];
        const auto found = said<int64_t>(weights, "num_bits", 4);
        require(!bits || *bits == found, Fault::Model, "config.json: quantization_config has groups of ", *bits,
                " and of ", found, " bits, which is not read; groups of the same bits are");
        bits = found;
        const auto block = said<std::vector<int64_t>>(weights, "block_structure", {128, 128});
        if (block.size() == 2) s.fp8 = {block[0], block[1]};
      }
      s.packed_bits = bits.value_or(4);
      return;
    }
  fail(Fault::Model, "config.json: compressed-tensors' format '", format, "' is not read; ", kRead);
}

void read_hqq(const Json& c, Scheme& s) {
  const Json inner = c.value("quant_config", Json::object()).value("weight_quant_params", Json::object());
  s.hqq = {said<int64_t>(inner, "nbits", 4), said<int64_t>(inner, "group_size", 64), said<int64_t>(inner, "axis", 1)};
}
}  // namespace

std::optional<Scheme> scheme_of(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return std::nullopt;
  require(found->is_object(), Fault::Model, "config.json: quantization_config must be an object");
  Scheme s;
  s.method = said<std::string>(*found, "quant_method", "bitsandbytes");
  // gpt-oss's experts, which are made plain while they are loaded (checkpoint/mxfp4.h).
  if (s.method == "mxfp4") return std::nullopt;
  if (s.method == "gptq") {
    read_gptq(*found, s);
  } else if (s.method == "awq") {
    read_awq(*found, s);
  } else if (s.method == "fp8" || s.method == "fbgemm_fp8") {
    read_fp8(*found, s);
  } else if (s.method == "compressed-tensors") {
    read_compressed(*found, s);
  } else if (s.method == "hqq") {
    read_hqq(*found, s);
  } else {
    require(s.method == "bitsandbytes", Fault::Model, "config.json: the checkpoint is quantised by '", s.method,
            "', which is not read; ", kRead);
  }
  return s;
}

bool marks_quantised(const std::string& piece) {
  static const std::set<std::string> marks = {"qweight",          "weight_packed", "weight_scale",
                                              "weight_scale_inv", "SCB",           "W_q"};
  return marks.count(piece) > 0 || piece.starts_with("weight.");
}

// With what formats add that is not needed to read the weight.
bool belongs_to_weight(const std::string& piece) {
  static const std::set<std::string> others = {"weight",
                                               "qzeros",
                                               "scales",
                                               "g_idx",
                                               "weight_shape",
                                               "weight_zero_point",
                                               "weight_g_idx",
                                               "input_scale",
                                               "input_scale_ub",
                                               "weight_format",
                                               "scale",
                                               "weight_global_scale",
                                               "zero",
                                               "output_scale",
                                               "activation_scale",
                                               "input_zero_point",
                                               "nbits",
                                               "input_global_scale",
                                               "group_size",
                                               "axis",
                                               "shape",
                                               "packing",
                                               "channel_wise",
                                               "optimize",
                                               "round_zero",
                                               "view_as_float",
                                               "compute_dtype",
                                               "offload_meta",
                                               "quant_zero",
                                               "stores_quant_config",
                                               "quant_scale",
                                               "unpack_view_dtype",
                                               "encoded_state_dict"};
  return others.count(piece) > 0 || marks_quantised(piece);
}

std::unique_ptr<Matrix> open_weight(const Scheme& scheme, const StoredLayer& layer, Shape shape) {
  const Pieces& pieces = layer.pieces;
  if (is_bnb4(pieces)) return open_bnb4(layer, shape);
  if (is_bnb_int8(pieces)) return open_bnb_int8(layer, shape);
  if (is_gptq(pieces)) {
    if (scheme.method == "awq") return open_awq(layer, shape, scheme.gptq.group);
    return open_gptq(layer, shape, scheme.gptq);
  }
  if (is_fp8(pieces)) return open_fp8(layer, shape, scheme.fp8);
  if (is_int_quantised(pieces)) return open_int_quantised(layer, shape);
  if (is_nvfp4(pieces)) return open_nvfp4(layer, shape);
  if (is_packed_ints(pieces)) return open_packed_ints(layer, shape, scheme.packed_bits);
  if (is_hqq(pieces)) return open_hqq(layer, shape, scheme.hqq);
  return nullptr;
}

}  // namespace apus::quant
