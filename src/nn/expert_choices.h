// SPDX-License-Identifier: Apache-2.0
// Which experts the tokens of a step meet in all mixtures of a model: written down while an engine answers, and met
// again by a trainer, whose routers then weigh these and choose none.
//
// Shapes: T tokens, k experts of a token in one mixture, W in all of them, one mixture behind the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

namespace apus {

class ExpertChoices {
 public:
  static constexpr int16_t kUnknown = -1;  // the router's own choice

  // Writes down. `width`: W.
  explicit ExpertChoices(int64_t width) : width_(width) {}
  void write(int64_t place, const at::Tensor& expert_Tk);
  // As another one wrote it, whose tokens are those of the rows.
  void write_rows(const ExpertChoices& other, const at::Tensor& row_T);
  at::Tensor written_TW() const;  // int16, on the host
  int64_t width() const { return width_; }

  // Tells: int16, kUnknown where nobody knows.
  explicit ExpertChoices(at::Tensor expert_TW);
  bool tells() const { return expert_TW_.defined(); }
  // Of the mixture whose numbers begin at `place`, int64.
  at::Tensor told_Tk(int64_t place, int64_t k, at::Device device) const;
  std::shared_ptr<const ExpertChoices> of_rows(const at::Tensor& row_U) const;

  // How often the routers themselves would have chosen others, of all that was told.
  void compare(const at::Tensor& own_Tk, const at::Tensor& told_Tk) const;
  struct Compared {
    at::Tensor others, all;  // scalars; undefined: nothing was told
  };
  const Compared& compared() const { return *compared_; }

 private:
  const int64_t width_;
  std::map<int64_t, at::Tensor> written_;  // by place
  at::Tensor expert_TW_;
  std::shared_ptr<Compared> compared_ = std::make_shared<Compared>();
};

}  // namespace apus
