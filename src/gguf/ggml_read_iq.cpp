// SPDX-License-Identifier: Apache-2.0
// Numbers out of ggml's IQ blocks of 256: points of a grid, signs, and scales for 16 or 32 numbers.
#include <bit>
#include <cstring>

#include "gguf/ggml_blocks.h"
#include "gguf/ggml_grids.h"

namespace apus::ggml {

namespace {

uint32_t word_at(const std::byte* p, int i) {
  uint32_t word;
  std::memcpy(&word, p + 4 * i, sizeof word);
  return word;
}
uint16_t short_at(const std::byte* p, int i) {
  uint16_t word;
  std::memcpy(&word, p + 2 * i, sizeof word);
  return word;
}

// Seven signs; the eighth makes their number even.
int with_eighth(uint32_t signs) { return static_cast<int>(signs | (std::popcount(signs) & 1) << 7); }

// `count` numbers of a point, of which a set bit means minus.
void put_point(const int8_t* point, int count, int signs, float scale, float* out) {
  for (int j = 0; j < count; ++j) {
    const float value = scale * static_cast<float>(point[j]);
    out[j] = signs >> j & 1 ? -value : value;
  }
}

float half_bits(uint16_t bits) {
  std::byte both[2];
  std::memcpy(both, &bits, sizeof both);
  return half_at(both);
}

// The low nibble belongs to the first half of 32 numbers.
int nibble_of(const std::byte* scales, int half) { return byte_at(scales, half / 2) >> half % 2 * 4 & 15; }

}  // namespace

void read_iq2_xxs(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 8; ++i) {
    const uint32_t points = word_at(b + 2, 2 * i), signs = word_at(b + 2, 2 * i + 1);
    const float scale = d * (0.5F + static_cast<float>(signs >> 28)) * 0.25F;
    for (int l = 0; l < 4; ++l)
      put_point(grid_iq2_xxs() + 8 * (points >> 8 * l & 255), 8, with_eighth(signs >> 7 * l & 127), scale,
                out + 32 * i + 8 * l);
  }
}

void read_iq2_xs(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) {
    const uint32_t both = short_at(b + 2, i);
    const float scale = d * (0.5F + static_cast<float>(nibble_of(b + 66, i / 2))) * 0.25F;
    put_point(grid_iq2_xs() + 8 * (both & 511), 8, with_eighth(both >> 9), scale, out + 8 * i);
  }
}

void read_iq2_s(const std::byte* b, float* out) {
  const std::byte *low = b + 2, *signs = b + 34, *high = b + 66, *scales = b + 74;
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) {
    const int point = byte_at(low, i) | (byte_at(high, i / 4) >> i % 4 * 2 & 3) << 8;
    const float scale = d * (0.5F + static_cast<float>(nibble_of(scales, i / 2))) * 0.25F;
    put_point(grid_iq2_s() + 8 * point, 8, byte_at(signs, i), scale, out + 8 * i);
  }
}

void read_iq3_xxs(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 8; ++i) {
    const uint32_t signs = word_at(b + 66, i);
    const float scale = d * (0.5F + static_cast<float>(signs >> 28)) * 0.5F;
    for (int l = 0; l < 8; ++l)
      put_point(grid_iq3_xxs() + 4 * byte_at(b + 2, 8 * i + l), 4, with_eighth(signs >> l / 2 * 7 & 127) >> l % 2 * 4,
                scale, out + 32 * i + 4 * l);
  }
}

void read_iq3_s(const std::byte* b, float* out) {
  const std::byte *low = b + 2, *high = b + 66, *signs = b + 74, *scales = b + 106;
  const float d = half_at(b);
  for (int i = 0; i < 64; ++i) {
    const int point = byte_at(low, i) | (byte_at(high, i / 8) >> i % 8 & 1) << 8;
    const float scale = d * static_cast<float>(1 + 2 * nibble_of(scales, i / 8));
    put_point(grid_iq3_s() + 4 * point, 4, byte_at(signs, i / 2) >> i % 2 * 4, scale, out + 4 * i);
  }
}

namespace {

constexpr float kShift = 0.125F;  // by which all numbers of a point are larger, or smaller

void put_shifted(int point, float scale, bool smaller, float* out) {
  const int8_t* numbers = grid_iq1() + 8 * point;
  for (int j = 0; j < 8; ++j) out[j] = scale * (static_cast<float>(numbers[j]) + (smaller ? -kShift : kShift));
}

}  // namespace

void read_iq1_s(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) {
    const int high = short_at(b + 34, i / 4);
    const float scale = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    put_shifted(byte_at(b + 2, i) | (high >> i % 4 * 3 & 7) << 8, scale, (high & 0x8000) != 0, out + 8 * i);
  }
}

// Its scale lies in four parts above those of 16 numbers.
void read_iq1_m(const std::byte* b, float* out) {
  const std::byte *low = b, *high = b + 32, *scales = b + 48;
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (short_at(scales, i) >> 12) << 4 * i;
  const float d = half_bits(static_cast<uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const int upper = byte_at(high, i / 2) >> i % 2 * 4;
    const float scale = d * static_cast<float>(2 * (short_at(scales, i / 8) >> i / 2 % 4 * 3 & 7) + 1);
    put_shifted(byte_at(low, i) | (upper & 7) << 8, scale, (upper & 8) != 0, out + 8 * i);
  }
}

void read_iq4_xs(const std::byte* b, float* out) {
  const float d = half_at(b);
  const int high = short_at(b + 2, 0);
  for (int i = 0; i < 8; ++i) {
    const int scale = (nibble_of(b + 4, i) | (high >> 2 * i & 3) << 4) - 32;
    for (int j = 0; j < 16; ++j) {
      const int q = byte_at(b + 8, 16 * i + j);
      out[32 * i + j] = d * static_cast<float>(scale) * static_cast<float>(kIq4Values[q & 15]);
      out[32 * i + 16 + j] = d * static_cast<float>(scale) * static_cast<float>(kIq4Values[q >> 4]);
    }
  }
}

}  // namespace apus::ggml
