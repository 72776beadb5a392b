// SPDX-License-Identifier: Apache-2.0
// Any value in the form that an autograd function can keep for its backward pass.
#pragma once

#include <ATen/core/ivalue.h>

#include <utility>

namespace apus {

template <class T>
struct Capsule : torch::CustomClassHolder {
  explicit Capsule(T value) : held(std::move(value)) {}
  T held;
};

template <class T>
c10::IValue encapsulated(T value) {
  return c10::IValue::make_capsule(c10::make_intrusive<Capsule<T>>(std::move(value)));
}

// T must be the type that it was made with.
template <class T>
T& held(const c10::IValue& capsule) {
  return c10::static_intrusive_pointer_cast<Capsule<T>>(capsule.toCapsule())->held;
}

}  // namespace apus
