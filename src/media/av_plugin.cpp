// SPDX-License-Identifier: Apache-2.0
#include "media/av_plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

AvPlugin open_plugin() {
  std::error_code code;
  const fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path(), above = folder.parent_path();
  // Beside the program or a test of it, or in the lib folder of an installation.
  for (const fs::path& place : {folder, above / "lib", above / "lib" / "apus", above}) {
    const fs::path path = place / "libapus-av.so";
    if (!fs::exists(path, code)) continue;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = ::dlerror();
      return {.problem = str(path.string(), " cannot be loaded: ", why ? why : "unknown reason")};
    }
    return {.video = reinterpret_cast<decltype(&apus_av_video)>(::dlsym(library, "apus_av_video")),
            .sound = reinterpret_cast<decltype(&apus_av_sound)>(::dlsym(library, "apus_av_sound")),
            .write_sound = reinterpret_cast<decltype(&apus_av_write_sound)>(::dlsym(library, "apus_av_write_sound")),
            .problem = ""};
  }
  return {.problem =
              "this build has no libapus-av.so: install libavformat-dev libavcodec-dev libswscale-dev "
              "libswresample-dev and build again"};
}

}  // namespace

const AvPlugin& av_plugin() {
  static const AvPlugin opened = open_plugin();
  return opened;
}

}  // namespace apus
