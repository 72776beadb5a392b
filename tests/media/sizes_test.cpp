// SPDX-License-Identifier: Apache-2.0
#include "media/sizes.h"

#include <gtest/gtest.h>

#include "tests/media/golden_numbers.h"
#include "tests/refusal.h"

namespace apus {
namespace {

SizeLimits table_limits(const Json& table) {
  return {table["factor"].get<int64_t>(), table["min_pixels"].get<int64_t>(), table["max_pixels"].get<int64_t>()};
}

TEST(Sizes, AreThoseOfTheOriginals) {
  const test::ProcessorNumbers golden;
  size_t seen = 0;
  for (const auto& [name, table] : golden.json.items()) {
    if (!name.starts_with("smart_resize/")) continue;
    const SizeLimits limits = table_limits(table);
    const bool video = table["columns"][0] == "num_frames", ovis = name == "smart_resize/ovis2_5";
    for (const Json& row : table["rows"]) {
      const size_t at = video ? 1 : 0;
      const ImageSize size{row[at + 1].get<int64_t>(), row[at].get<int64_t>()};
      const ImageSize wanted{row[at + 3].get<int64_t>(), row[at + 2].get<int64_t>()};
      const ImageSize got = video  ? smart_video_size(row[0].get<int64_t>(), size, limits)
                            : ovis ? ovis_size(size, limits)
                                   : smart_size(size, limits);
      EXPECT_EQ(got.width, wanted.width) << name << " " << row.dump();
      EXPECT_EQ(got.height, wanted.height) << name << " " << row.dump();
      ++seen;
    }
  }
  EXPECT_GE(seen, 280u);
}

TEST(Sizes, HalvesGoToTheEvenNumber) {
  const SizeLimits open{28, 1, 1 << 30};
  EXPECT_EQ(smart_size({70, 42}, open), (ImageSize{56, 56}));  // 2.5 and 1.5 become 2
}

TEST(Sizes, SteepPicturesAreRefused) {
  const SizeLimits open{28, 1, 1 << 30};
  EXPECT_EQ(smart_size({5600, 28}, open), (ImageSize{5600, 28}));
  test::expect_says(test::refusal(Fault::Data, [&] { smart_size({5629, 28}, open); }), "5629 x 28");
  EXPECT_EQ(ovis_size({64 * 300, 64}, {32, 1, 1 << 30}), (ImageSize{64 * 200, 64}));
}

TEST(Sizes, TilesAreThoseOfTheOriginal) {
  const test::ProcessorNumbers golden;
  for (const Json& row : golden.json["internvl/tiling_448"]["rows"]) {
    const TileGrid grid =
        tile_grid({row[3].get<int64_t>(), row[2].get<int64_t>()}, row[0].get<int64_t>(), row[1].get<int64_t>(), 448);
    EXPECT_EQ(grid.columns, row[4].get<int64_t>()) << row.dump();
    EXPECT_EQ(grid.rows, row[5].get<int64_t>()) << row.dump();
  }
}

}  // namespace
}  // namespace apus
