// SPDX-License-Identifier: Apache-2.0
// Whether a token's numbers are the same bits however many tokens are computed with it. Products of f32 are so anyway;
// those of bf16 cost more then, and are so while a thread asks for it: engine and trainer of a run that compares them.
#pragma once

namespace apus::ops {

class SteadyRows {
 public:
  explicit SteadyRows(bool wanted);
  ~SteadyRows();
  SteadyRows(const SteadyRows&) = delete;
  SteadyRows& operator=(const SteadyRows&) = delete;

 private:
  bool before_;
};

// Of this thread.
bool steady_rows();

}  // namespace apus::ops
