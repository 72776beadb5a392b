// SPDX-License-Identifier: Apache-2.0
#include "quant/wish.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "quant/format.h"

namespace apus::quant {

void Wish::honour(OptionTable& v) {
  const std::vector<std::string> methods = loaded_methods();
  v.at("quant_method")
      .honoured(&method, str("hold the weights of linear layers quantised, made while they are loaded: ", join(methods),
                             ". Only adapters can be trained then"))
      .common()
      .choices(methods)
      .restored("model");
  v.at("quant_bits")
      .honoured(&bits, str("bits of a weight: ", bits_text(methods)))
      .common()
      .shown_default("to be given where there is a choice")
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
    require(!bits, Fault::Usage, "--quant_bits needs --quant_method: ", join(loaded_methods()));
    return;
  }
  const std::vector<int64_t> allowed = bits_of_method(*method);
  require(bits || allowed.size() == 1, Fault::Usage, "--quant_method ", *method, " needs --quant_bits");
  std::vector<std::string> text;
  for (const int64_t one : allowed) text.push_back(std::to_string(one));
  require(!bits || std::find(allowed.begin(), allowed.end(), *bits) != allowed.end(), Fault::Usage, "--quant_bits ",
          bits.value_or(0), " is not possible with --quant_method ", *method, "; possible: ", join(text));
}

bool Wish::skips(const std::string& layer) const {
  for (const char* last : {"lm_head", "output", "output_layer", "mlp.gate", "block_sparse_moe.gate", "mlp.gate.wg",
                           "shared_expert_gate", "router", "router.layer", "score"})
    if (layer == last || layer.ends_with(std::string(".") + last)) return true;
  return false;
}

const Format& Wish::format() const {
  for (const auto& [name, format] : Registry<Format>::of().all()) {
    const Making& made = format.made;
    if (made.method != *method || made.method.empty()) continue;
    if (!bits || std::find(made.bits.begin(), made.bits.end(), *bits) != made.bits.end()) return format;
  }
  fail(Fault::Bug, "no format is made by --quant_method ", *method);
}

Json Wish::settings() const { return format().made.settings(*this, Json::object(), Json::array()); }

Json Wish::config(const Json& model_config, const std::vector<std::string>& layers) const {
  Json plain = Json::array({"lm_head"});
  for (const std::string& layer : layers)
    if (layer != "lm_head") plain.push_back(layer);
  require(format().made.exported, Fault::Bug, "no configuration for ", *method);
  return format().made.settings(*this, model_config, plain);
}

Pieces Wish::quantise(std::span<const float> weight, Shape shape) const {
  return format().made.quantise(weight, shape, settings());
}

std::shared_ptr<const Matrix> Wish::open(const StoredLayer& layer, Shape shape) const {
  return format().open(layer, shape, settings());
}

double Wish::bits_of_weight() const { return format().bits(settings()); }

}  // namespace apus::quant
