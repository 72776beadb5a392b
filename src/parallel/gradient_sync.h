// SPDX-License-Identifier: Apache-2.0
// How the gradients of several ranks become one sum, and what of it a rank gets: all of it, or its slice.
#pragma once

#include <optional>

namespace apus {

class GradientSync {
 public:
  GradientSync() = default;
  virtual ~GradientSync() = default;
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Before and after the backward pass of a micro-batch, `last`: of an update. After the last one every gradient that
  // the optimizer looks at is the sum over all ranks; a parameter that no rank used has none, as if one process had
  // seen all data.
  virtual void begin(bool last = true) = 0;
  virtual void finish(bool last = true) = 0;
  // Whether all ranks must go through the same number of these pairs. A rank that has no micro-batch left calls both
  // around nothing.
  virtual bool in_step() const { return false; }
  // Whether parameters are gathered in every forward and backward pass, so that all ranks must make the same passes.
  virtual bool passes_in_step() const { return false; }

  // Whether each rank holds a slice of the gradients and of the optimizer's state, not all of them.
  virtual bool sliced() const { return false; }
  // Which one, where some ranks hold the same slice: of so many; the first of those that hold it writes the state.
  struct Slice {
    int number = 0, of = 1;
    bool first = true;
  };
  virtual std::optional<Slice> slice() const { return std::nullopt; }
  // The squares of this rank's gradients become those of all.
  virtual double of_all(double squares) { return squares; }
  // After the optimizer's step: every rank learns what the others changed.
  virtual void updated() {}
  // No forward or backward pass runs for now: each parameter may be reduced to what this rank holds of it.
  virtual void rest() {}
};

}  // namespace apus
