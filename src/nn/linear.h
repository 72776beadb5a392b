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
  virtual bool looks_at_weight() const { return true; }  // in apply(), when nothing is dropped
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

  // Packs the weight for the device (undefined when that gains nothing), and lets go of the plain one.
  void prepare_inference() override;

 private:
  friend class LinearGroup;
  void release_plain();
  at::Tensor with_adapters(const at::Tensor& x_TI, at::Tensor y_TO, const Step& s) const;

  Spec spec_;
  Param& weight_;
  Param* bias_ = nullptr;
  at::Tensor packed_;
  bool grouped_ = false;  // a LinearGroup multiplies for it
  std::map<std::string, Delta*> adapters_;
  bool adapters_on_ = true;
};

// Several linear layers of one input (q, k, v; gate, up): one multiplication in inference, several in training, so that each
// keeps its own weight, gradient and adapters.
class LinearGroup {
 public:
  explicit LinearGroup(std::vector<Linear*> members) : members_(std::move(members)) {}
  std::vector<at::Tensor> operator()(const at::Tensor& x_TI, const Step& s) const;
  void prepare_inference();

 private:
  std::vector<Linear*> members_;
  std::vector<int64_t> outs_;
  at::Tensor packed_, bias_;
  int64_t out_ = 0;
};

}  // namespace apus
