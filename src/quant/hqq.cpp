// SPDX-License-Identifier: Apache-2.0
#include "quant/hqq.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "quant/codes.h"
#include "quant/format.h"
#include "quant/numbers.h"
#include "quant/wish.h"

namespace apus::quant {

namespace {
// How the weight is laid out before it is packed: a table whose rows (axis 1) or columns (axis 0) are the groups. The
// table's rows are then cut into `parts` equal shares, each at its own bits of a unit of one byte; of four bytes where
// numbers have three bits.
struct Table {
  int64_t rows, columns, parts, per_part;
  Table(Shape shape, const HqqForm& form)
      : rows(form.axis == 1 ? shape.count() / form.group : form.group),
        columns(shape.count() / rows),
        parts(form.bits == 3 ? 10 : 8 / form.bits),
        per_part((rows + parts - 1) / parts) {}
  int64_t group_of(int64_t row, int64_t column, const HqqForm& form) const { return form.axis == 1 ? row : column; }
  int64_t groups(const HqqForm& form) const { return form.axis == 1 ? rows : columns; }
  int64_t shift(int64_t row, const HqqForm& form) const {
    return (form.bits == 3 ? 27 : 8 - form.bits) - form.bits * (row / per_part);
  }
};

void check(const std::string& name, Shape shape, const HqqForm& form) {
  const auto [bits, group, axis] = form;
  require((bits == 1 || bits == 2 || bits == 3 || bits == 4 || bits == 8) && (axis == 0 || axis == 1), Fault::Model,
          name, ": HQQ with ", bits, " bits on axis ", axis, " is not known; bits 1, 2, 3, 4, 8, axis 0, 1");
  require(group > 0 && shape.count() % group == 0, Fault::Model, name, ": groups of ", group, " do not share out [",
          shape.rows, ", ", shape.columns, "]");
}

class Hqq final : public Matrix, public Coded {
 public:
  Hqq(const StoredLayer& layer, Shape shape, const HqqForm& form)
      : Matrix(shape), form_(form), table_(shape, form), bytes_(layer.bytes()) {
    const int64_t units = table_.per_part * table_.columns, groups = table_.groups(form);
    codes_ = layer.need("W_q", {form.bits == 3 ? DiskType::I32 : DiskType::U8}, units);
    scales_ = layer.need("scale", kScaleTypes, groups);
    zeros_ = layer.need("zero", kScaleTypes, groups);
  }
  const char* format() const override { return "hqq"; }
  int64_t bytes() const override { return bytes_; }

  void dequantise(int64_t row, int64_t count, float* out) const override {
    const uint32_t mask = (1u << form_.bits) - 1;
    const int64_t end = (row + count) * shape().columns;
    for (int64_t i = row * shape().columns; i < end;) {
      const int64_t r = i / table_.columns, stop = std::min(end, (r + 1) * table_.columns);
      const int64_t unit = r % table_.per_part * table_.columns, shift = table_.shift(r, form_);
      for (int64_t c = i % table_.columns; i < stop; ++i, ++c) {
        const uint32_t held = form_.bits == 3 ? codes_.at<uint32_t>(unit + c) : codes_.at<uint8_t>(unit + c);
        const int64_t group = table_.group_of(r, c, form_);
        *out++ = (static_cast<float>((held >> shift) & mask) - number_at(zeros_, group)) * number_at(scales_, group);
      }
    }
  }

  // Where groups are parts of rows.
  std::optional<CodeForm> code_form() const override {
    if (form_.axis != 1 || shape().columns % form_.group != 0) return std::nullopt;
    return CodeForm{.kind = form_.bits == 4 ? CodeForm::Kind::Book : CodeForm::Kind::Signed,
                    .group = form_.group,
                    .zeros = true,
                    .book = kWholeNumbers,
                    .bits = static_cast<int>(form_.bits),
                    .lowest = form_.bits == 8 ? -128 : 0};
  }
  void read_codes(int64_t row, int64_t count, const CodeRows& out) const override {
    const int64_t groups = shape().columns / form_.group, shift = form_.bits == 8 ? 128 : 0;
    for (int64_t n = 0; n < count * groups; ++n) {
      const int64_t r = row * groups + n, down = table_.shift(r, form_);
      const int64_t unit = r % table_.per_part * table_.columns, mask = (1 << form_.bits) - 1;
      for (int64_t c = 0; c < form_.group; ++c) {
        const int64_t held = form_.bits == 3 ? codes_.at<uint32_t>(unit + c) : codes_.at<uint8_t>(unit + c);
        out.code[n * form_.group + c] = static_cast<uint8_t>((held >> down & mask) - shift);
      }
      out.scale[n] = number_at(scales_, r);
      out.zero[n] = number_at(zeros_, r) - static_cast<float>(shift);
    }
  }

 private:
  HqqForm form_;
  Table table_;
  int64_t bytes_;
  StoredTensor codes_, scales_, zeros_;
};

struct Group {
  float inverse, zero;  // of the scale
};

float code_of(float w, const Group& g, float most) {
  return std::clamp(std::nearbyint(w * g.inverse + g.zero), 0.0f, most);
}

// Soft thresholds for errors, so that a few large ones do not move the zero.
float shrunk(float x, double beta) {
  constexpr double kP = 0.7;
  const double size = std::abs(static_cast<double>(x));
  if (size == 0) return 0;
  const double left = size - std::pow(size, kP - 1) / beta;
  return left <= 0 ? 0 : static_cast<float>(std::copysign(left, x));
}

// The zeros of all groups go through the rounds together; a round whose mean error is not lower is the last.
void improve_zeros(const std::vector<float>& weight, std::vector<Group>& groups, int64_t size, float most) {
  double beta = 10, least = 1e30;
  for (int round = 0; round < 20; ++round, beta *= 1.01) {
    std::vector<Group> next = groups;
    double error = 0;
    for (size_t n = 0; n < groups.size(); ++n) {
      const Group& g = groups[n];
      const float* w = weight.data() + n * static_cast<size_t>(size);
      double sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        const float q = code_of(w[k], g, most), miss = w[k] - (q - g.zero) / g.inverse;
        error += std::abs(miss);
        sum += q - (w[k] - shrunk(miss, beta)) * g.inverse;
      }
      next[n].zero = static_cast<float>(sum / static_cast<double>(size));
    }
    if (error >= least) return;
    least = error;
    groups = std::move(next);
  }
}
}  // namespace

HqqForm hqq_form(const Json& said) {
  const Json inner = said.value("quant_config", Json::object()).value("weight_quant_params", Json::object());
  return {setting<int64_t>(inner, "nbits", 4), setting<int64_t>(inner, "group_size", 64),
          setting<int64_t>(inner, "axis", 1)};
}

std::unique_ptr<Matrix> open_hqq(const StoredLayer& layer, Shape shape, const HqqForm& form) {
  check(layer.name, shape, form);
  return std::make_unique<Hqq>(layer, shape, form);
}

Pieces quantise_hqq(std::span<const float> weight, Shape shape, const HqqForm& form, bool improve) {
  check("quantise_hqq", shape, form);
  const Table table(shape, form);
  const auto most = static_cast<float>((1 << form.bits) - 1);
  const auto groups = static_cast<size_t>(table.groups(form));
  // Group by group, whichever way they run.
  std::vector<float> grouped(weight.size());
  const auto place = [&](int64_t r, int64_t c) {
    return static_cast<size_t>(form.axis == 1 ? r * form.group + c : c * form.group + r);
  };
  for (int64_t r = 0; r < table.rows; ++r)
    for (int64_t c = 0; c < table.columns; ++c)
      grouped[place(r, c)] = weight[static_cast<size_t>(r * table.columns + c)];
  std::vector<Group> found(groups);
  for (size_t n = 0; n < groups; ++n) {
    const auto begin = grouped.begin() + static_cast<std::ptrdiff_t>(n) * form.group;
    const auto [low, high] = std::minmax_element(begin, begin + form.group);
    const float range = *high - *low, inverse = range <= 1e-4f ? 1 : std::min(most / range, 2e4f);
    found[n] = {inverse, -*low * inverse};
  }
  if (improve && form.bits < 8) improve_zeros(grouped, found, form.group, most);
  const auto units = static_cast<size_t>(table.per_part * table.columns);
  std::vector<uint32_t> packed(units, 0u);
  for (int64_t r = 0; r < table.rows; ++r)
    for (int64_t c = 0; c < table.columns; ++c) {
      const Group& g = found[static_cast<size_t>(table.group_of(r, c, form))];
      packed[static_cast<size_t>(r % table.per_part * table.columns + c)] |=
          static_cast<uint32_t>(code_of(grouped[place(r, c)], g, most)) << table.shift(r, form);
    }
  std::vector<float> scales, zeros;
  for (const Group& g : found) scales.push_back(1 / g.inverse), zeros.push_back(g.zero);
  const auto n = static_cast<int64_t>(groups);
  const std::vector<int64_t> side = form.axis == 1 ? std::vector<int64_t>{n, 1} : std::vector<int64_t>{1, n};
  Pieces out;
  out["W_q"] = form.bits == 3 ? stored(DiskType::I32, {table.per_part, table.columns}, std::move(packed))
                              : stored(DiskType::U8, {table.per_part, table.columns},
                                       std::vector<uint8_t>(packed.begin(), packed.end()));
  out["scale"] = stored(DiskType::F32, side, std::move(scales));
  out["zero"] = stored(DiskType::F32, side, std::move(zeros));
  return out;
}

namespace {
Json hqq_settings(const Wish& wish, const Json&, const Json&) {
  const Json form = {{"nbits", wish.bits.value_or(4)}, {"group_size", 64}, {"axis", wish.hqq_axis.value_or(1)}};
  return {{"quant_method", "hqq"}, {"quant_config", {{"weight_quant_params", form}}}};
}

const RegisterFormat hqq("hqq", {.methods = {"hqq"},
                                 .read = "hqq",
                                 .marks = {"W_q"},
                                 .others = {"scale", "zero", "nbits", "group_size", "axis", "shape", "packing",
                                            "channel_wise", "optimize", "round_zero", "view_as_float", "compute_dtype",
                                            "offload_meta", "quant_zero", "stores_quant_config", "quant_scale",
                                            "unpack_view_dtype", "encoded_state_dict"},
                                 .holds = [](const Pieces& pieces, const Json&) { return pieces.count("W_q") > 0; },
                                 .open = [](const StoredLayer& layer, Shape shape,
                                            const Json& said) { return open_hqq(layer, shape, hqq_form(said)); },
                                 .bits =
                                     [](const Json& said) {
                                       const HqqForm form = hqq_form(said);
                                       return bits_in_groups(form.bits, form.group, true);
                                     },
                                 .check = [](const Json& said) { hqq_form(said); },
                                 .made = {.method = "hqq",
                                          .bits = {1, 2, 3, 4, 8},
                                          .exported = false,
                                          .settings = hqq_settings,
                                          .quantise = [](std::span<const float> weight, Shape shape, const Json& said) {
                                            return quantise_hqq(weight, shape, hqq_form(said), /*improve=*/true);
                                          }}});
}  // namespace

}  // namespace apus::quant
