// SPDX-License-Identifier: Apache-2.0
// Shapes: N patches, D width.
#include "models/towers/patch_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cmath>

namespace apus {

// The first half of the angles follows the patch's row, the second its column, or both take turns. Computed on the host
// in f32, as the original implementation holds them.
Turn patch_turns(const PatchPlaces& places, const VisionSpec& spec, at::Device device) {
  const int64_t patches = std::ssize(places.row), half = spec.head_size() / 4;
  const auto speeds = [&](int64_t first) {
    const int64_t every = spec.turns_alternate ? 4 : 2, of = spec.turns_alternate ? 4 * half : 2 * half;
    std::vector<float> out;
    for (int64_t k = 0; k < half; ++k)
      out.push_back(1 / std::pow(static_cast<float>(spec.turn_base),
                                 static_cast<float>(every * k + first) / static_cast<float>(of)));
    return out;
  };
  const std::vector<float> of_rows = speeds(0), of_columns = spec.turns_alternate ? speeds(2) : of_rows;
  at::Tensor cos = at::empty({patches, 2 * half}, at::kFloat), sin = at::empty({patches, 2 * half}, at::kFloat);
  float *c = cos.data_ptr<float>(), *s = sin.data_ptr<float>();
  const auto put = [&](int64_t place, float speed) {
    const float angle = static_cast<float>(place) * speed;
    *c++ = static_cast<float>(std::cos(static_cast<double>(angle)));
    *s++ = static_cast<float>(std::sin(static_cast<double>(angle)));
  };
  for (size_t n = 0; n < places.row.size(); ++n) {
    if (spec.turns_columns_first) {
      for (const float each : of_columns) put(places.column[n] + 1, each);
      for (const float each : of_rows) put(places.row[n] + 1, each);
      continue;
    }
    for (size_t k = 0; spec.turns_neighbours && k < of_rows.size(); ++k)
      put(places.column[n], of_columns[k]), put(places.row[n], of_rows[k]);
    if (spec.turns_neighbours) continue;
    for (const float each : of_rows) put(places.row[n], each);
    for (const float each : of_columns) put(places.column[n], each);
  }
  return {cos.to(device), sin.to(device)};
}

at::Tensor with_rows_before(const at::Tensor& x_ND, const at::Tensor& row_1D, const std::vector<int32_t>& ends) {
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < ends.size(); ++i) lengths.push_back(ends[i] - ends[i - 1]);
  std::vector<at::Tensor> rows;
  for (const at::Tensor& run : x_ND.split_with_sizes(lengths)) {
    rows.push_back(row_1D);
    rows.push_back(run);
  }
  return at::cat(rows);
}

at::Tensor without_rows_before(const at::Tensor& x_ND, const std::vector<int32_t>& ends) {
  std::vector<int64_t> lengths;
  for (size_t i = 1; i < ends.size(); ++i) lengths.insert(lengths.end(), {1, ends[i] - ends[i - 1]});
  const std::vector<at::Tensor> all = x_ND.split_with_sizes(lengths);
  std::vector<at::Tensor> rows;
  for (size_t i = 1; i < all.size(); i += 2) rows.push_back(all[i]);
  return at::cat(rows);
}

namespace {
// Which of `side` equal parts of a picture's side each of `count` patches begins in, as torch rounds it.
at::Tensor nearest_entries(int64_t count, int64_t side, bool in_steps) {
  const double part = 1 / static_cast<double>(side);
  const at::Tensor begin = in_steps ? at::arange(0.0, 1 - 1e-6, 1 / static_cast<double>(count), at::kFloat)
                                    : at::arange(count).to(at::kFloat) / static_cast<double>(count);
  return at::bucketize(begin, at::arange(part, 1.0, part, at::kFloat), /*out_int32=*/false, /*right=*/true);
}
}  // namespace

at::Tensor nearest_in_table(const std::vector<Grid>& grids, int64_t merge, int64_t side, bool in_steps) {
  std::vector<at::Tensor> all;
  for (const Grid& g : grids) {
    const PatchPlaces places = patch_places({g}, merge);
    const at::Tensor row = at::index_select(nearest_entries(g[1], side, in_steps), 0, at::tensor(places.row)),
                     column = at::index_select(nearest_entries(g[2], side, in_steps), 0, at::tensor(places.column));
    all.push_back(row * side + column);
  }
  return at::cat(all, 0);
}

at::Tensor nearest_in_parts(const std::vector<Grid>& grids, int64_t merge, int64_t side, const FrameParts& parts) {
  std::vector<int64_t> all;
  size_t frame = 0;
  for (const Grid& g : grids) {
    const PatchPlaces places = patch_places({{1, g[1], g[2]}}, merge);
    for (int64_t f = 0; f < g[0]; ++f) {
      const auto [high, wide] = parts[frame++];
      const at::Tensor line = nearest_entries(high, side, false), column = nearest_entries(wide, side, false);
      for (size_t n = 0; n < places.row.size(); ++n) {
        const int64_t r = places.row[n], c = places.column[n];
        const bool seen = r < high && c < wide;
        all.push_back(seen ? line.data_ptr<int64_t>()[r] * side + column.data_ptr<int64_t>()[c] : 0);
      }
    }
  }
  return at::tensor(all, at::kLong);
}

at::Tensor smooth_rows(const at::Tensor& table, int64_t side, const std::vector<Grid>& grids) {
  const at::Tensor plane = table.reshape({1, side, side, -1}).permute({0, 3, 1, 2});
  std::vector<at::Tensor> all;
  for (const Grid& g : grids) {
    const bool same = g[1] == side && g[2] == side;
    const at::Tensor own =
        same ? plane
             : at::_upsample_bicubic2d_aa(plane.to(at::kFloat).contiguous(), {g[1], g[2]}, /*align_corners=*/false)
                   .to(table.scalar_type());
    const at::Tensor rows_ND = own.permute({0, 2, 3, 1}).reshape({g[1] * g[2], -1});
    for (int64_t picture = 0; picture < g[0]; ++picture) all.push_back(rows_ND);
  }
  return at::cat(all, 0);
}

at::Tensor rows_of_axes(const at::Tensor& table_2PD, const std::vector<Grid>& grids, int64_t merge) {
  const PatchPlaces places = patch_places(grids, merge);
  const auto rows = [&](int64_t axis, const std::vector<int64_t>& at) {
    return at::index_select(table_2PD[axis], 0, at::tensor(at, at::kLong).to(table_2PD.device()));
  };
  return rows(0, places.column) + rows(1, places.row);
}

at::Tensor pooled_rows(const at::Tensor& x_ND, const std::vector<Grid>& grids, const std::vector<bool>& pooled) {
  std::vector<at::Tensor> all;
  int64_t first = 0;
  for (size_t i = 0; i < grids.size(); ++i) {
    const Grid& g = grids[i];
    const at::Tensor own = x_ND.narrow(0, first, patches_of(g));
    first += patches_of(g);
    all.push_back(pooled[i] ? own.reshape({g[0], g[1] / 2, 2, g[2] / 2, 2, -1}).mean({2, 4}).reshape({-1, own.size(1)})
                            : own);
  }
  return at::cat(all, 0);
}
at::Tensor joined_squares(const at::Tensor& x_ND, const std::vector<Grid>& grids, int64_t j) {
  const int64_t width = x_ND.size(1);
  const auto squares = [&](int64_t side) { return (side + j - 1) / j; };
  std::vector<at::Tensor> all;
  int64_t first = 0;
  for (const Grid& g : grids) {
    const int64_t rows = squares(g[1]), columns = squares(g[2]);
    at::Tensor x = x_ND.narrow(0, first, patches_of(g)).reshape({g[0], g[1], g[2], width});
    first += patches_of(g);
    x = at::constant_pad_nd(x, {0, 0, 0, columns * j - g[2], 0, rows * j - g[1]});
    x = x.reshape({g[0], rows, j, columns, j, width}).permute({0, 1, 3, 2, 4, 5});
    all.push_back(x.reshape({-1, j * j * width}));
  }
  return at::cat(all, 0);
}

}  // namespace apus
