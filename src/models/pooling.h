// SPDX-License-Identifier: Apache-2.0
// One vector or one row of numbers for a whole text, from the hidden states of its tokens.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace apus {

// The row of each sequence's last token, [S]; with pad >= 0 of the last one that is another token than that, as
// transformers' classifiers read a text. A sequence of nothing but pads: its last.
std::vector<int64_t> text_ends(const at::Tensor& id_T, const Step& s, int64_t pad = -1);

// The numbers that a scalar head gives for each sequence, f32 [S, labels].
at::Tensor text_scores(const Model& model, const at::Tensor& id_T, const at::Tensor& normed_TD, const Step& s);

// The same for each token, by a head that labels tokens: f32 [T, labels].
at::Tensor scores_of_tokens(const Model& model, const at::Tensor& normed_TD, const Step& s);

// Numbers of texts [S, N], or of their tokens [T, N], apart on the host.
// Of each text its own, one row behind the other.
std::vector<std::vector<float>> numbers_of_texts(const at::Tensor& numbers, const Step& s);

// The hidden state of each sequence's last token, [S, D].
at::Tensor last_states(const at::Tensor& normed_TD, const Step& s);

// By how much one token is likelier than another behind these states: the difference of their logits, f32 [S]. Those of
// other tokens are not computed.
at::Tensor token_lead(const Model& model, const at::Tensor& last_SD, const Step& s, int64_t token, int64_t other);

// One state of each sequence, [S, D]: a token's, or made of all in f32.
at::Tensor pooled(const at::Tensor& normed_TD, const Step& s, Pooling pooling);
// The same at length one, f32.
at::Tensor text_vectors(const at::Tensor& normed_TD, const Step& s, Pooling pooling);
at::Tensor at_length_one(const at::Tensor& x_SD);

}  // namespace apus
