// SPDX-License-Identifier: Apache-2.0
// Shapes: C channels, T time.
#include "models/speech/wave_maker.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/kaiser_window.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/sinc.h>

#include <numbers>

#include "base/error.h"
#include "models/speech/sound_parts.h"

namespace apus {

namespace {
// A snake bends time twice as fine, so that it makes no frequencies that fold back: by this filter time is made finer,
// and coarse again.
constexpr int64_t kFiner = 2, kTaps = 12;

// A low pass at half the rate: a sinc in a Kaiser window, whose sum is 1 -> [1, 1, taps].
at::Tensor low_pass() {
  const double cutoff = 0.5 / kFiner, band = 4 * 0.6 / kFiner;
  const double attenuation = 2.285 * (kTaps / 2 - 1) * std::numbers::pi * band + 7.95;
  const double beta = 0.1102 * (attenuation - 8.7);  // as Kaiser gave it for more than 50 dB
  const at::Tensor time = at::arange(-kTaps / 2, kTaps / 2, at::kFloat) + 0.5;
  const at::Tensor taps =
      2 * cutoff * at::kaiser_window(kTaps, /*periodic=*/false, beta, at::kFloat) * at::sinc(2 * cutoff * time);
  return (taps / taps.sum()).view({1, 1, kTaps});
}

class Waves {
 public:
  Waves(const WaveSpec& spec, const TowerParts& parts) : spec_(spec), parts_(parts), low_pass_(low_pass()) {}

  // Time keeps its length.
  at::Tensor convolved(const at::Tensor& x_1CT, const std::string& name, int64_t dilation = 1) const {
    const Table& by = parts_.table(spec_.name + name);
    const int64_t before = (by.weight().size(2) - 1) * dilation / 2;
    return at::conv1d(x_1CT, by.weight(), by.bias(), /*stride=*/at::IntArrayRef{1}, at::IntArrayRef{before}, dilation);
  }

  at::Tensor stretched(const at::Tensor& x_1CT, const std::string& name, int64_t by) const {
    const at::Tensor& kernel = parts_.table(spec_.name + name).weight();
    return at::conv_transpose1d(x_1CT, kernel, parts_.bare(spec_.name + name + ".bias").data, by,
                                (kernel.size(2) - by) / 2);
  }

  // In time twice as fine.
  at::Tensor bent(const at::Tensor& x_1CT, const std::string& name) const {
    const auto of = [&](const char* which) -> const at::Tensor& { return parts_.bare(spec_.name + name + which).data; };
    return coarser(snake(finer(x_1CT), of(".act.alpha"), of(".act.beta")));
  }

  at::Tensor through_net(const at::Tensor& x_1CT, const std::string& name,
                         const std::vector<int64_t>& dilations) const {
    at::Tensor x = x_1CT;
    for (size_t i = 0; i < dilations.size(); ++i) {
      const at::Tensor far =
          convolved(bent(x, str(name, ".activations.", 2 * i)), str(name, ".convs1.", i), dilations[i]);
      x = x + convolved(bent(far, str(name, ".activations.", 2 * i + 1)), str(name, ".convs2.", i));
    }
    return x;
  }

 private:
  at::Tensor finer(const at::Tensor& x_1CT) const {
    const int64_t channels = x_1CT.size(1), more = kTaps / kFiner - 1;
    const at::Tensor y =
        kFiner * at::conv_transpose1d(at::replication_pad1d(x_1CT, {more, more}),
                                      low_pass_.expand({channels, 1, kTaps}), {}, kFiner, 0, 0, channels);
    const int64_t cut = more * kFiner + (kTaps - kFiner) / 2;
    return y.narrow(2, cut, y.size(2) - 2 * cut);
  }
  at::Tensor coarser(const at::Tensor& x_1CT) const {
    const int64_t channels = x_1CT.size(1);
    return at::conv1d(at::replication_pad1d(x_1CT, {kTaps / 2 - 1, kTaps / 2}), low_pass_.expand({channels, 1, kTaps}),
                      {}, /*stride=*/at::IntArrayRef{kFiner}, /*padding=*/at::IntArrayRef{0}, 1, channels);
  }

  const WaveSpec& spec_;
  const TowerParts& parts_;
  const at::Tensor low_pass_;
};

// Logarithms of amplitudes as decibels, from -115 to 0 between -1 and 1.
at::Tensor in_decibels(const at::Tensor& mel_TM) {
  const double least = -115, reference = 20;
  const double per_nat = 20 / std::numbers::ln10;
  const at::Tensor decibels = (mel_TM * per_nat).clamp_min(least) - reference;
  return (2 * (decibels - least) / -least - 1).clamp(-1, 1);
}
}  // namespace

at::Tensor wave_of(const WaveSpec& spec, const TowerParts& parts, const at::Tensor& mel_TM) {
  const Waves waves(spec, parts);
  at::Tensor x = waves.convolved(in_decibels(mel_TM).t().unsqueeze(0), ".conv_pre");
  const size_t nets = spec.dilations.size();
  for (size_t i = 0; i < spec.rates.size(); ++i) {
    x = waves.stretched(x, str(".ups.", i, ".0"), spec.rates[i]);
    at::Tensor sum;
    for (size_t j = 0; j < nets; ++j) {
      const at::Tensor y = waves.through_net(x, str(".resblocks.", i * nets + j), spec.dilations[j]);
      sum = sum.defined() ? sum + y : y;
    }
    x = sum / static_cast<double>(nets);
  }
  return waves.convolved(waves.bent(x, ".activation_post"), ".conv_post").flatten().clamp(-1, 1);
}

}  // namespace apus
