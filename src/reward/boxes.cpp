// SPDX-License-Identifier: Apache-2.0
// iou: how well the boxes of an answer cover those of the row's `solution`. Both are in the words of the model's
// family, in which a picture's sides may have any length: parts of areas do not depend on it.
#include "base/boxes.h"

#include <cmath>

#include "reward/reward.h"

namespace apus {
namespace {

class Overlap final : public SingleReward {
 public:
  explicit Overlap(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    const std::vector<Box> wanted = said_boxes(solution_of(answer, "iou"));
    return wanted.empty() ? std::nan("") : overlap(said_boxes(answer.completion), wanted);
  }
};

const RegisterReward<Overlap> iou("iou");

}  // namespace
}  // namespace apus
