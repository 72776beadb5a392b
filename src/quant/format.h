// SPDX-License-Identifier: Apache-2.0
// What one format of quantised weights says of itself: how it is known in a checkpoint, opened, counted and made. Each
// is registered by the file that implements it; no other file names it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/registry.h"
#include "quant/gptq_form.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct Wish;

// Made of plain weights alone, while they are loaded (--quant_method) or by `apus export`.
struct Making {
  std::string method;         // of --quant_method; empty: it is read only
  std::vector<int64_t> bits;  // of --quant_bits
  bool exported = true;
  // The quantization_config that quantise() and open() go by. `model_config` and `plain`, the layers of matrices that
  // stay as they are, are for what only other programs read.
  Json (*settings)(const Wish& wish, const Json& model_config, const Json& plain) = nullptr;
  Pieces (*quantise)(std::span<const float> weight, Shape shape, const Json& settings) = nullptr;
};

// What calibration knows of a checkpoint whose quantization_config is to be written.
struct Calibration {
  GptqForm form;
  bool by_importance = false;
  std::string layers;                            // the name of the list of decoder layers
  std::vector<std::vector<std::string>> groups;  // linear layers of one input, named within a decoder layer
  std::vector<std::string> plain;                // linear layers that stay so
};

// Made with the help of rows by `apus export`; how a layer's error is made good is checkpoint/calibrate.h's.
struct CalibratedMaking {
  std::vector<std::string> methods;  // of --quant_method; none: there is no such way
  std::vector<int64_t> bits;
  bool by_importance = false;  // --desc_act is possible
  GptqForm (*form)(const std::string& method, int64_t bits, int64_t group) = nullptr;
  bool (*fits)(Shape shape, const GptqForm& form) = nullptr;
  // To the nearest, where nothing is known of a layer's inputs.
  Pieces (*round)(std::span<const float> weight, Shape shape, const GptqForm& form) = nullptr;
  Json (*config)(const Calibration& calibration) = nullptr;
};

struct Format {
  // quant_method of the checkpoints that may hold it.
  std::vector<std::string> methods;
  // "bitsandbytes (nf4, fp4)": what is read, for errors.
  std::string read;
  // The tensors behind a layer's name, besides "weight": those that no plain layer has, where one that ends in a dot
  // stands for all that begin so; and the others, with what is not needed to read the weight.
  std::vector<std::string> marks, others;
  // Whether a layer with these tensors is of this format; `said` is the quantization_config, here and below.
  bool (*holds)(const Pieces& pieces, const Json& said);
  std::unique_ptr<Matrix> (*open)(const StoredLayer& layer, Shape shape, const Json& said);
  // Of a weight in memory, scales and zeros included; 0: a checkpoint that says this holds another format.
  double (*bits)(const Json& said);
  // Fault::Model: settings that are not read, with those that are.
  void (*check)(const Json& said) = [](const Json&) {};
  Making made = {};
  CalibratedMaking calibrated = {};
};

struct RegisterFormat {
  RegisterFormat(const char* name, Format format) { Registry<Format>::of().add(name, std::move(format)); }
};

// The methods of --quant_method while plain weights are loaded, and of an export: without rows, and with them.
std::vector<std::string> loaded_methods();
std::vector<std::string> exported_methods();
std::vector<std::string> calibrated_methods();
// "4 or 8 (bnb), 8 (fp8)": of these methods.
std::string bits_text(const std::vector<std::string>& methods);
// The bits that a method can have; none: there is no such method.
std::vector<int64_t> bits_of_method(const std::string& method);
// Null: it does not calibrate.
const CalibratedMaking* calibrated_making(const std::string& method);

// Of a quantization_config. Fault::Model where it is of another type.
template <class T>
T setting(const Json& said, const char* key, T otherwise) {
  const auto it = said.find(key);
  if (it == said.end() || it->is_null()) return otherwise;
  try {
    return it->get<T>();
  } catch (const nlohmann::json::exception&) {
    fail(Fault::Model, "config.json: quantization_config: ", key, " is ", it->dump(),
         ", of another type than expected");
  }
}

// As a processor keeps a weight of `bits` with a scale, and a zero, for each `group` of a row; group 0: for each row.
double bits_in_groups(int64_t bits, int64_t group, bool zeros);

}  // namespace apus::quant
