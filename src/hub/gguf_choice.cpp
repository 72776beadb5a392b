// SPDX-License-Identifier: Apache-2.0
#include "hub/gguf_choice.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

namespace {

std::string in_small_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "q4_k_m" is a word of "model.Q4_K_M-00001-of-00002.gguf", "q4_k" is none.
bool has_word(const std::string& path, const std::string& type) {
  const std::string text = in_small_letters(path), word = in_small_letters(type);
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

// What the parts of a file are called alike: without -00001-of-00003.
std::string without_part(const std::string& path) {
  const size_t of = path.rfind("-of-");
  return of != std::string::npos && of >= 6 && path[of - 6] == '-' ? path.substr(0, of - 6) : path;
}

std::string first_of(const std::vector<std::string>& paths, std::initializer_list<const char*> types) {
  for (const char* type : types)
    for (const std::string& path : paths)
      if (has_word(path, type)) return path;
  return paths.empty() ? "" : paths.front();
}

}  // namespace

GgufWish gguf_wish(const std::string& model) {
  const size_t colon = model.rfind(':');
  const bool typed = colon != std::string::npos && colon + 1 < model.size() && model.find('/') < colon &&
                     std::all_of(model.begin() + static_cast<std::ptrdiff_t>(colon) + 1, model.end(),
                                 [](char c) { return is_word(c) || c == '-' || c == '.'; });
  return typed ? GgufWish{model.substr(0, colon), model.substr(colon + 1)} : GgufWish{model, ""};
}

bool is_gguf_path(const std::string& path) { return in_small_letters(path).ends_with(".gguf"); }
bool is_tower_path(const std::string& path) {
  return in_small_letters(path.substr(path.rfind('/') + 1)).find("mmproj") != std::string::npos;
}

std::vector<std::string> GgufFiles::all() const {
  std::vector<std::string> out = model;
  out.insert(out.end(), tower.begin(), tower.end());
  return out;
}

GgufFiles gguf_choice(std::vector<std::string> paths, const std::string& type, const std::string& repo) {
  std::erase_if(paths, [](const std::string& path) { return !is_gguf_path(path); });
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> models, towers;
  for (const std::string& path : paths) (is_tower_path(path) ? towers : models).push_back(path);
  std::string chosen = first_of(models, {"q4_k_m", "q4_k_s", "q4_0", "q8_0"});
  if (!type.empty()) {
    const auto found =
        std::find_if(models.begin(), models.end(), [&](const auto& path) { return has_word(path, type); });
    chosen = found == models.end() ? "" : *found;
  }
  std::set<std::string> there;
  for (const std::string& path : models) there.insert(without_part(path));
  require(!chosen.empty(), Fault::Usage, "no GGUF file of ", repo, " is called '", type,
          "'; it has: ", there.empty() ? "none" : join(std::vector<std::string>(there.begin(), there.end())));
  GgufFiles out;
  for (const std::string& path : models)
    if (path == chosen || (without_part(chosen) != chosen && without_part(path) == without_part(chosen)))
      out.model.push_back(path);
  if (!towers.empty()) out.tower = {first_of(towers, {"f16", "bf16", "q8_0"})};
  return out;
}

}  // namespace apus
