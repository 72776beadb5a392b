// SPDX-License-Identifier: Apache-2.0
// Linear layers, and what adapters change.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "nn/memo.h"
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
  // -> new y. With a memo the new y is remembered by who asks for it, and what else is dear here goes into the memo;
  // the second time y is the new one already.
  virtual at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                           Memo* memo = nullptr) const = 0;
  // Whether the new y is y with something added in place, so that nobody needs the old one. Only then there is a memo.
  virtual bool only_adds() const { return false; }
  // Of an embedding: how many words it brings that stand before every text (base/prompt_words.h).
  virtual int64_t prompt_words() const { return 0; }
  // In apply(), when nothing is dropped.
  virtual bool looks_at_weight() const { return true; }
  // The weight with the change, f32.
  virtual at::Tensor merged(const at::Tensor& weight) const = 0;
  // The change as one more product of low rank: y + x_more w_more'. For products that are never made whole.
  virtual std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const = 0;
};

// A layer with one weight matrix that adapters may change: a linear layer, a matrix of an expert, an embedding.
class Adaptable : public Module {
 public:
  struct Sides {
    int64_t in, out;
    // An embedding: its weight is [in, out], x are row numbers.
    bool looks_up = false;
  };
  virtual Sides sides() const = 0;
  virtual Param& weight() = 0;
  virtual Param* bias() { return nullptr; }
  // Of its own: writable, no longer a mapped file's.
  virtual void put_weight(const at::Tensor& value);

  // Appended; "default" is the usual name.
  void attach(const std::string& adapter, std::unique_ptr<Delta> delta);
  void detach(const std::string& adapter);
  const std::map<std::string, Delta*>& adapters() const { return adapters_; }

 protected:
  at::Tensor with_adapters(const at::Tensor& x, at::Tensor y_TO, const at::Tensor& weight, const Step& s,
                           Memo* memo = nullptr) const;
  std::map<std::string, Delta*> adapters_;
};

// The one linear layer. Adapters attach to it; one class serves every split over devices.
class Linear : public Adaptable {
 public:
  struct Spec {
    int64_t in, out;
    bool bias = false;
    Split split = Split::None;
    Cut cut = {Axis::Tp, 0};  // of the split side: its groups; the dimension follows from `split`
  };
  explicit Linear(Spec spec);
  // Its weight is the piece-th [out, in] of a stacked parameter.
  Linear(Spec spec, Param& stacked, int64_t piece);

  at::Tensor operator()(const at::Tensor& x_TI, const Step& s) const;
  // The same in f32, not rounded to the type of x, where the weight is at hand as it is: of a head.
  at::Tensor wide(const at::Tensor& x_TI, const Step& s) const;
  // What its result is to the module around it, which decides whether a second run wants it remembered.
  void result_is(ResultKind kind) { result_ = kind; }
  // The module around it reads the weight itself, in inference too: it is not packed.
  void stays_plain() { stays_plain_ = true; }
  // It multiplies in its own type, also where training multiplies FP8 numbers.
  void keeps_type() { keeps_type_ = true; }
  // What y is a product of, for losses that make it in parts: with the adapters of each row, as the step routes them.
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
  // x w' + b of the plain weight; `known`: the result, from an earlier run.
  at::Tensor product(const at::Tensor& x_TI, const at::Tensor& bias, const Step& s, const at::Tensor& known = {}) const;
  at::Tensor remembering(const at::Tensor& x_TI, const Step& s, Memo& memo) const;
  void release_plain();

  Spec spec_;
  ResultKind result_ = ResultKind::Product;
  Param* stacked_ = nullptr;  // of which piece_ is the weight
  int64_t piece_ = 0;
  std::unique_ptr<Param> view_;  // then the weight as a view
  Param& weight_;
  Param* bias_ = nullptr;
  at::Tensor packed_;
  bool grouped_ = false;  // a LinearGroup multiplies for it
  bool stays_plain_ = false, keeps_type_ = false;
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
