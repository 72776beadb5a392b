// SPDX-License-Identifier: Apache-2.0
#include "quant/wish.h"

#include <algorithm>

#include "base/error.h"
#include "quant/bnb4.h"
#include "quant/fp8.h"
#include "quant/hqq.h"
#include "quant/int8.h"

namespace apus::quant {

void Wish::honour(OptionTable& v) {
  v.at("quant_method")
      .honoured(&method,
                "hold the weights of linear layers quantised, made while they are loaded: bnb, hqq or fp8. Only "
                "adapters can be trained then")
      .common()
      .choices({"bnb", "hqq", "fp8"})
      .restored("model");
  v.at("quant_bits")
      .honoured(&bits, "bits of a weight: 4 or 8 (bnb); 1, 2, 3, 4 or 8 (hqq); fp8 has 8")
      .common()
      .shown_default("to be given with bnb and hqq")
      .restored("model");
  v.at("hqq_axis")
      .honoured(&hqq_axis, "1: groups along the rows of a weight; 0: across them")
      .at_least(0)
      .at_most(1)
      .shown_default("1")
      .restored("model");
  v.at("bnb_4bit_quant_type")
      .honoured(&quant_type, "which 16 numbers four bits stand for")
      .choices({"nf4", "fp4"})
      .restored("model");
  v.at("bnb_4bit_use_double_quant")
      .honoured(&double_quant, "quantise the scales of blocks too: 4.13 bits a weight instead of 4.5")
      .restored("model");
  v.at("bnb_4bit_compute_dtype").idle_for("products are made in --torch_dtype");
  v.at("bnb_4bit_quant_storage").idle_for("bytes are not shared out over ranks, whatever they are called");
}

void Wish::check() const {
  if (!method) {
    require(!bits, Fault::Usage, "--quant_bits needs --quant_method: bnb, hqq or fp8");
    return;
  }
  const auto allowed = [&]() -> std::vector<int64_t> {
    if (*method == "bnb") return {4, 8};
    if (*method == "hqq") return {1, 2, 3, 4, 8};
    return {8};
  }();
  require(bits || *method == "fp8", Fault::Usage, "--quant_method ", *method, " needs --quant_bits");
  std::string text;
  for (const int64_t one : allowed) text += (text.empty() ? "" : ", ") + std::to_string(one);
  require(!bits || std::find(allowed.begin(), allowed.end(), *bits) != allowed.end(), Fault::Usage, "--quant_bits ",
          bits.value_or(0), " is not possible with --quant_method ", *method, "; possible: ", text);
}

bool Wish::skips(const std::string& layer) const {
  for (const char* last : {"lm_head", "mlp.gate", "block_sparse_moe.gate", "mlp.gate.wg", "shared_expert_gate",
                           "router", "router.layer", "score"})
    if (layer == last || layer.ends_with(std::string(".") + last)) return true;
  return false;
}

Json Wish::config(const Json& model_config, const std::vector<std::string>& layers) const {
  Json plain = Json::array({"lm_head"});
  for (const std::string& layer : layers)
    if (layer != "lm_head") plain.push_back(layer);
  if (*method == "fp8")
    return {{"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"modules_to_not_convert", plain},
            {"quant_method", "fp8"},
            {"weight_block_size", {128, 128}}};
  require(*method == "bnb", Fault::Bug, "no configuration for ", *method);
  const bool four = bits == 4;
  Json dtype = model_config.contains("dtype") ? model_config["dtype"] : model_config.value("torch_dtype", Json());
  return {{"_load_in_4bit", four},
          {"_load_in_8bit", !four},
          {"bnb_4bit_compute_dtype", dtype == "bfloat16" ? "bfloat16" : "float32"},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_quant_type", quant_type},
          {"bnb_4bit_use_double_quant", double_quant},
          {"llm_int8_enable_fp32_cpu_offload", false},
          {"llm_int8_has_fp16_weight", false},
          {"llm_int8_skip_modules", plain.size() > 1 ? plain : Json()},
          {"llm_int8_threshold", 6.0},
          {"load_in_4bit", four},
          {"load_in_8bit", !four},
          {"quant_method", "bitsandbytes"}};
}

namespace {
HqqForm hqq_form(const Wish& wish) { return {wish.bits.value_or(4), 64, wish.hqq_axis.value_or(1)}; }
}  // namespace

Pieces Wish::quantise(std::span<const float> weight, Shape shape) const {
  if (*method == "hqq") return quantise_hqq(weight, shape, hqq_form(*this), /*improve=*/true);
  if (*method == "fp8") return quantise_fp8(weight, shape, {});
  if (bits == 8) return quantise_bnb_int8(weight, shape);
  return quantise_bnb4(weight, shape, {.nf4 = quant_type == "nf4", .double_quant = double_quant});
}

std::shared_ptr<const Matrix> Wish::open(const StoredLayer& layer, Shape shape) const {
  if (*method == "hqq") return open_hqq(layer, shape, hqq_form(*this));
  if (*method == "fp8") return open_fp8(layer, shape, {});
  if (bits == 8) return open_bnb_int8(layer, shape);
  return open_bnb4(layer, shape);
}

}  // namespace apus::quant
