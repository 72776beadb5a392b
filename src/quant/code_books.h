// SPDX-License-Identifier: Apache-2.0
// The numbers that codes of four and eight bits stand for in bitsandbytes' formats.
#pragma once

#include <array>

namespace apus::quant {

using CodeBook4 = std::array<float, 16>;
using CodeBook8 = std::array<float, 256>;

// Quantiles of a normal distribution, ascending.
inline constexpr CodeBook4 kNf4 = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};

// Sign in bit 3; the magnitudes do not ascend with the code.
inline constexpr CodeBook4 kFp4 = {0.0f / 12,  0.0625f / 12, 8.0f / 12,  12.0f / 12,    4.0f / 12,  6.0f / 12,
                                   2.0f / 12,  3.0f / 12,    -0.0f / 12, -0.0625f / 12, -8.0f / 12, -12.0f / 12,
                                   -4.0f / 12, -6.0f / 12,   -2.0f / 12, -3.0f / 12};

// bitsandbytes' signed dynamic map: finer near zero, ascending.
CodeBook8 dynamic_map();

// E2M1, of NVFP4 and MXFP4.
inline constexpr CodeBook4 kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

}  // namespace apus::quant
