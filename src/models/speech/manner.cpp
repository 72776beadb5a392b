// SPDX-License-Identifier: Apache-2.0
// Shapes: C channels, T time.
#include "models/speech/manner.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include "base/error.h"

namespace apus {

namespace {
constexpr double kLeastVariance = 1e-12;

class Finder {
 public:
  Finder(const MannerSpec& spec, const TowerParts& parts) : spec_(spec), parts_(parts) {}

  // The ends are mirrored, so that time keeps its length.
  at::Tensor convolved(const at::Tensor& x_1CT, const std::string& name, int64_t dilation = 1) const {
    const Table& by = parts_.table(spec_.name + name);
    const int64_t more = (by.weight().size(2) - 1) * dilation, before = more / 2;
    require(more < x_1CT.size(2), Fault::Model, "the sample of the voice is too short: ", x_1CT.size(2),
            " rows of mel, and a convolution reaches over ", more + 1);
    const at::Tensor padded = more > 0 ? at::reflection_pad1d(x_1CT, {before, more - before}) : x_1CT;
    return at::conv1d(padded, by.weight(), by.bias(), /*stride=*/at::IntArrayRef{1}, /*padding=*/at::IntArrayRef{0},
                      dilation);
  }
  at::Tensor layer(const at::Tensor& x_1CT, const std::string& name, int64_t dilation = 1) const {
    return at::relu(convolved(x_1CT, name + ".conv", dilation));
  }

  at::Tensor block(const at::Tensor& x_1CT, const std::string& name, int64_t dilation) const {
    const std::vector<at::Tensor> pieces = layer(x_1CT, name + ".tdnn1").chunk(spec_.divided, 1);
    std::vector<at::Tensor> parts = {pieces[0]};
    for (size_t i = 1; i < pieces.size(); ++i)
      parts.push_back(
          layer(i == 1 ? pieces[i] : pieces[i] + parts.back(), str(name, ".res2net_block.blocks.", i - 1), dilation));
    const at::Tensor y = layer(at::cat(parts, 1), name + ".tdnn2");
    const at::Tensor squeezed = at::relu(convolved(y.mean(2, /*keepdim=*/true), name + ".se_block.conv1"));
    return x_1CT + y * at::sigmoid(convolved(squeezed, name + ".se_block.conv2"));
  }

  // Mean and deviation over time, each moment with a weight, which sum to 1 -> [1, 2 C].
  static at::Tensor statistics(const at::Tensor& x_1CT, const at::Tensor& weight) {
    const at::Tensor mean = (weight * x_1CT).sum(2);
    const at::Tensor variance = (weight * (x_1CT - mean.unsqueeze(2)).square()).sum(2);
    return at::cat({mean, variance.clamp_min(kLeastVariance).sqrt()}, 1);
  }

  at::Tensor pooled(const at::Tensor& x_1CT) const {
    const int64_t time = x_1CT.size(2);
    const at::Tensor even = at::full({1, 1, time}, 1.0 / static_cast<double>(time), x_1CT.options());
    const at::Tensor told = at::cat({x_1CT, statistics(x_1CT, even).unsqueeze(2).expand({-1, -1, time})}, 1);
    const at::Tensor asked = convolved(at::tanh(layer(told, ".asp.tdnn")), ".asp.conv");
    return statistics(x_1CT, at::softmax(asked, 2)).unsqueeze(2);
  }

 private:
  const MannerSpec& spec_;
  const TowerParts& parts_;
};
}  // namespace

at::Tensor manner_of(const MannerSpec& spec, const TowerParts& parts, const at::Tensor& mel_TM) {
  const Finder find(spec, parts);
  at::Tensor x = find.layer(mel_TM.t().unsqueeze(0), ".blocks.0", spec.dilations[0]);
  std::vector<at::Tensor> all;
  for (size_t i = 1; i + 1 < spec.dilations.size(); ++i)
    all.push_back(x = find.block(x, str(".blocks.", i), spec.dilations[i]));
  x = find.layer(at::cat(all, 1), ".mfa", spec.dilations.back());
  return find.convolved(find.pooled(x), ".fc").flatten();
}

}  // namespace apus
