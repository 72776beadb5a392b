// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/offered.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/nearest.h"
#include "devices/ascend/acl.h"
#include "devices/ascend/libraries.h"

namespace apus::ascend {

namespace {

// The functions of the operator library that torch_npu calls for an operator; of several, which one depends on its
// version, and any will do.
const std::map<std::string, std::vector<std::string>>& functions_of_operators() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"npu::npu_rms_norm", {"aclnnRmsNorm"}},
      {"npu::npu_rms_norm_backward", {"aclnnRmsNormGrad"}},
      {"npu::npu_add_rms_norm", {"aclnnAddRmsNorm"}},
      {"npu::npu_rotary_mul", {"aclnnRotaryPositionEmbedding"}},
      {"npu::npu_swiglu", {"aclnnSwiGlu"}},
      {"npu::npu_swiglu_backward", {"aclnnSwiGluGrad"}},
      {"npu::npu_fusion_attention", {"aclnnFlashAttentionVarLenScore", "aclnnFlashAttentionVarLenScoreV2"}},
      {"npu::npu_fusion_attention_grad",
       {"aclnnFlashAttentionUnpaddingScoreGrad", "aclnnFlashAttentionUnpaddingScoreGradV2"}},
      {"npu::npu_fused_infer_attention_score",
       {"aclnnFusedInferAttentionScoreV2", "aclnnFusedInferAttentionScoreV3", "aclnnFusedInferAttentionScoreV4",
        "aclnnFusedInferAttentionScoreV5"}},
      {"npu::npu_moe_gating_top_k_softmax", {"aclnnMoeGatingTopKSoftmax"}},
      {"npu::npu_moe_token_permute", {"aclnnMoeTokenPermute"}},
      {"npu::npu_moe_token_permute_grad", {"aclnnMoeTokenPermuteGrad"}},
      {"npu::npu_moe_token_unpermute", {"aclnnMoeTokenUnpermute"}},
      {"npu::npu_moe_token_unpermute_grad", {"aclnnMoeTokenUnpermuteGrad"}},
      // A list of groups on the device came with V4.
      {"npu::npu_grouped_matmul", {"aclnnGroupedMatmulV4", "aclnnGroupedMatmulV5"}},
      {"npu::npu_weight_quant_batchmatmul", {"aclnnWeightQuantBatchMatmulV2"}},
      {"npu::npu_dynamic_quant", {"aclnnDynamicQuant", "aclnnDynamicQuantV2"}},
      {"npu::npu_quant_matmul", {"aclnnQuantMatmulV4", "aclnnQuantMatmulV5"}},
      {"npu::npu_apply_adam_w.out", {}},  // compiled when it is first called; nothing of the library
      {"aten::_fused_adamw_", {"aclnnApplyAdamWV2"}},
  };
  return all;
}

// One library up to CANN 8.3, later one a family of operators.
const std::vector<void*>& operator_libraries() {
  static const std::vector<void*> opened = [] {
    std::vector<void*> out;
    std::string why_not;
    for (const char* file : {"libopapi.so", "libopapi_transformer.so", "libopapi_nn.so", "libopapi_math.so"})
      if (void* library = open_library(file, &why_not)) out.push_back(library);
    return out;
  }();
  return opened;
}

bool in_libraries(const std::string& function) {
  void* found = nullptr;
  for (void* library : operator_libraries())
    if (look_up(library, function.c_str(), found)) return true;
  return false;
}

}  // namespace

std::string soc_name() {
  const Acl* runtime = acl(nullptr);
  const char* name = runtime && runtime->soc_name ? runtime->soc_name() : nullptr;
  return name ? name : "";
}

bool is_newer_chip(const std::string& soc_name) {
  const std::vector<std::string> families{"910B", "910_93", "910_95", "950"};
  return std::any_of(families.begin(), families.end(),
                     [&](const std::string& family) { return soc_name.find(family) != std::string::npos; });
}

std::string cann_version() {
  const Acl* runtime = acl(nullptr);
  if (!runtime) return "";
  constexpr int kWholeOfCann = 0;
  CannVersion version{};
  if (runtime->cann_version && runtime->cann_version(kWholeOfCann, &version) == 0) {
    version.text[sizeof version.text - 1] = 0;
    return version.text;
  }
  char package[] = "runtime", text[128] = {};  // the function that takes the former one's place from 9.0 on
  if (runtime->package_version && runtime->package_version(package, text) == 0) return text;
  return "";
}

bool version_at_least(const std::string& version, int major, int minor) {
  int first = 0, second = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &first, &second) != 2) return false;
  return first > major || (first == major && second >= minor);
}

std::string lacking(const std::string& vendor_operator, const std::string& soc_name) {
  const auto needed = functions_of_operators().find(vendor_operator);
  require(needed != functions_of_operators().end(), Fault::Bug, vendor_operator,
          " is called, and nobody has said which function of the operator library is behind it");
  if (!is_newer_chip(soc_name)) return str(soc_name.empty() ? "this chip" : soc_name, " does not compute it");
  const std::vector<std::string>& any = needed->second;
  if (any.empty() || std::any_of(any.begin(), any.end(), in_libraries)) return "";
  return operator_libraries().empty() ? "libopapi.so does not load" : str("libopapi.so has no ", join(any, " or "));
}

}  // namespace apus::ascend
