// SPDX-License-Identifier: Apache-2.0
// media_bench PICTURE [rounds]: milliseconds in which one thread makes Qwen2.5-VL's patches of a picture's file, and of
// decoding and resizing alone. The best of the rounds. compare.py runs it beside Pillow and numpy.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "base/files.h"
#include "media/image.h"
#include "media/processor.h"

namespace {
double best_ms(int rounds, const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}
}  // namespace

int main(int count, char** words) {
  if (count < 2) return std::fprintf(stderr, "usage: media_bench PICTURE [rounds]\n"), 2;
  const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 20;
  const std::string bytes = apus::read_file(words[1], 64 << 20);
  const auto processor = apus::make_media_processor({.config = {{"model_type", "qwen2_5_vl"}},
                                                     .preprocessor = {{"min_pixels", 3136}, {"max_pixels", 12845056}},
                                                     .tokenizer = nullptr,
                                                     .settings = {},
                                                     .max_pixels = {}});
  const apus::Image image = apus::decode_image(bytes);
  const double decode = best_ms(rounds, [&] { apus::decode_image(bytes); });
  const double resize = best_ms(rounds, [&] { processor->views(image); });
  const double all = best_ms(rounds, [&] { processor->image(apus::decode_image(bytes)); });
  std::printf("{\"decode_ms\": %.3f, \"resize_ms\": %.3f, \"all_ms\": %.3f}\n", decode, resize, all);
  return 0;
}
