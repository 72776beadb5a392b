// SPDX-License-Identifier: Apache-2.0
// Opens libapus.so, which holds everything on the tensor library, when a command needs it.
#include "cli/heavy.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using Entry = int (*)(const char* name, const void* options);  // apus_run_command of run/runner.h

// Beside the program (a build folder), or in the lib folder of an installation.
std::vector<fs::path> candidates() {
  std::error_code code;
  const fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path();
  return {folder / "libapus.so", folder.parent_path() / "lib" / "libapus.so",
          folder.parent_path() / "lib" / "apus" / "libapus.so"};
}

// The tensor library's threads wait for work by spinning for milliseconds, which on a machine with other work starves
// the very thread they wait for: steps took several times as long. A short spin costs nothing on a free machine.
// Read by the OpenMP library when it is loaded; whoever has set one of these knows better.
void shorten_spinning() {
  if (!std::getenv("OMP_WAIT_POLICY")) ::setenv("GOMP_SPINCOUNT", "2000", /*overwrite=*/0);
}

Entry open_module() {
  shorten_spinning();
  std::vector<std::string> looked_at;
  for (const auto& path : candidates()) {
    std::error_code code;
    looked_at.push_back(path.string());
    if (!fs::exists(path, code)) continue;
    // Global, because device libraries opened later need the tensor library's symbols.
    void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!module) {
      const char* why = ::dlerror();
      fail(Fault::Device, path.string(), " cannot be loaded: ", why ? why : "unknown reason",
           "\nIt needs the libtorch it was built with (see `apus --version` and docs/dependencies.md); build again "
           "after an update of torch.");
    }
    auto* entry = reinterpret_cast<Entry>(::dlsym(module, "apus_run_command"));
    require(entry, Fault::Device, path.string(),
            " is not of this version of Apus: it lacks apus_run_command. Build again.");
    return entry;
  }
  fail(Fault::Device, "this command needs libapus.so (everything on libtorch), and it is at none of: ", join(looked_at),
       "\nIt is built beside the program unless CMake was told -DAPUS_HOST_ONLY=ON.");
}

}  // namespace

int run_heavy(const char* command, const void* options) {
  static const Entry entry = open_module();
  return entry(command, options);
}

}  // namespace apus
