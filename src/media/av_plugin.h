// SPDX-License-Identifier: Apache-2.0
// libapus-av.so (media/av/plugin.h), opened when it is first asked for.
#pragma once

#include <string>

#include "media/av/plugin.h"

namespace apus {

struct AvPlugin {
  // Null where it is not here, and `problem` says why.
  decltype(&apus_av_video) video = nullptr;
  decltype(&apus_av_sound) sound = nullptr;
  decltype(&apus_av_write_sound) write_sound = nullptr;
  std::string problem;
};
const AvPlugin& av_plugin();

}  // namespace apus
