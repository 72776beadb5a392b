// SPDX-License-Identifier: Apache-2.0
// The one linear layer. Adapters attach to it; one class serves every split over devices.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nn/module.h"
#include "nn/step.h"

namespace apus {

enum class Split { None, Out, In };  // the side tensor parallelism cuts

// A change of a linear layer: LoRA, DoRA, ... Its parameters carry PEFT's names (lora_A.weight, ...).
class Delta : public Module {
 public:
  virtual at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s) const = 0;  // -> new y
  virtual at::Tensor merged(const at::Tensor& weight) const = 0;  // the weight with the change, f32
};

class Linear : public Module {
 public:
  struct Spec {
    int64_t in, out;
    bool bias = false;
    Split split = Split::None;
  };
  explicit Linear(Spec spec);

  at::Tensor operator()(const at::Tensor& x_TI, const Step& s) const;
  const Spec& spec() const { return spec_; }
  Param& weight() { return weight_; }
  const Param& weight() const { return weight_; }
  Param* bias() { return bias_; }

  void attach(const std::string& adapter, std::unique_ptr<Delta> delta);  // appended; "default" is the usual name
  void detach(const std::string& adapter);
  void enable_adapters(bool on) { adapters_on_ = on; }
  const std::map<std::string, Delta*>& adapters() const { return adapters_; }

  void prepare_inference() override;  // packs the weight for the device; the plain pages of a mapped file are given back

 private:
  Spec spec_;
  Param& weight_;
  Param* bias_ = nullptr;
  at::Tensor packed_;
  std::map<std::string, Delta*> adapters_;
  bool adapters_on_ = true;
};

}  // namespace apus
