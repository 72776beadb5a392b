// SPDX-License-Identifier: Apache-2.0
// How a plain checkpoint is to be quantised: while it is loaded, or when it is exported. No calibration is needed here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct Format;

struct Wish {
  std::optional<std::string> method;  // of a format that is made so (quant/format.h)
  std::optional<int64_t> bits;
  std::optional<int64_t> hqq_axis;
  std::string quant_type = "nf4";
  bool double_quant = true;

  // The flags of a command that can do it: those that its groups of options refuse.
  void honour(OptionTable& v);
  void check() const;
  bool any() const { return method.has_value(); }
  bool skips(const std::string& layer) const;  // routers, and a head
  // The quantization_config of a model that is written so; `plain`: its layers of matrices that are not quantised.
  Json config(const Json& model_config, const std::vector<std::string>& plain) const;
  Pieces quantise(std::span<const float> weight, Shape shape) const;
  std::shared_ptr<const Matrix> open(const StoredLayer& layer, Shape shape) const;  // what quantise() made
  double bits_of_weight() const;                                                    // scales included

 private:
  const Format& format() const;
  Json settings() const;
};

}  // namespace apus::quant
