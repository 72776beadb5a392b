// SPDX-License-Identifier: Apache-2.0
#include "models/spec/embedder_form.h"

#include "base/error.h"

namespace apus {

std::vector<TowerPart> parts_of(const EmbedderForm& form) {
  using Kind = TowerPart::Kind;
  const NormSpec norm{NormKind::Rms, form.eps};
  const auto own = [&](const char* part) { return form.name + "." + part; };
  return {{Kind::Table, own("embedding"), {form.count, form.width}, false, {}},
          {Kind::Norm, own("hard_embedding_norm"), {form.width}, false, norm},
          {Kind::Norm, own("soft_embedding_norm"), {form.width}, false, norm},
          {Kind::Linear, own("embedding_projection"), {form.out, form.width}, false, {}}};
}

EmbedderForm read_embedder(const Config& c, const std::string& name, int64_t first, int64_t width, int64_t out) {
  const EmbedderForm form{.name = name,
                          .first = c.integer("vocab_offset", first),
                          .count = c.integer("vocab_size", 128),
                          .width = c.integer("hidden_size", width),
                          .out = out,
                          .eps = c.number("rms_norm_eps", 1e-6)};
  require(form.first >= 0 && form.count > 0 && form.count <= 1 << 20 && form.width > 0 && form.width <= 1 << 20,
          Fault::Model, "config.json: vocab_offset ", form.first, ", vocab_size ", form.count, " and hidden_size ",
          form.width, " of what is seen or heard do not fit together");
  return form;
}

}  // namespace apus
