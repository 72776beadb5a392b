// SPDX-License-Identifier: Apache-2.0
#include "nn/distance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace apus {

at::Tensor distance_classes(int64_t length, at::Device device) {
  constexpr int64_t kHalf = kDistanceClasses / 2, kExact = kHalf / 2, kFarthest = 128;
  const at::Tensor place_L = at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  const at::Tensor behind_LL = place_L.unsqueeze(0) - place_L.unsqueeze(1), far_LL = behind_LL.abs();
  const double stretch = std::log(static_cast<double>(kFarthest) / kExact);
  const at::Tensor by_log_LL =
      ((far_LL.to(at::kFloat) / kExact).log() / stretch * (kHalf - kExact)).clamp(0, kHalf).to(at::kLong) + kExact;
  return (behind_LL > 0).to(at::kLong) * kHalf + at::where(far_LL < kExact, far_LL, by_log_LL.clamp_max(kHalf - 1));
}

at::Tensor attention_by_distance(const at::Tensor& q_TNH, const at::Tensor& k_TNH, const at::Tensor& v_TNH,
                                 double scale, const Step& s) {
  std::vector<at::Tensor> out;
  int64_t begin = 0;
  for (const int32_t length : s.length_q) {
    const auto heads = [&](const at::Tensor& x) { return x.narrow(0, begin, length).transpose(0, 1); };
    const at::Tensor class_P = distance_classes(length, q_TNH.device()).flatten();
    const at::Tensor added_NLL = s.distance_BN.index_select(0, class_P).view({length, length, -1}).permute({2, 0, 1});
    const at::Tensor score_NLL = at::matmul(heads(q_TNH), heads(k_TNH).transpose(1, 2)) * scale + added_NLL;
    out.push_back(at::matmul(at::softmax(score_NLL, -1), heads(v_TNH)).transpose(0, 1));
    begin += length;
  }
  return at::cat(out);
}

}  // namespace apus
