// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "models/spec/config.h"
#include "models/spec/manner_spec.h"

namespace apus {

MannerSpec read_manner(const Config& c, const std::string& name, int64_t bands, const MannerDefaults& unsaid) {
  MannerSpec m{.name = name, .dilations = c.integers("enc_dilations", {1, 2, 3, 4, 1}), .parts = {}};
  const auto channels = c.integers("enc_channels", unsaid.channels),
             reaches = c.integers("enc_kernel_sizes", {5, 3, 3, 3, 1});
  m.divided = c.integer("enc_res2net_scale", unsaid.divided), m.found = c.integer("enc_dim", unsaid.found);
  const int64_t wide = channels.empty() ? 0 : channels.back(), squeezed = c.integer("enc_se_channels", unsaid.squeezed),
                asking = c.integer("enc_attention_channels", unsaid.asking);
  const auto divisible = [&](int64_t n) { return n > 0 && n % m.divided == 0; };
  require(channels.size() >= 3 && reaches.size() == channels.size() && m.dilations.size() == channels.size() &&
              m.divided > 0 && std::all_of(channels.begin(), channels.end(), divisible),
          Fault::Model,
          "config.json: enc_channels, enc_kernel_sizes and enc_dilations are to be three or more each, as ",
          "many of one as of the others, and channels divisible by enc_res2net_scale");
  const auto convolution = [&](const std::string& part, int64_t in, int64_t out, int64_t reach) {
    m.parts.push_back({TowerPart::Kind::Table, str(name, ".", part), {out, in, reach}, /*bias=*/true});
  };
  convolution("blocks.0.conv", bands, channels[0], reaches[0]);
  for (size_t i = 1; i + 1 < channels.size(); ++i) {
    const std::string block = str("blocks.", i, ".");
    const int64_t out = channels[i], part = out / m.divided;
    convolution(block + "tdnn1.conv", channels[i - 1], out, 1);
    for (int64_t j = 0; j + 1 < m.divided; ++j)
      convolution(str(block, "res2net_block.blocks.", j, ".conv"), part, part, reaches[i]);
    convolution(block + "tdnn2.conv", out, out, 1);
    convolution(block + "se_block.conv1", out, squeezed, 1), convolution(block + "se_block.conv2", squeezed, out, 1);
  }
  convolution("mfa.conv", wide, wide, reaches.back());
  convolution("asp.tdnn.conv", 3 * wide, asking, 1), convolution("asp.conv", asking, wide, 1);
  convolution("fc", 2 * wide, m.found, 1);
  return m;
}

}  // namespace apus
