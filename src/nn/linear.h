// SPDX-License-Identifier: Apache-2.0
// Linear layers, and what adapters change.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "nn/module.h"
#include "nn/step.h"

namespace apus {

namespace ops {
struct HeadFactors;  // ops/ops.h
}

enum class Split { None, Out, In };  // the side tensor parallelism cuts

// A change of a weight matrix: LoRA, DoRA, ... Its parameters carry PEFT's names (lora_A.weight, ...).
class Delta : public Module {
 public:
  virtual at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight,
                           const Step& s) const = 0;  // -> new y
  // Whether the new y is y with something added, where nobody needs the old one.
  virtual bool only_adds() const { return false; }
  virtual bool looks_at_weight() const { return true; }           // in apply(), when nothing is dropped
  virtual at::Tensor merged(const at::Tensor& weight) const = 0;  // the weight with the change, f32
  // The change as one more product of low rank: y + x_more w_more'. For products that are never made whole.
  virtual std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const = 0;
};

// A layer with one weight matrix that adapters may change: a linear layer, a matrix of an expert, an embedding.
class Adaptable : public Module {
 public:
  struct Sides {
    int64_t in, out;
    bool looks_up = false;  // an embedding: its weight is [in, out], x are row numbers
  };
  virtual Sides sides() const = 0;
  virtual Param& weight() = 0;
  virtual Param* bias() { return nullptr; }
  virtual void put_weight(const at::Tensor& value);  // of its own: writable, no longer a mapped file's

  void attach(const std::string& adapter, std::unique_ptr<Delta> delta);  // appended; "default" is the usual name
  void detach(const std::string& adapter);
  const std::map<std::string, Delta*>& adapters() const { return adapters_; }

 protected:
  at::Tensor with_adapters(const at::Tensor& x, at::Tensor y_TO, const at::Tensor& weight, const Step& s) const;
  std::map<std::string, Delta*> adapters_;
};

// The one linear layer. Adapters attach to it; one class serves every split over devices.
class Linear : public Adaptable {
 public:
  struct Spec {
    int64_t in, out;
    bool bias = false;
    Split split = Split::None;
  };
  explicit Linear(Spec spec);
  Linear(Spec spec, Param& stacked, int64_t piece);  // its weight is the piece-th [out, in] of a stacked parameter

  // unread: nothing looks at the result's values when this runs a second time.
  at::Tensor operator()(const at::Tensor& x_TI, const Step& s, bool unread = false) const;
  // What y is a product of, adapters included, for losses that make it in parts.
  ops::HeadFactors factors(const at::Tensor& x_TI, const Step& s) const;
  const Spec& spec() const { return spec_; }
  Sides sides() const override { return {spec_.in, spec_.out}; }
  Param& weight() override;
  Param* bias() override { return bias_; }
  void put_weight(const at::Tensor& value) override;

  // Packs the weight for the device (undefined when that gains nothing), and lets go of the plain one.
  void prepare_inference() override;

 private:
  friend class LinearGroup;
  const at::Tensor& matrix() const;
  at::Tensor keeping(const at::Tensor& x_TI, const Step& s, Kept& kept, bool unread) const;
  void release_plain();

  Spec spec_;
  Param* stacked_ = nullptr;  // of which piece_ is the weight
  int64_t piece_ = 0;
  std::unique_ptr<Param> view_;  // then the weight as a view
  Param& weight_;
  Param* bias_ = nullptr;
  at::Tensor packed_;
  bool grouped_ = false;  // a LinearGroup multiplies for it
};

// Several linear layers of one input (q, k, v; gate, up): one multiplication in inference, several in training, so that
// each keeps its own weight, gradient and adapters.
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
