// SPDX-License-Identifier: Apache-2.0
// A picture on a canvas of square tiles: which canvas, and how large the picture is on it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "media/sizes.h"

namespace apus {

// The canvas that needs the least enlarging of the picture; where all make it smaller, the one that does so least; of
// equals the smallest, and the first of these. `largest`: the one that allows the largest. Real: the numbers that the
// original computes this with.
template <class Real>
TileGrid canvas_for(const std::vector<TileGrid>& canvases, ImageSize size, int64_t side, bool largest = false) {
  const auto scale_of = [&](const TileGrid& g) {
    return std::min(static_cast<Real>(g.columns * side) / static_cast<Real>(size.width),
                    static_cast<Real>(g.rows * side) / static_cast<Real>(size.height));
  };
  const auto better = [&](Real one, Real other) {
    if ((one >= 1) != (other >= 1)) return one >= 1;
    return one >= 1 && !largest ? one < other : one > other;
  };
  TileGrid best = canvases[0];
  for (const TileGrid& g : canvases) {
    const Real own = scale_of(g), so_far = scale_of(best);
    if (better(own, so_far) || (own == so_far && g.rows * g.columns < best.rows * best.columns)) best = g;
  }
  return best;
}

// Its shape kept; small pictures are not made larger than one tile, unless `largest`.
inline ImageSize size_on_canvas(ImageSize size, const TileGrid& canvas, int64_t side, bool largest = false) {
  ImageSize room{canvas.columns * side, canvas.rows * side};
  if (!largest) {
    room.width = std::min(std::max(size.width, side), room.width);
    room.height = std::min(std::max(size.height, side), room.height);
  }
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  const double by_width = of(room.width) / of(size.width), by_height = of(room.height) / of(size.height);
  const auto cut = [](double x, int64_t most) { return std::clamp<int64_t>(static_cast<int64_t>(x), 1, most); };
  if (by_width < by_height) return {room.width, cut(std::floor(of(size.height) * by_width), room.height)};
  return {cut(std::floor(of(size.width) * by_height), room.width), room.height};
}

}  // namespace apus
