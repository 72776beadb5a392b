// SPDX-License-Identifier: Apache-2.0
// A hidden state of several streams side by side. What they are behind a layer is foretold of all of them; one goes
// through the layer, and by how much it differs then corrects the others. Shapes: T tokens, S streams, D hidden,
// W = S * D.
#pragma once

#include <vector>

#include "nn/altup_form.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace apus {

// Of one layer.
class AltUp : public Module {
 public:
  AltUp(const AltUpForm& form, int64_t hidden, NormSpec norm);
  at::Tensor foretold(const at::Tensor& streams_TW, const Step& s) const;  // [T, S, D]
  // `made`: what the layer made of the active stream.
  at::Tensor corrected(const at::Tensor& foretold_TSD, const at::Tensor& made_TD, const Step& s) const;  // [T, S, D]
  // The active stream as it opens what the layer is given.
  at::Tensor opening(const at::Tensor& corrected_TSD) const;
  // The same streams with one more addend in all but the first, side by side: [T, W].
  static at::Tensor with_added(const at::Tensor& corrected_TSD, const at::Tensor& added_TD);
  const AltUpForm& form() const { return form_; }

 private:
  at::Tensor kinds(const at::Tensor& x_TD, const Step& s) const;
  const AltUpForm form_;
  const double narrowed_;
  Param& scale_;
  Linear &correction_, &prediction_, &router_;
  Norm& norm_;
};

// x and a change of it through a narrow matrix and back.
class NarrowPath : public Module {
 public:
  NarrowPath(int64_t hidden, int64_t rank, NormSpec norm);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const;

 private:
  Linear &left_, &right_;
  Norm& norm_;
};

// A matrix that no adapter changes.
class PlainMatrix : public Module {
 public:
  PlainMatrix(int64_t in, int64_t out) : weight_(param("weight", {out, in})) {}
  at::Tensor operator()(const at::Tensor& x_TD) const;

 private:
  Param& weight_;
};

// Streams of an embedding: itself, and a product with each matrix, of its size. And the mean of streams behind the
// last layer: the first, and of each other a product of the first one's size.
at::Tensor streams_of(const at::Tensor& x_TD, const std::vector<Linear*>& matrices, const Step& s);  // [T, W]
at::Tensor one_of(const at::Tensor& streams_TW, const std::vector<PlainMatrix*>& matrices);

}  // namespace apus
