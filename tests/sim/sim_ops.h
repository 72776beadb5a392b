// SPDX-License-Identifier: Apache-2.0
// How the simulated vendor operators are written: boxed kernels on host tensors that read their arguments by name, so
// that the vendor's exact schemas (with dozens of arguments) need no typed functions.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace sim {

class Args {
 public:
  Args(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : schema_(op.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()) {}
  const c10::IValue& operator[](const std::string& name) const {
    for (size_t i = 0; i < schema_.arguments().size(); ++i)
      if (schema_.arguments()[i].name() == name) return stack_[first_ + i];
    TORCH_CHECK(false, "simulated operator ", schema_.name(), " reads an argument it has not: ", name);
  }
  at::Tensor tensor(const std::string& name) const { return (*this)[name].toTensor(); }
  bool given(const std::string& name) const { return !(*this)[name].isNone() && tensor(name).defined(); }
  int64_t integer(const std::string& name) const { return (*this)[name].toInt(); }
  double number(const std::string& name) const { return (*this)[name].toScalar().toDouble(); }
  std::vector<int64_t> list(const std::string& name) const { return (*this)[name].toIntVector(); }
  void results(std::vector<c10::IValue> values) {
    stack_.resize(first_);
    for (auto& v : values) stack_.push_back(std::move(v));
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  size_t first_;
};

// The vendor's own words for a parameter it refuses.
#define SIM_REFUSE(condition, ...) TORCH_CHECK(condition, "[ERROR] ERR01001 OPS invalid parameter: ", __VA_ARGS__)

using Kernel = void (*)(Args&);
struct Operator {
  const char* schema;  // without the namespace
  Kernel kernel;
  const char* function = nullptr;  // of libopapi.so; none: it is compiled when it is called
};
// Every operator is registered on every chip; a call fails on chips, and over libraries, that do not have it.
void check_offered(const Operator& op);
std::vector<Operator> attention_operators();
std::vector<Operator> other_operators();

}  // namespace sim
