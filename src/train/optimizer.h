// SPDX-License-Identifier: Apache-2.0
// Optimizers. The base class owns the parameters, their groups and the state;
// a subclass is the update of one parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/registry.h"

namespace apus::ops {
struct AdamwStep;
}

namespace apus {

struct NamedParam {
  std::string name;
  at::Tensor tensor;  // its gradient is tensor.grad()
  // Of a slice of a parameter: how many elements of it come before.
  int64_t first = 0;
  bool elsewhere = false;  // another rank has all of it, and its state
};

struct ParamGroup {
  std::string name;
  double lr = 0, weight_decay = 0;
  std::vector<NamedParam> params;
};

// How a bf16 parameter takes updates smaller than its last bit. f32 parameters need none of this.
enum class Rounding {
  Master,  // an f32 copy is kept, the parameter is its rounding
  // No copy; rounded up or down in proportion, so that small updates count on average.
  Stochastic,
  Nearest,  // no copy; small updates are lost
};

struct OptimizerSpec {
  std::string kind = "adamw";  // by any of its names (train/options/optimizer_info.h)
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  Rounding rounding = Rounding::Master;
  std::map<std::string, std::string> arguments;  // --optim_args key=value,...
  // Of those with moments in fewer dimensions: parts of names of the matrices. Empty: all of the layers.
  std::vector<std::string> target_modules;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update of every parameter that has a gradient. The groups' learning rates are multiplied by lr_factor, the
  // gradients by grad_scale (clipping).
  void step(double lr_factor, double grad_scale);
  // The same one parameter at a time, in any order:
  // begin_step() counts the step, update_one(i) updates the i-th of size().
  void begin_step() { ++steps_; }
  void update_one(size_t i, double lr_factor, double grad_scale);
  size_t size() const { return slots_.size(); }
  const NamedParam& param(size_t i) const { return *slots_[i].param; }
  // Of one that means other weights than it trains: the parameters become what it means, for an evaluation or a
  // checkpoint, and again what it trains. state() and load() belong between the two where weights are saved or loaded.
  void show_meant();
  void show_trained();
  bool shows_meant() const { return shows_meant_; }
  void make_state();  // of all parameters, now instead of at their first update
  // A parameter that is not trained for a while: its state goes, and begins anew afterwards.
  void rest(size_t i, bool resting);
  // Of one that holds attention's logits down: before each update it is told how large they may have become.
  virtual bool watches_logits() const { return false; }
  virtual void hear_largest_logit(double /*largest*/) {}
  void zero_grad();
  std::vector<at::Tensor> gradients() const;
  const std::vector<ParamGroup>& groups() const { return groups_; }
  double lr(double lr_factor) const {
    return groups_.empty() ? 0 : groups_.front().lr * lr_factor;
  }  // what the log shows

  // The state as named tensors ("<parameter>/<what>"), for checkpoints. load() wants exactly these names and shapes and
  // throws Fault::Usage naming what differs.
  std::map<std::string, at::Tensor> state();
  void load(const std::map<std::string, at::Tensor>& saved, int64_t steps,
            const std::map<std::string, int64_t>& steps_of = {});
  int64_t steps() const { return steps_; }
  // Updates of the parameters that had fewer of them: an expert without a token in a step has no gradient in it.
  std::map<std::string, int64_t> steps_of() const;
  const std::string& kind() const { return kind_; }

 protected:
  struct Slot {
    const NamedParam* param = nullptr;
    const ParamGroup* group = nullptr;
    int64_t index = 0;                        // among all parameters
    int64_t steps = 0;                        // updates of this one
    bool resting = false;                     // has no state
    std::map<std::string, at::Tensor> state;  // created by init(), once
  };
  struct Update {
    double lr, weight_decay, grad_scale;
    int64_t step;  // of this parameter, from 1
  };
  Optimizer(std::string kind, std::vector<ParamGroup> groups, Rounding rounding);
  virtual void init(Slot& slot) const = 0;
  virtual void update(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u) const = 0;

  // What is meant by the values that are trained, f32; undefined: they themselves.
  virtual at::Tensor meant(const Slot& /*slot*/, const at::Tensor& /*trained*/) const { return {}; }

  bool keeps_master(const at::Tensor& param) const;
  static at::Tensor f32_zeros(const Slot& slot);  // of the parameter's shape
  // The moments of AdamW for numbers of this shape: f32, or of 8 bits with scales.
  static void begin_moments(Slot& slot, at::IntArrayRef shape, bool eight_bits);
  // One of them, by its name in the state: int8 codes for what has a sign, uint8 for squares.
  static void begin_moment(Slot& slot, const std::string& name, at::IntArrayRef shape, bool eight_bits,
                           at::ScalarType code = at::kChar);
  // Calls change(moment), f32 and of the parameter's shape, and keeps what it makes of it. `place` keeps the roundings
  // of a parameter's moments apart.
  static void change_moment(Slot& slot, const std::string& name, const Update& u, int64_t place,
                            const std::function<void(at::Tensor&)>& change);
  // AdamW's update of `param` by the moments that there are.
  static void moments_step(Slot& slot, at::Tensor& param, const at::Tensor& grad, at::Tensor& master,
                           const ops::AdamwStep& step);
  // One update by AdamW over the moments "exp_avg" and "exp_avg_sq", f32 or, with scales, of 8 bits,
  // in the fused operator.
  struct Decay {
    double beta1, beta2, eps;
  };
  void adamw(Slot& slot, at::Tensor param, const at::Tensor& grad, const Update& u, const Decay& decay) const;
  static int64_t dither_of(const Slot& slot, int64_t step);
  // Calls change(f32 parameter) and puts the result back by the rounding in force.
  void change_in_f32(Slot& slot, at::Tensor param, const Update& u,
                     const std::function<void(at::Tensor&)>& change) const;

  Rounding rounding_;

 private:
  Slot& ready(size_t i);
  std::string kind_;
  std::vector<ParamGroup> groups_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
  bool shows_meant_ = false;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, std::vector<ParamGroup> groups);

// A constant in the optimizer's file makes it known, under the name of its description:
// `const RegisterOptimizer<Sgd> sgd("sgd");`
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const OptimizerSpec&, std::vector<ParamGroup>)>;
template <class O>
struct RegisterOptimizer {
  explicit RegisterOptimizer(const char* name) {
    Registry<MakeOptimizer>::of().add(
        name, [](const OptimizerSpec& spec, std::vector<ParamGroup> groups) -> std::unique_ptr<Optimizer> {
          return std::make_unique<O>(spec, std::move(groups));
        });
  }
};

}  // namespace apus
