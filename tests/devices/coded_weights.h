// SPDX-License-Identifier: Apache-2.0
// A weight in each of the formats that devices keep as codes.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include <memory>
#include <span>
#include <vector>

#include "quant/awq.h"
#include "quant/bnb4.h"
#include "quant/fp8.h"
#include "quant/gptq.h"
#include "quant/hqq.h"
#include "quant/int8.h"

namespace apus {

struct CodedWeight {
  const char* name;
  bool exact;  // the device keeps its scales as they are
  std::shared_ptr<const quant::Matrix> matrix;
};

// Groups of one, two, several vectors of codes and of whole rows; rows that end within a vector.
inline std::vector<CodedWeight> coded_weights(quant::Shape shape) {
  const at::Tensor wide = at::randn({shape.rows, shape.columns}) * 0.05;
  const std::span<const float> w(wide.data_ptr<float>(), static_cast<size_t>(wide.numel()));
  std::vector<CodedWeight> all;
  all.push_back({"nf4", false, quant::open_bnb4({"layer", quant::quantise_bnb4(w, shape, {.block = 32})}, shape)});
  all.push_back(
      {"fp4", false, quant::open_bnb4({"layer", quant::quantise_bnb4(w, shape, {.nf4 = false, .block = 32})}, shape)});
  all.push_back({"int8", true, quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(w, shape)}, shape)});
  for (const int64_t bits : {4, 8}) {
    const quant::GptqForm form{.bits = bits, .group = 32};
    all.push_back(
        {bits == 4 ? "gptq 4" : "gptq 8", true,
         quant::open_gptq({"layer", pack_gptq(round_to_integers(w, shape, form, false), shape, form)}, shape, form)});
    const quant::HqqForm hqq{.bits = bits, .group = 32, .axis = 1};
    all.push_back({bits == 4 ? "hqq 4" : "hqq 8", false,
                   quant::open_hqq({"layer", quant::quantise_hqq(w, shape, hqq, false)}, shape, hqq)});
  }
  all.push_back(
      {"awq", true, quant::open_awq({"layer", pack_awq(quant::round_to_awq(w, shape, 32), shape)}, shape, 32)});
  all.push_back({"fp8 blocks", false, quant::open_fp8({"layer", quant::quantise_fp8(w, shape, {})}, shape, {})});
  all.push_back({"fp8 rows", true, quant::open_fp8({"layer", quant::quantise_fp8_rows(w, shape)}, shape, {})});
  return all;
}

}  // namespace apus
