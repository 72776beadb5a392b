// SPDX-License-Identifier: Apache-2.0
// The number formats of ggml, bit for bit: blocks of 32 or 256 numbers that share scales. No tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

// As GGUF files number them.
enum class GgmlType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  IQ1_M = 29,
  BF16 = 30,
  MXFP4 = 39,
};

struct GgmlForm {
  GgmlType type;
  const char* name;
  int64_t block;  // numbers in a block
  int64_t bytes;  // of a block
  bool writable;
  bool quantised() const { return block > 1; }
};

// Null for a type that is not read. (ggml_type_name knows those as well.)
const GgmlForm* find_ggml_form(uint32_t type);
const GgmlForm& ggml_form(GgmlType type);
std::string ggml_type_name(uint32_t type);
std::string readable_ggml_types();  // their names, for messages

// Bytes of `count` numbers, which are whole blocks.
inline int64_t ggml_bytes(const GgmlForm& form, int64_t count) { return count / form.block * form.bytes; }

// `count` numbers from whole blocks.
void ggml_read(GgmlType type, const std::byte* blocks, float* out, int64_t count);
// The same bytes as ggml's reference quantisers write. The numbers must be finite and the type writable. `importance`:
// of each of the `width` numbers of a row, how much its error matters; null: nothing is known of that.
void ggml_write(GgmlType type, const float* numbers, std::byte* blocks, int64_t count,
                const float* importance = nullptr, int64_t width = 0);

}  // namespace apus
