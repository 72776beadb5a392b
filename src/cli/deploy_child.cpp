// SPDX-License-Identifier: Apache-2.0
#include "cli/deploy_child.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/files.h"

namespace apus {
namespace fs = std::filesystem;

std::vector<std::string> our_command_line() {
  std::vector<std::string> words(1);
  for (const char c : read_file("/proc/self/cmdline"))
    if (c == '\0')
      words.emplace_back();
    else
      words.back() += c;
  words.pop_back();
  return words;
}

std::string last_words(const fs::path& log) {
  std::error_code code;
  const auto size = static_cast<int64_t>(fs::file_size(log, code));
  std::ifstream in(log);
  constexpr int64_t kMost = 1000;
  in.seekg(std::max<int64_t>(0, size - kMost));
  std::string text(std::istreambuf_iterator<char>(in), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (size > kMost) text.erase(0, text.find('\n') + 1);
  return text.empty() ? "" : "; the end of what it said:\n" + text;
}

}  // namespace apus
