// SPDX-License-Identifier: Apache-2.0
// Tokenizer speed on one core: load time, encode and decode in MB/s over files cut into chunks of 4000 characters, and
// inputs of 200 000 characters without a space. Times are processor time of this thread, so that a busy machine
// disturbs them little. peer.js prints the same figures for the peer.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using namespace apus;

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The best of `rounds` times, in seconds.
template <class Work>
double best_of(int rounds, Work&& work) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double start = processor_seconds();
    work();
    best = std::min(best, processor_seconds() - start);
  }
  return best;
}

std::vector<std::string> chunks(const std::string& text, size_t characters) {
  std::vector<std::string> parts(1);
  size_t count = 0;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char* begin = p;
    unicode::next_char(p);
    if (count++ == characters) parts.emplace_back(), count = 1;
    parts.back().append(begin, p);
  }
  return parts;
}

void measure_file(const Tokenizer& tokenizer, const std::filesystem::path& path) {
  const std::string text = unicode::lossy(read_file(path));
  const auto parts = chunks(text, 4000);
  std::vector<std::vector<int32_t>> ids(parts.size());
  const double encode = best_of(5, [&] {
    for (size_t i = 0; i < parts.size(); ++i) ids[i] = tokenizer.encode(parts[i]);
  });
  size_t tokens = 0, bytes = 0;
  for (const auto& row : ids) tokens += row.size();
  const double decode = best_of(5, [&] {
    for (const auto& row : ids) bytes += tokenizer.decode(row).size();
  });
  const double mb = static_cast<double>(text.size()) / 1e6;
  std::printf("%-24s %7.2f MB %9zu tokens  encode %7.1f MB/s  decode %7.1f MB/s\n", path.filename().c_str(), mb, tokens,
              mb / encode, mb / decode);
}

void measure_long(const Tokenizer& tokenizer, const char* name, const std::string& unit, size_t times, bool vary) {
  std::string text;
  uint32_t state = 1;
  for (size_t i = 0; i < times; ++i) {
    state = state * 1664525u + 1013904223u;
    if (!vary)
      text += unit;
    else if (unit.size() == 1)
      text += static_cast<char>('a' + (state >> 16) % 26);
    else
      unicode::append(text, 0x4E00 + (state >> 8) % 20000);
  }
  size_t tokens = 0;
  const double time = best_of(3, [&] { tokens = tokenizer.encode(text).size(); });
  std::printf("%-24s %7.2f MB %9zu tokens  %7.1f ms\n", name, static_cast<double>(text.size()) / 1e6, tokens,
              time * 1e3);
}

int run(int argc, char** argv) {
  require(argc >= 2, Fault::Usage, "usage: tokenize_bench TOKENIZER_DIR [TEXT_FILE ...]");
  std::shared_ptr<const Tokenizer> tokenizer;
  std::printf("load %.1f ms (best of 3)\n", best_of(3, [&] { tokenizer = Tokenizer::load(argv[1]); }) * 1e3);
  for (int i = 2; i < argc; ++i) measure_file(*tokenizer, argv[i]);
  measure_long(*tokenizer, "200k x a", "a", 200'000, false);
  measure_long(*tokenizer, "200k random letters", "a", 200'000, true);
  measure_long(*tokenizer, "200k random hanzi", "中", 200'000, true);
  measure_long(*tokenizer, "200k spaces", " ", 200'000, false);
  measure_long(*tokenizer, "20k x <|image_pad|>", "<|image_pad|>", 20'000, false);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code(e.at.fault);
  }
}
