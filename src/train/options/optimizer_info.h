// SPDX-License-Identifier: Apache-2.0
// What is known of an optimizer without the tensor library: for --optim and its help, for the plan, and for what goes
// together. Each says it in a file of optimizers/ beside this one; its update is the file of the same name in
// train/optimizers/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/registry.h"

namespace apus {

using OptimizerArguments = std::map<std::string, std::string>;

struct OptimizerInfo {
  std::string summary;
  // What other programs call it.
  std::vector<std::string> names = {};
  // The flag that chooses it.
  std::string flag = "optim";
  // Bytes kept of a trained weight, beside the f32 copy of a narrow one: of a matrix, of anything else; and further
  // ones where --optim_args asks for momentum or beta1.
  double of_matrices = 8, of_others = 8, with_momentum = 0;
  // Where what is kept of a layer's matrix depends on its shape: bytes, of one of so many rows and columns.
  double (*of_shape)(int64_t rows, int64_t columns, const OptimizerArguments&) = nullptr;
  // f32 tensors that an update makes, of the size of the largest parameter. Fused: not even the gradient is widened.
  double temporaries = 1;
  bool fused = false;
  // Its moments are in 8 or 4 bits.
  bool narrow = false;
  // An update of a weight depends on the others of its matrix.
  bool whole_matrices = false;
  // Its moments are of gradients in fewer dimensions: of matrices that are trained whole.
  bool fewer_dimensions = false;
  // Trains the weights at one place and means another, an average over the run, where they are evaluated and saved.
  bool averages = false;
  // It is told before each update how large attention's logits may have become (nn/largest_logit.h).
  bool watches_logits = false;
};

struct RegisterOptimizerInfo {
  RegisterOptimizerInfo(const char* name, OptimizerInfo info) {
    Registry<OptimizerInfo>::of().add(name, std::move(info));
  }
};

// The name under which it is registered, of a name that --optim or --optimizer may have; "": there is none such.
std::string optimizer_named(const std::string& name);
// By any of its names; Fault::Bug.
const OptimizerInfo& optimizer_info(const std::string& name);
// All that --optim may say.
std::vector<std::string> optimizer_names();
// "adafactor (...), adamw (...)": for the help of a flag.
std::string optimizers_text(const std::string& flag);
// The flag by which an optimizer is chosen that looks at whole matrices; "": each number is updated by itself.
std::string whole_matrices_flag(const std::string& name);
// That of one that averages; "": it means the weights that it trains.
std::string averaging_flag(const std::string& name);
// That of one that holds attention's logits down.
std::string watching_flag(const std::string& name);

OptimizerArguments parse_optim_args(const std::string& text);  // "a=1,b=2"; also JSON-free spaces
// One of them as a number, for the plan: what is no number is refused where the optimizer is made.
double optim_number(const OptimizerArguments& arguments, const char* key, double otherwise);

}  // namespace apus
