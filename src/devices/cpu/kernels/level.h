// SPDX-License-Identifier: Apache-2.0
// The table of inner loops for the including file's instruction set.
#pragma once

#include "devices/cpu/kernels/codes.h"
#include "devices/cpu/kernels/dots.h"
#include "devices/cpu/kernels/int8.h"
#include "devices/cpu/kernels/moments.h"
#include "devices/cpu/kernels/multiply.h"
#include "devices/cpu/kernels/outer.h"
#include "devices/cpu/kernels/rows.h"
#include "devices/cpu/kernels/softmax.h"
#include "devices/cpu/kernels/state.h"

namespace apus::cpu {
namespace {

template <class E>
constexpr RowKernels<E> row_table() {
  using Way = std::conditional_t<sizeof(E) == 4, F32, Widened>;
  return {multiply<E>,
          dots<Way>,
          pack_columns<E>,
          pack_rows<E>,
          finish<E>,
          widen<E>,
          narrow<E>,
          softmax_block<E>,
          softmax_gradient<E>,
          rms_norm<E>,
          rms_norm_gradient<E>,
          swiglu<E>,
          swiglu_gradient<E>,
          rope<E>,
          sum_of_squares<E>,
          logit_gradient<E>,
          panel_widener<E>(),
          add_outer<E>,
          outer_sums<E>};
}

constexpr Kernels kTable{
    row_table<bf16>(),    row_table<float>(), row_statistics, tanh_of,       adamw,        adamw_moments,
    narrow_by_thresholds, state_tokens,       codes4,         codes8<false>, codes8<true>, row8<false>,
    row8<true>,           round_int8,         dots_int8,      nullptr,       nullptr};

}  // namespace
}  // namespace apus::cpu
