// SPDX-License-Identifier: Apache-2.0
#include "gguf/ggml_type.h"

#include <array>

#include "base/error.h"

namespace apus {

namespace {

constexpr std::array<GgmlForm, 23> kForms{{{GgmlType::F32, "F32", 1, 4, true},
                                           {GgmlType::F16, "F16", 1, 2, true},
                                           {GgmlType::BF16, "BF16", 1, 2, true},
                                           {GgmlType::Q4_0, "Q4_0", 32, 18, true},
                                           {GgmlType::Q4_1, "Q4_1", 32, 20, true},
                                           {GgmlType::Q5_0, "Q5_0", 32, 22, true},
                                           {GgmlType::Q5_1, "Q5_1", 32, 24, true},
                                           {GgmlType::Q8_0, "Q8_0", 32, 34, true},
                                           {GgmlType::Q2_K, "Q2_K", 256, 84, false},
                                           {GgmlType::Q3_K, "Q3_K", 256, 110, false},
                                           {GgmlType::Q4_K, "Q4_K", 256, 144, true},
                                           {GgmlType::Q5_K, "Q5_K", 256, 176, true},
                                           {GgmlType::Q6_K, "Q6_K", 256, 210, true},
                                           {GgmlType::IQ2_XXS, "IQ2_XXS", 256, 66, false},
                                           {GgmlType::IQ2_XS, "IQ2_XS", 256, 74, false},
                                           {GgmlType::IQ2_S, "IQ2_S", 256, 82, false},
                                           {GgmlType::IQ3_XXS, "IQ3_XXS", 256, 98, false},
                                           {GgmlType::IQ3_S, "IQ3_S", 256, 110, false},
                                           {GgmlType::IQ1_S, "IQ1_S", 256, 50, false},
                                           {GgmlType::IQ1_M, "IQ1_M", 256, 56, false},
                                           {GgmlType::IQ4_XS, "IQ4_XS", 256, 136, true},
                                           {GgmlType::IQ4_NL, "IQ4_NL", 32, 18, true},
                                           {GgmlType::MXFP4, "MXFP4", 32, 17, true}}};

// Types that files may hold and that are not read.
struct OtherType {
  uint32_t type;
  const char* name;
};
constexpr std::array<OtherType, 11> kOthers{{{9, "Q8_1"},
                                             {15, "Q8_K"},
                                             {24, "I8"},
                                             {25, "I16"},
                                             {26, "I32"},
                                             {27, "I64"},
                                             {28, "F64"},
                                             {34, "TQ1_0"},
                                             {35, "TQ2_0"},
                                             {40, "NVFP4"},
                                             {4, "Q4_2"}}};

}  // namespace

const GgmlForm* find_ggml_form(uint32_t type) {
  for (const GgmlForm& form : kForms)
    if (static_cast<uint32_t>(form.type) == type) return &form;
  return nullptr;
}

const GgmlForm& ggml_form(GgmlType type) {
  const GgmlForm* form = find_ggml_form(static_cast<uint32_t>(type));
  require(form != nullptr, Fault::Bug, "no form for the ggml type ", static_cast<uint32_t>(type));
  return *form;
}

std::string ggml_type_name(uint32_t type) {
  if (const GgmlForm* form = find_ggml_form(type)) return form->name;
  for (const OtherType& other : kOthers)
    if (other.type == type) return other.name;
  return str("number ", type);
}

std::string readable_ggml_types() {
  std::string out;
  for (const GgmlForm& form : kForms) out += str(out.empty() ? "" : ", ", form.name);
  return out;
}

}  // namespace apus
