// SPDX-License-Identifier: Apache-2.0
#include "ops/steady_rows.h"

namespace apus::ops {

namespace {
bool& of_this_thread() {
  thread_local bool steady = false;
  return steady;
}
}  // namespace

SteadyRows::SteadyRows(bool wanted) : before_(of_this_thread()) { of_this_thread() = wanted; }
SteadyRows::~SteadyRows() { of_this_thread() = before_; }

bool steady_rows() { return of_this_thread(); }

}  // namespace apus::ops
