// SPDX-License-Identifier: Apache-2.0
#include "gguf/slice.h"

#include <algorithm>
#include <cmath>

#include "gguf/ggml_blocks.h"

namespace apus {

namespace {

float number_of_checkpoint(GgufTurn::Numbers numbers, float x) {
  if (numbers == GgufTurn::Numbers::FromOne) return x - 1;
  return numbers == GgufTurn::Numbers::MinusExp ? std::log(-x) : x;
}

// Rows of one slice, read one after the other.
class SliceReader {
 public:
  explicit SliceReader(const GgufSlice& slice)
      : slice_(slice), wide_(slice.turned ? blocks_wide(slice) : slice.width), block_(slice.turned ? slice.width : 0) {
    if (!slice.turned) block_ = slice.order ? std::ssize(*slice.order) : slice.rows;
  }
  // A row of the checkpoint's.
  void row(int64_t i, float* out) {
    if (!slice_.turned) return file_row(i / block_, i % block_, out);
    const float* block = whole_block(i / wide_);
    for (int64_t j = 0; j < block_; ++j) out[j] = block[j * wide_ + i % wide_];
  }

 private:
  // Of a turned slice: the numbers in a row of the file.
  static int64_t blocks_wide(const GgufSlice& slice) { return slice.shape[slice.shape.size() - 2]; }
  // A row of a block before the block is turned.
  void file_row(int64_t block, int64_t i, float* out) {
    const auto [p, at] = slice_.order ? (*slice_.order)[static_cast<size_t>(i)] : std::pair<int32_t, int64_t>{0, i};
    const GgufPart& part = slice_.parts[static_cast<size_t>(p)];
    const int64_t there = block * part.rows + at;
    if (part.turned_rows > 0)
      column(part, p, there / part.turned_rows, there % part.turned_rows, out);
    else
      ggml_read(part.type, part.data + there * ggml_bytes(ggml_form(part.type), wide_), out, wide_);
    if (!slice_.scales.empty()) {
      const float scale = slice_.scales[slice_.scales.size() > 1 ? static_cast<size_t>(at) : 0];
      for (int64_t j = 0; j < wide_; ++j) out[j] /= scale;
    }
    if (slice_.columns.empty()) return;
    row_.assign(out, out + wide_);
    for (int64_t j = 0; j < wide_; ++j) out[slice_.columns[static_cast<size_t>(j)]] = row_[static_cast<size_t>(j)];
  }
  const float* whole_block(int64_t block) {
    if (block == held_block_) return whole_.data();
    whole_.resize(static_cast<size_t>(block_ * wide_));
    for (int64_t i = 0; i < block_; ++i) file_row(block, i, whole_.data() + i * wide_);
    held_block_ = block;
    return whole_.data();
  }
  void column(const GgufPart& part, int32_t p, int64_t stack, int64_t j, float* out) {
    if (held_part_ != p || held_stack_ != stack) {
      const int64_t count = wide_ * part.turned_rows;
      held_.resize(static_cast<size_t>(count));
      ggml_read(part.type, part.data + stack * ggml_bytes(ggml_form(part.type), count), held_.data(), count);
      held_part_ = p, held_stack_ = stack;
    }
    for (int64_t i = 0; i < wide_; ++i) out[i] = held_[static_cast<size_t>(i * part.turned_rows + j)];
  }

  const GgufSlice& slice_;
  int64_t wide_, block_;  // a row in the file, and the rows of a block there
  std::vector<float> held_, whole_, row_;
  int32_t held_part_ = -1;
  int64_t held_stack_ = -1, held_block_ = -1;
};

}  // namespace

GgmlType GgufSlice::type() const {
  const bool same = std::all_of(parts.begin(), parts.end(), [&](const GgufPart& p) { return p.type == parts[0].type; });
  return same ? parts[0].type : GgmlType::F32;
}

int64_t GgufSlice::bytes() const {
  int64_t sum = 0;
  for (const GgufPart& part : parts) sum += part.bytes;
  return sum;
}

bool GgufSlice::in_order() const {
  return !order && !turned && scales.empty() && columns.empty() && parts[0].turned_rows == 0;
}

bool GgufSlice::plain() const {
  return bytes_of == Bytes::No && in_order() && numbers == GgufTurn::Numbers::Same &&
         !ggml_form(parts[0].type).quantised();
}

bool GgufSlice::quantised() const {
  return bytes_of == Bytes::No && ggml_form(type()).quantised() && !turned && scales.empty() && columns.empty() &&
         numbers == GgufTurn::Numbers::Same &&
         std::none_of(parts.begin(), parts.end(), [](const GgufPart& p) { return p.turned_rows > 0; });
}

const std::byte* GgufSlice::row(int64_t i) const {
  const int64_t block_rows = order ? std::ssize(*order) : rows;
  const auto [p, at] =
      order ? (*order)[static_cast<size_t>(i % block_rows)] : std::pair<int32_t, int64_t>{0, i % block_rows};
  const GgufPart& part = parts[static_cast<size_t>(p)];
  return part.data + (i / block_rows * part.rows + at) * ggml_bytes(ggml_form(part.type), width);
}

void GgufSlice::read_rows(int64_t first, int64_t count, float* out) const {
  if (in_order()) {
    const GgufPart& part = parts[0];
    ggml_read(part.type, part.data + first * ggml_bytes(ggml_form(part.type), width), out, count * width);
  } else {
    SliceReader reader(*this);
    for (int64_t i = 0; i < count; ++i) reader.row(first + i, out + i * width);
  }
  if (numbers == GgufTurn::Numbers::Same) return;
  for (int64_t i = 0; i < count * width; ++i) out[i] = number_of_checkpoint(numbers, out[i]);
}

bool GgufSlice::holds_mxfp4() const {
  return type() == GgmlType::MXFP4 && turned && scales.empty() && columns.empty() && shape.size() == 3;
}

GgufSlice GgufSlice::as_bytes(Bytes which) const {
  GgufSlice out = *this;
  const int64_t blocks = shape[1] / ggml::kSmall;
  out.bytes_of = which, out.turned = false;
  out.shape = {shape[0], shape[2], blocks};
  if (which == Bytes::Blocks) out.shape.push_back(ggml::kSmall / 2);
  out.rows = shape[0] * shape[2], out.width = which == Bytes::Blocks ? blocks * ggml::kSmall / 2 : blocks;
  return out;
}

void GgufSlice::read_bytes(int64_t i, uint8_t* out) const {
  const int64_t block_rows = shape[1], blocks = shape[2];
  const auto [p, at] =
      order ? (*order)[static_cast<size_t>(i % block_rows)] : std::pair<int32_t, int64_t>{0, i % block_rows};
  const GgufPart& part = parts[static_cast<size_t>(p)];
  const int64_t block_bytes = ggml_form(GgmlType::MXFP4).bytes;
  const std::byte* from = part.data + (i / block_rows * part.rows + at) * blocks * block_bytes;
  for (int64_t b = 0; b < blocks; ++b, from += block_bytes) {
    if (bytes_of == Bytes::Scales) {
      out[b] = ggml::byte_at(from, 0);
      continue;
    }
    // Of 32 numbers the file has the first 16 in lower halves; the checkpoint has neighbours in one byte.
    const auto nibble = [&](int j) { return ggml::byte_at(from, 1 + j % 16) >> (j < 16 ? 0 : 4) & 15; };
    for (int k = 0; k < 16; ++k) out[16 * b + k] = static_cast<uint8_t>(nibble(2 * k) | nibble(2 * k + 1) << 4);
  }
}

int64_t GgufSlice::together() const {
  int64_t most = turned ? shape[shape.size() - 2] : 1;
  for (const GgufPart& part : parts) most = std::max(most, part.turned_rows);
  return most;
}

}  // namespace apus
