// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/code_order.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "quant/codes.h"
#include "quant/numbers.h"

namespace apus::ascend {

namespace {
using quant::CodeForm;

constexpr int64_t kPanel = 32;              // rows that formats give at once
constexpr int64_t kPieceRows = 65504;       // the vendor's product takes fewer than 65536
constexpr int64_t kGroupStep = 32;          // it takes groups of multiples of so many columns
constexpr float kLeastNormalF16 = 6.2e-5f;  // smaller scales lose bits in f16
constexpr float kMostOffset = 60000;        // f16 has nothing much larger

// Whole numbers one after the other, which sixteen of them with a sign stand for.
bool is_counted(const quant::CodeBook4& book) {
  for (size_t i = 0; i < book.size(); ++i)
    if (book[i] != book[0] + static_cast<float>(i)) return false;
  return std::nearbyint(book[0]) == book[0];
}

at::Tensor book_of(const CodeForm& form) {
  if (form.kind == CodeForm::Kind::Signed) return {};
  if (form.kind == CodeForm::Kind::Book)
    return is_counted(form.book) ? at::Tensor()
                                 : at::tensor(std::vector<float>(form.book.begin(), form.book.end()), at::kFloat);
  const auto table = quant::e4m3_table();
  return at::tensor(std::vector<float>(table.begin(), table.end()), at::kFloat);
}

// How a format's codes become ours.
struct Turned {
  explicit Turned(const CodeForm& form, const at::Tensor& book)
      : flip(form.kind == CodeForm::Kind::Book && !book.defined() ? 8 : 0),
        base(flip ? form.book[0] + 8 : 0),
        first(book.defined() ? book[0].item<float>() : 0) {}
  uint8_t flip;  // of codes that count: 0 to 15 becomes -8 to 7
  float base;    // and this is added to what they stand for
  float first;   // what our code 0 stands for
};

// Of one group of a row; true: its codes are all 0.
bool fill_scale(const Turned& turned, float& scale, float zero, float least, float& offset) {
  offset = turned.base - zero - (scale != 0 ? least / scale : 0);
  if (scale == 0 && least == 0) offset = 0;
  if (scale != 0 ? std::abs(offset) < kMostOffset : least == 0) return false;
  scale = -least, offset = 1 - turned.first;  // what its codes tell is lost in the rounding of this
  return true;
}

// code [kPanel, columns], of which `count` rows are there, at `row` of the piece.
void write_panel(const CodeOrder& o, const uint8_t* code, int64_t row, int64_t count, uint8_t flip, uint8_t* out,
                 int64_t row_bytes) {
  for (int64_t c = 0; c < o.columns; ++c) {
    uint8_t* const to = out + c * row_bytes;
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t from = code[r * o.columns + c] ^ flip;
      if (o.bits == 8)
        to[row + r] = from;
      else
        to[(row + r) / 2] |= static_cast<uint8_t>(r % 2 ? from << 4 : from);
    }
  }
}

CodeOrder::Piece read_piece(const CodeOrder& o, const quant::Coded& coded, const Turned& turned, const CodeForm& form,
                            int64_t first, int64_t count) {
  const int64_t filled = (count + 7) / 8 * 8, row_bytes = filled * o.bits / 8;
  const int64_t groups = o.group == 0 ? 1 : (o.columns + o.group - 1) / o.group,
                width = o.group == 0 ? o.columns : o.group;
  CodeOrder::Piece piece{count,
                         at::zeros({o.columns, row_bytes}, o.bits == 8 && !o.book.defined() ? at::kChar : at::kByte),
                         at::zeros({groups, filled}, at::kFloat), at::zeros({groups, filled}, at::kFloat)};
  auto* const codes = static_cast<uint8_t*>(piece.code.data_ptr());
  float *const scales = piece.scale.data_ptr<float>(), *const offsets = piece.offset.data_ptr<float>();
  at::parallel_for(0, (count + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    const auto numbers = [&](bool there) {
      return std::vector<float>(there ? static_cast<size_t>(kPanel * groups) : 0);
    };
    std::vector<uint8_t> code(static_cast<size_t>(kPanel * o.columns));
    std::vector<float> scale = numbers(true), zero = numbers(form.zeros), least = numbers(form.leasts);
    for (int64_t row = begin * kPanel; row < std::min(end * kPanel, count); row += kPanel) {
      const int64_t some = std::min(kPanel, count - row);
      coded.read_codes(first + row, some, {code.data(), scale.data(), zero.data(), least.data()});
      for (int64_t i = 0; i < some * groups; ++i) {
        const int64_t r = i / groups, g = i % groups, at = g * filled + row + r;
        const auto of = [&](const std::vector<float>& v) { return v.empty() ? 0.0f : v[static_cast<size_t>(i)]; };
        scales[at] = of(scale);
        if (fill_scale(turned, scales[at], of(zero), of(least), offsets[at]))
          std::memset(code.data() + r * o.columns + g * width, turned.flip,
                      static_cast<size_t>(std::min(width, o.columns - g * width)));
      }
      write_panel(o, code.data(), row, some, turned.flip, codes, row_bytes);
    }
  });
  return piece;
}

// Whether the type holds these scales as well as others.
bool holds_scales(const CodeOrder& o) {
  if (o.type != at::kHalf) return true;
  for (const CodeOrder::Piece& piece : o.pieces) {
    const at::Tensor size = piece.scale.abs();
    if (at::logical_and(size.gt(0), size.lt(kLeastNormalF16)).any().item<bool>()) return false;
  }
  return true;
}

bool nothing_is_added(const CodeOrder::Piece& to_its_codes) { return !to_its_codes.offset.ne(0).any().item<bool>(); }
}  // namespace

CodeOrder CodeOrder::of(const quant::Matrix& matrix, at::ScalarType type, int64_t experts, bool may_round) {
  const auto* const coded = dynamic_cast<const quant::Coded*>(&matrix);
  const auto form = coded ? coded->code_form() : std::nullopt;
  if (!form) return {};
  CodeOrder o{.rows = matrix.shape().rows, .columns = matrix.shape().columns, .type = type};
  o.group = form->group >= o.columns ? 0 : form->group;
  o.bits = form->kind == CodeForm::Kind::Book ? 4 : 8;
  o.book = book_of(*form);
  const Turned turned(*form, o.book);
  const int64_t step = experts > 0 ? o.rows / experts : kPieceRows;
  if (experts > 0 && (step % 8 != 0 || step > kPieceRows)) return {};
  for (int64_t row = 0; row < o.rows; row += step)
    o.pieces.push_back(read_piece(o, *coded, turned, *form, row, std::min(step, o.rows - row)));
  const bool narrow = type == at::kBFloat16 || type == at::kHalf;
  o.multiplied = narrow && !o.book.defined() && o.group % kGroupStep == 0 && o.columns <= kPieceRows && holds_scales(o);
  o.rounds = o.multiplied && may_round && experts == 0 && o.bits == 8 && o.group == 0 &&
             std::all_of(o.pieces.begin(), o.pieces.end(), nothing_is_added);
  if (o.multiplied && !o.rounds)
    for (Piece& piece : o.pieces) piece.scale = piece.scale.to(type), piece.offset = piece.offset.to(type);
  if (experts > 0) o.make_stack();
  return o;
}

// The grouped product takes eight bits with one scale a row, four with others too if nothing is added to their codes.
void CodeOrder::make_stack() {
  const auto joined = [&](at::Tensor Piece::*of) {
    std::vector<at::Tensor> all;
    for (Piece& piece : pieces) all.push_back(std::exchange(piece.*of, at::Tensor()));
    return at::stack(all);
  };
  stack = {pieces[0].rows, joined(&Piece::code), joined(&Piece::scale), joined(&Piece::offset)};
  multiplied_together = multiplied && (group == 0 || (bits == 4 && has_whole_groups() && nothing_is_added(stack)));
  view_stack();
}

void CodeOrder::view_stack() {
  for (size_t e = 0; e < pieces.size(); ++e) {
    const auto of = [&](const at::Tensor& t) { return t[static_cast<int64_t>(e)]; };
    pieces[e] = {stack.rows, of(stack.code), of(stack.scale), of(stack.offset)};
  }
}

int64_t CodeOrder::bytes() const {
  int64_t all = 0;
  for (const Piece& piece : pieces)
    for (const at::Tensor& t : {piece.code, piece.scale, piece.offset}) all += static_cast<int64_t>(t.nbytes());
  return all;
}

void CodeOrder::move_to(c10::Device device) {
  if (book.defined()) book = book.to(device);
  if (stack.code.defined()) {
    stack = {stack.rows, stack.code.to(device), stack.scale.to(device), stack.offset.to(device)};
    return view_stack();
  }
  for (Piece& piece : pieces)
    for (at::Tensor* t : {&piece.code, &piece.scale, &piece.offset}) *t = t->to(device);
}

// What codes stand for, f32: [columns, n] of eight bits, [columns, 2 n] of four.
at::Tensor CodeOrder::values(const at::Tensor& code) const {
  at::Tensor value = code;
  if (bits == 4) {  // in f32, as not every device shifts bytes
    const at::Tensor both = code.to(at::kFloat), high = (both / 16).floor_();
    value = at::stack({both - high * 16, high}, -1).view({code.size(0), -1});
  }
  if (book.defined()) return book.index_select(0, value.reshape({-1}).to(at::kInt)).view(value.sizes());
  return bits == 4 ? at::fmod(value + 8, 16) - 8 : value.to(at::kFloat);
}

at::Tensor CodeOrder::scaled(const at::Tensor& value, const at::Tensor& scale_in, const at::Tensor& offset_in) const {
  const at::Tensor scale = scale_in.to(at::kFloat), offset = offset_in.to(at::kFloat);
  const int64_t groups = scale.size(0);
  if (has_whole_groups()) {  // also of several matrices, one below the other
    const at::Tensor by_group = value.view({groups, value.size(0) / groups, -1});
    return (by_group + offset.unsqueeze(1)).mul_(scale.unsqueeze(1)).view(value.sizes());
  }
  const auto wide = [&](const at::Tensor& t) {
    return t.unsqueeze(1).expand({groups, group, -1}).reshape({groups * group, -1}).narrow(0, 0, columns);
  };
  return (value + wide(offset)).mul_(wide(scale));
}

at::Tensor CodeOrder::plain(const Piece& piece, int64_t row, int64_t count) const {
  const int64_t each = 8 / bits, begin = row / each * each, end = (row + count + each - 1) / each * each;
  const auto part = [&](const at::Tensor& t) { return t.narrow(1, begin, end - begin); };
  const at::Tensor value = values(piece.code.narrow(1, begin / each, (end - begin) / each).contiguous());
  return scaled(value, part(piece.scale), part(piece.offset)).narrow(1, row - begin, count);
}

at::Tensor CodeOrder::plain_experts(int64_t first, int64_t count) const {
  return plain_matrices(stack.code.narrow(0, first, count), stack.scale.narrow(0, first, count),
                        stack.offset.narrow(0, first, count));
}

at::Tensor CodeOrder::plain_experts(const at::Tensor& ids) const {
  return plain_matrices(stack.code.index_select(0, ids), stack.scale.index_select(0, ids),
                        stack.offset.index_select(0, ids));
}

// [n, columns, bytes], [n, groups, rows] twice.
at::Tensor CodeOrder::plain_matrices(const at::Tensor& code, const at::Tensor& scale, const at::Tensor& offset) const {
  const int64_t n = code.size(0);
  const at::Tensor value = values(code.flatten(0, 1));
  if (has_whole_groups()) return scaled(value, scale.flatten(0, 1), offset.flatten(0, 1)).view({n, columns, -1});
  std::vector<at::Tensor> each;
  for (int64_t i = 0; i < n; ++i) each.push_back(scaled(value.narrow(0, i * columns, columns), scale[i], offset[i]));
  return at::stack(each);
}

at::Tensor CodeOrder::plain_rows(const at::Tensor& ids) const {
  at::Tensor out;
  int64_t first = 0;
  for (const Piece& piece : pieces) {
    const at::Tensor here = (ids - first).clamp(0, piece.rows - 1);
    at::Tensor value;
    if (bits == 8) {
      value = values(piece.code.index_select(1, here));
    } else {
      const at::Tensor half = here.div(2, "floor"), odd = (here - half * 2).eq(1);
      const at::Tensor both = values(piece.code.index_select(1, half)).view({columns, -1, 2});
      value = at::where(odd, both.select(2, 1), both.select(2, 0));
    }
    const at::Tensor rows = scaled(value, piece.scale.index_select(1, here), piece.offset.index_select(1, here)).t();
    out = out.defined() ? at::where(ids.ge(first).unsqueeze(1), rows, out) : rows;
    first += piece.rows;
  }
  return out;
}

}  // namespace apus::ascend
