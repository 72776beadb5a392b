// SPDX-License-Identifier: Apache-2.0
// Where the patches of images and videos lie: everything about a grid that needs no tensor. Rows of patches come in
// blocks of merge x merge: frame, block's row, block's column, row in the block, column in the block.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace apus {

// Patches over time, height and width (image_grid_thw).
using Grid = std::array<int64_t, 3>;

inline int64_t patches_of(const Grid& g) { return g[0] * g[1] * g[2]; }

// Of each patch its row and column in its frame.
struct PatchPlaces {
  std::vector<int64_t> row, column;
};
PatchPlaces patch_places(const std::vector<Grid>& grids, int64_t merge);

// Cumulative lengths, beginning with 0, of the runs of patches that see each other: one for each frame.
std::vector<int32_t> frame_ends(const std::vector<Grid>& grids);

// Of each frame, counted over all grids, the lines and columns of patches from its upper left corner that are looked
// at. Beyond them patches look, and are not looked at. Empty: all of every frame are.
using FrameParts = std::vector<std::array<int64_t, 2>>;
// The patches within them, counted over all grids, and the cumulative lengths of the frames' runs.
struct SeenPatches {
  std::vector<int64_t> patch;
  std::vector<int32_t> ends;
};
SeenPatches seen_patches(const std::vector<Grid>& grids, int64_t merge, const FrameParts& parts);

// Merged cells in an order in which each window of `side` x `side` of them is one run, and the cumulative lengths of
// these in patches. Windows at the edges are smaller.
struct Windows {
  std::vector<int64_t> cells;
  std::vector<int32_t> ends;
};
Windows windows_of(const std::vector<Grid>& grids, int64_t merge, int64_t side);

// Each patch's place in a square table of learned positions: the entries around it, and their shares.
struct TablePlaces {
  std::vector<std::vector<int64_t>> entry;
  std::vector<std::vector<float>> share;
};
// Four of them; the table's corners are the image's corners.
TablePlaces table_corners(const std::vector<Grid>& grids, int64_t merge, int64_t table_side);
// Four; the table's edges are the image's edges.
TablePlaces table_linear(const std::vector<Grid>& grids, int64_t merge, int64_t table_side);
// Up to sixteen, by a cubic that bends by -0.75; the table's edges are the image's edges. Entries of which no patch has
// a share are left out: of an image of the table's size one remains.
TablePlaces table_cubic(const std::vector<Grid>& grids, int64_t merge, int64_t table_side);
// As many as the widest patch covers; the table's edges are the image's edges.
TablePlaces table_covered(const std::vector<Grid>& grids, int64_t merge, int64_t table_side);

}  // namespace apus
