// SPDX-License-Identifier: Apache-2.0
#include "doctor/host.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace apus {
namespace fs = std::filesystem;

std::string Host::variable(const std::string& name) const {
  const auto it = env.find(name);
  return it == env.end() ? "" : it->second;
}

// Follows links one component at a time: a link's absolute target is meant below the root as well.
Host::Path Host::resolved(const Path& path) const {
  std::vector<Path> rest;  // what is still to walk, last first
  const auto push = [&](const Path& p) {
    const std::vector<Path> parts(p.begin(), p.end());
    for (auto it = parts.rbegin(); it != parts.rend(); ++it) rest.push_back(*it);
  };
  push(path.relative_path());
  Path at = "/";
  for (int links = 0; !rest.empty();) {
    const Path part = rest.back();
    rest.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      at = at.parent_path();
      continue;
    }
    const Path next = at / part;
    std::error_code code;
    const auto status = fs::symlink_status(root / next.relative_path(), code);
    if (code || status.type() == fs::file_type::not_found) return {};
    if (status.type() != fs::file_type::symlink) {
      at = next;
      continue;
    }
    if (++links > 40) return {};
    const Path target = fs::read_symlink(root / next.relative_path(), code);
    if (code) return {};
    if (target.is_absolute()) at = "/";
    push(target.relative_path());
  }
  return at;
}

Host::Path Host::real(const Path& path) const {
  const Path inside = resolved(path);
  return inside.empty() ? root / path.relative_path() : root / inside.relative_path();
}

bool Host::exists(const Path& path) const { return !resolved(path).empty(); }

std::optional<std::string> Host::text(const Path& path, size_t limit) const {
  if (!exists(path)) return std::nullopt;
  std::error_code code;
  if (!fs::is_regular_file(real(path), code)) return std::nullopt;
  std::ifstream in(real(path), std::ios::binary);
  if (!in) return std::nullopt;
  std::string text(limit, '\0');
  in.read(text.data(), static_cast<std::streamsize>(limit));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

std::string Host::first_line(const Path& path) const {
  const std::string all = text(path).value_or("");
  return all.substr(0, all.find('\n'));
}

std::vector<std::string> Host::names_in(const Path& folder, size_t most) const {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(real(folder), code), end; !code && it != end && names.size() < most;
       it.increment(code))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<Space> Host::space(const Path& path) const {
  Path at = path.is_absolute() ? path : fs::absolute(path);
  while (!exists(at) && at.has_relative_path()) at = at.parent_path();
  return space_of ? space_of(real(at)) : std::nullopt;
}

Host::Path Host::find_program(const std::string& name) const {
  std::istringstream folders(variable("PATH") +
                             ":/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/local/Ascend/driver/tools");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty() || folder[0] != '/') continue;
    std::error_code code;
    const Path path = Path(folder) / name;
    if (exists(path) && fs::is_regular_file(real(path), code)) return path;
  }
  return {};
}

std::optional<Ran> Host::run(const std::string& name, const std::vector<std::string>& arguments, double limit_s) const {
  const Path path = find_program(name);
  if (path.empty() || !run_file) return std::nullopt;
  return run_file(real(path), arguments, limit_s);
}

}  // namespace apus
