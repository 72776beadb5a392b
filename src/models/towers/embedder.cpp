// SPDX-License-Identifier: Apache-2.0
#include "models/towers/embedder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/where.h>

#include "ops/ops.h"

namespace apus {

Embedder::Embedder(const EmbedderForm& form, const TowerParts& parts)
    : form_(form),
      table_(parts.table(form.name + ".embedding")),
      of_word_(parts.norm(form.name + ".hard_embedding_norm")),
      of_row_(parts.norm(form.name + ".soft_embedding_norm")),
      projection_(parts.linear(form.name + ".embedding_projection")) {}

at::Tensor Embedder::projected(const at::Tensor& normed_MC, const Step& s) const {
  return rms_alone(projection_(normed_MC, s), form_.eps);
}
at::Tensor Embedder::of_rows(const at::Tensor& row_MC, const Step& s) const { return projected(of_row_(row_MC), s); }
at::Tensor Embedder::of_words(const at::Tensor& word_M, const Step& s) const {
  return projected(of_word_(ops::embedding(word_M, table_.weight())), s);
}

// Of all tokens: which are its own is known to the device alone.
at::Tensor Embedder::with_own(const at::Tensor& x_TD, const at::Tensor& id_T, const Step& s) const {
  const at::Tensor word_T = (id_T - form_.first).to(table_.weight().device());
  const at::Tensor own_T = (word_T >= 0).logical_and(word_T < form_.count);
  const at::Tensor made_TD = of_words(word_T.clamp(0, form_.count - 1), s).to(x_TD.device(), x_TD.scalar_type());
  return at::where(own_T.unsqueeze(1).to(x_TD.device()), made_TD, x_TD);
}

}  // namespace apus
