// SPDX-License-Identifier: Apache-2.0
// A libopapi.so without operators: what matters of it is which functions it has. APUS_SIM_OLD_OPAPI is that of an older
// CANN: no gradients of the permutation of tokens, no grouped products with their list on the device, none with
// quantised weights.
extern "C" {
int aclnnRmsNorm() { return 0; }
int aclnnRmsNormGrad() { return 0; }
int aclnnAddRmsNorm() { return 0; }
int aclnnRotaryPositionEmbedding() { return 0; }
int aclnnSwiGlu() { return 0; }
int aclnnSwiGluGrad() { return 0; }
int aclnnFlashAttentionVarLenScore() { return 0; }
int aclnnFlashAttentionUnpaddingScoreGrad() { return 0; }
int aclnnFusedInferAttentionScoreV2() { return 0; }
int aclnnMoeGatingTopKSoftmax() { return 0; }
int aclnnMoeTokenPermute() { return 0; }
int aclnnMoeTokenUnpermute() { return 0; }
int aclnnGroupedMatmulV2() { return 0; }
#ifndef APUS_SIM_OLD_OPAPI
int aclnnFusedInferAttentionScoreV3() { return 0; }
int aclnnMoeTokenPermuteGrad() { return 0; }
int aclnnMoeTokenUnpermuteGrad() { return 0; }
int aclnnGroupedMatmulV4() { return 0; }
int aclnnApplyAdamWV2() { return 0; }
int aclnnWeightQuantBatchMatmulV2() { return 0; }
int aclnnDynamicQuant() { return 0; }
int aclnnQuantMatmulV4() { return 0; }
#endif
}
