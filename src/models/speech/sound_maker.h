// SPDX-License-Identifier: Apache-2.0
// What makes sound of frames of codes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace apus {

// In whose voice, where the codes do not say it; and of what the noise is made that sound may begin as.
struct SoundWish {
  std::string voice = "";
  uint64_t seed = 0;
};

class SoundMaker {
 public:
  virtual ~SoundMaker() = default;
  // code_FG int64 [frames, codes], at least one frame -> samples [n] f32 in [-1, 1], on the processor.
  virtual at::Tensor sound(const at::Tensor& code_FG, const SoundWish& wish) const = 0;
  virtual int64_t samples_per_frame() const = 0;
  // Frames that are decoded again before a piece of speech, for what they leave behind in it; -1: speech is made whole.
  virtual int64_t context() const { return -1; }
};

}  // namespace apus
