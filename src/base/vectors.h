// SPDX-License-Identifier: Apache-2.0
// Arithmetic on many numbers at once, in vector code where the processor has it; bit for bit the same on every machine,
// because each result is made by the same additions and multiplications in the same order.
#pragma once

#include <cstdint>
#include <span>

namespace apus::vectors {

// The largest; NaN if one is NaN; -inf of none.
float largest(std::span<const float> x);

// exp((x - shift) * scale) for x <= shift and scale > 0, within 2e-7 of the truth (relative); below 1e-38: 0.
constexpr size_t kBlock = 256;
void exps(std::span<const float> x, float shift, float scale, float* out);
// Their sum: blocks of kBlock, each added up pairwise, in order.
double sum_of_exps(std::span<const float> x, float shift, float scale);

// sums[i] += x[i] * by; and sums of such products as bytes: sum / 2^shift rounded down, kept within 0 and 255.
void add_scaled(std::span<const uint8_t> x, int32_t by, int32_t* sums);
void bytes_of(std::span<const int32_t> sums, int shift, uint8_t* out);

// Normally distributed values (mean 0, variance 1): the same key and length always give the same values.
void normals(uint64_t key, std::span<float> out);

}  // namespace apus::vectors
