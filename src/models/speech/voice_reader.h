// SPDX-License-Identifier: Apache-2.0
// Learns the voice of a recording, on the processor.
#pragma once

#include "models/spec/clone_spec.h"
#include "models/towers/parts.h"

namespace apus {

class VoiceReader {
 public:
  explicit VoiceReader(const CloneSpec& spec);
  TowerParts& manner_parts() { return manner_parts_; }
  TowerParts& coder_parts() { return coder_parts_; }
  // sample_N: f32 at kSpeechRate. Who speaks -> a row of the talker's width.
  at::Tensor speaker(const at::Tensor& sample_N) const;
  // How -> int64 [frames, codes].
  at::Tensor codes(const at::Tensor& sample_N) const;

 private:
  const CloneSpec& spec_;
  TowerParts manner_parts_, coder_parts_;
};

}  // namespace apus
