// SPDX-License-Identifier: Apache-2.0
#include "models/spec/vision_grid.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace apus {

namespace {
// f(row, column) for every patch of a frame, in the order of the rows.
void each_patch(const Grid& g, int64_t merge, const std::function<void(int64_t, int64_t)>& f) {
  for (int64_t i = 0; i < g[1]; i += merge)
    for (int64_t j = 0; j < g[2]; j += merge)
      for (int64_t r = i; r < i + merge; ++r)
        for (int64_t c = j; c < j + merge; ++c) f(r, c);
}

// `count` places from 0 to `last`, both included, as torch.linspace has them.
std::vector<float> line(int64_t last, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  const float end = static_cast<float>(last), step = count > 1 ? end / static_cast<float>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] =
        i < count / 2 || count == 1 ? step * static_cast<float>(i) : end - step * static_cast<float>(count - 1 - i);
  return out;
}
}  // namespace

PatchPlaces patch_places(const std::vector<Grid>& grids, int64_t merge) {
  PatchPlaces out;
  for (const Grid& g : grids)
    for (int64_t f = 0; f < g[0]; ++f)
      each_patch(g, merge, [&](int64_t r, int64_t c) { out.row.push_back(r), out.column.push_back(c); });
  return out;
}

std::vector<int32_t> frame_ends(const std::vector<Grid>& grids) {
  std::vector<int32_t> ends{0};
  for (const Grid& g : grids)
    for (int64_t f = 0; f < g[0]; ++f) ends.push_back(ends.back() + static_cast<int32_t>(g[1] * g[2]));
  return ends;
}

SeenPatches seen_patches(const std::vector<Grid>& grids, int64_t merge, const FrameParts& parts) {
  SeenPatches out{.patch = {}, .ends = {0}};
  int64_t patch = 0;
  size_t frame = 0;
  for (const Grid& g : grids)
    for (int64_t f = 0; f < g[0]; ++f) {
      const std::array<int64_t, 2> part = parts[frame++];
      each_patch(g, merge, [&](int64_t r, int64_t c) {
        if (r < part[0] && c < part[1]) out.patch.push_back(patch);
        ++patch;
      });
      out.ends.push_back(static_cast<int32_t>(out.patch.size()));
    }
  return out;
}

Windows windows_of(const std::vector<Grid>& grids, int64_t merge, int64_t side) {
  Windows out{.cells = {}, .ends = {0}};
  int64_t first = 0;  // cell of the frame
  for (const Grid& g : grids) {
    const int64_t rows = g[1] / merge, columns = g[2] / merge;
    for (int64_t f = 0; f < g[0]; ++f, first += rows * columns)
      for (int64_t i = 0; i < rows; i += side)
        for (int64_t j = 0; j < columns; j += side) {
          const int64_t below = std::min(i + side, rows), right = std::min(j + side, columns);
          for (int64_t r = i; r < below; ++r)
            for (int64_t c = j; c < right; ++c) out.cells.push_back(first + r * columns + c);
          out.ends.push_back(out.ends.back() + static_cast<int32_t>((below - i) * (right - j) * merge * merge));
        }
  }
  return out;
}

namespace {
// `count` places whose first lies half a step behind the table's edge.
std::vector<float> line_between_edges(int64_t table_side, int64_t count) {
  const float scale = static_cast<float>(table_side) / static_cast<float>(count);
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(scale * (static_cast<float>(i) + 0.5F) - 0.5F);
  return out;
}

// `line_of`: where the patches of a side lie between the table's entries.
TablePlaces table_of_four(const std::vector<Grid>& grids, int64_t merge, int64_t table_side,
                          const std::function<std::vector<float>(int64_t count)>& line_of) {
  TablePlaces out{std::vector<std::vector<int64_t>>(4), std::vector<std::vector<float>>(4)};
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at, 0, table_side - 1); };
  for (const Grid& g : grids) {
    const std::vector<float> down = line_of(g[1]), along = line_of(g[2]);
    for (int64_t f = 0; f < g[0]; ++f)
      each_patch(g, merge, [&](int64_t r, int64_t c) {
        const float y = down[static_cast<size_t>(r)], x = along[static_cast<size_t>(c)];
        const auto above = static_cast<int64_t>(std::floor(y)), before = static_cast<int64_t>(std::floor(x));
        const int64_t top = clamped(above), left = clamped(before);
        const int64_t bottom = clamped(above + 1), right = clamped(before + 1);
        const float dy = y - static_cast<float>(above), dx = x - static_cast<float>(before);
        const std::array<int64_t, 4> entry = {top * table_side + left, top * table_side + right,
                                              bottom * table_side + left, bottom * table_side + right};
        const std::array<float, 4> share = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
        for (size_t k = 0; k < 4; ++k) out.entry[k].push_back(entry[k]), out.share[k].push_back(share[k]);
      });
  }
  return out;
}
}  // namespace

TablePlaces table_corners(const std::vector<Grid>& grids, int64_t merge, int64_t table_side) {
  return table_of_four(grids, merge, table_side, [&](int64_t count) { return line(table_side - 1, count); });
}

TablePlaces table_linear(const std::vector<Grid>& grids, int64_t merge, int64_t table_side) {
  return table_of_four(grids, merge, table_side, [&](int64_t count) { return line_between_edges(table_side, count); });
}

namespace {
// The shares of the four entries around a place that lies `t` behind the second, as torch's bicubic has them.
std::array<float, 4> cubic_shares(float t) {
  constexpr float a = -0.75F;
  const auto near = [&](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [&](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// Of each of `count` places along a side.
struct CubicLine {
  CubicLine(int64_t table_side, int64_t count) {
    const float scale = static_cast<float>(table_side) / static_cast<float>(count);
    for (int64_t i = 0; i < count; ++i) {
      const float at = scale * (static_cast<float>(i) + 0.5F) - 0.5F;
      const auto first = static_cast<int64_t>(std::floor(at));
      share.push_back(cubic_shares(at - static_cast<float>(first)));
      auto& own = entry.emplace_back();
      for (int64_t k = 0; k < 4; ++k)
        own[static_cast<size_t>(k)] = std::clamp<int64_t>(first - 1 + k, 0, table_side - 1);
    }
  }
  std::vector<std::array<int64_t, 4>> entry;
  std::vector<std::array<float, 4>> share;
};
}  // namespace

TablePlaces table_cubic(const std::vector<Grid>& grids, int64_t merge, int64_t table_side) {
  TablePlaces all{std::vector<std::vector<int64_t>>(16), std::vector<std::vector<float>>(16)}, out;
  for (const Grid& g : grids) {
    const CubicLine down(table_side, g[1]), along(table_side, g[2]);
    for (int64_t f = 0; f < g[0]; ++f)
      each_patch(g, merge, [&](int64_t row, int64_t column) {
        const auto r = static_cast<size_t>(row), c = static_cast<size_t>(column);
        for (size_t k = 0; k < 16; ++k) {
          all.entry[k].push_back(down.entry[r][k / 4] * table_side + along.entry[c][k % 4]);
          all.share[k].push_back(down.share[r][k / 4] * along.share[c][k % 4]);
        }
      });
  }
  for (size_t k = 0; k < 16; ++k) {
    if (std::all_of(all.share[k].begin(), all.share[k].end(), [](float share) { return share == 0; })) continue;
    out.entry.push_back(std::move(all.entry[k])), out.share.push_back(std::move(all.share[k]));
  }
  return out;
}

namespace {
// The first entry that each of `count` places along a side covers, and the shares of that and of those behind it.
struct CoveredLine {
  CoveredLine(int64_t table_side, int64_t count) {
    const float scale = static_cast<float>(table_side) / static_cast<float>(count), reach = std::max(scale, 1.0F);
    for (int64_t i = 0; i < count; ++i) {
      const float centre = scale * (static_cast<float>(i) + 0.5F) - 0.5F;
      first.push_back(std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach)) + 1));
      std::vector<float>& own = share.emplace_back();
      float sum = 0;
      for (int64_t at = first.back(); at < table_side && static_cast<float>(at) < centre + reach; ++at) {
        own.push_back(1 - std::abs(static_cast<float>(at) - centre) / reach);
        sum += own.back();
      }
      for (float& each : own) each /= sum;
      most = std::max(most, own.size());
    }
  }
  std::vector<int64_t> first;
  std::vector<std::vector<float>> share;
  size_t most = 0;
};
}  // namespace

TablePlaces table_covered(const std::vector<Grid>& grids, int64_t merge, int64_t table_side) {
  std::vector<std::pair<CoveredLine, CoveredLine>> lines;
  size_t high = 1, wide = 1;
  for (const Grid& g : grids) {
    const auto& [down, along] = lines.emplace_back(CoveredLine(table_side, g[1]), CoveredLine(table_side, g[2]));
    high = std::max(high, down.most), wide = std::max(wide, along.most);
  }
  TablePlaces out{std::vector<std::vector<int64_t>>(high * wide), std::vector<std::vector<float>>(high * wide)};
  for (size_t n = 0; n < grids.size(); ++n) {
    const CoveredLine &down = lines[n].first, &along = lines[n].second;
    for (int64_t f = 0; f < grids[n][0]; ++f)
      each_patch(grids[n], merge, [&](int64_t row, int64_t column) {
        const auto r = static_cast<size_t>(row), c = static_cast<size_t>(column);
        for (size_t k = 0; k < high * wide; ++k) {
          const size_t y = k / wide, x = k % wide;
          const bool covers = y < down.share[r].size() && x < along.share[c].size();
          out.entry[k].push_back(covers ? (down.first[r] + static_cast<int64_t>(y)) * table_side + along.first[c] +
                                              static_cast<int64_t>(x)
                                        : 0);
          out.share[k].push_back(covers ? down.share[r][y] * along.share[c][x] : 0);
        }
      });
  }
  return out;
}

}  // namespace apus
