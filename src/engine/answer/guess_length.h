// SPDX-License-Identifier: Apache-2.0
// How many tokens are guessed at a time for one answer. No tensor library.
#pragma once

#include <algorithm>
#include <cstdint>

namespace apus {

// At most what DraftSpec::tokens says, fewer where guesses are wrong: a pass whose guesses are all right has two more
// behind it, any other one less.
class GuessLength {
 public:
  int64_t next(int64_t most) {  // for the coming pass
    if (length_ == 0) length_ = most;
    if (guessed_ > 0) length_ += right_ == guessed_ ? 2 : -1;
    length_ = std::clamp<int64_t>(length_, 1, std::max<int64_t>(1, most));
    guessed_ = right_ = 0;
    return std::min(length_, most);
  }
  void guessed(int64_t count) { guessed_ = count; }
  void right(bool one) { right_ += one; }  // of the tokens of the pass

 private:
  int64_t length_ = 0, guessed_ = 0, right_ = 0;  // length 0: nothing was guessed yet
};

}  // namespace apus
