// SPDX-License-Identifier: Apache-2.0
// The machine as the doctor sees it, as one value: a test describes another machine by another value.
// Paths are those of that machine ("/usr/local/..."), wherever its files lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace apus {

struct Ran {
  int code = 0;  // exit code; 128 + signal; 124 when it did not end in time
  // Standard output and standard error together, the first megabyte.
  std::string output;
};

struct Space {
  int64_t total = 0, free = 0;  // bytes
};

struct Host {
  using Path = std::filesystem::path;
  Path root = "/";  // where that machine's "/" is
  std::map<std::string, std::string> env;
  Path program = "/usr/bin/apus";             // this program
  int64_t memory_total = 0, memory_free = 0;  // bytes, within the container's limit
  int usable_cores = 1;                       // physical, within affinity and quota
  int64_t open_files = 0;                     // limit of this process
  int64_t now = 0;                            // seconds since 1970
  // `program` is a real path.
  std::function<Ran(const Path& program, const std::vector<std::string>& arguments, double limit_s)> run_file;
  std::function<std::optional<Space>(const Path&)> space_of;  // of a real path
  std::function<bool(int port)> port_is_free;

  std::string variable(const std::string& name) const;  // "" when unset
  bool exists(const Path& path) const;
  std::optional<std::string> text(const Path& path, size_t limit = size_t{1} << 20) const;
  std::string first_line(const Path& path) const;                                   // "" when there is none
  std::vector<std::string> names_in(const Path& folder, size_t most = 4096) const;  // sorted
  Path resolved(const Path& path) const;               // links followed within the root; empty when it leads nowhere
  Path real(const Path& path) const;                   // where it is in truth
  std::optional<Space> space(const Path& path) const;  // of the folder, or of the nearest one above that exists

  Path find_program(const std::string& name) const;  // on PATH and in the vendors' usual places; empty: none
  std::optional<Ran> run(const std::string& name, const std::vector<std::string>& arguments, double limit_s = 20) const;
};

Host this_machine(const std::filesystem::path& root = "/");

}  // namespace apus
