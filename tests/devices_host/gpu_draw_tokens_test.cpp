// SPDX-License-Identifier: Apache-2.0
// Tokens drawn by the GPU's kernel against the rules of the host.
#include <algorithm>

#include "tests/devices_host/gpu_kernels.h"
#include "tests/engine_host/drawn_rows.h"

namespace apus::kernels::draw_tokens {
#include "devices/cuda/kernels/draw_tokens.cu"
}

namespace apus::testing_draws {
namespace {

using kernels::draw_tokens::Rule;

// The rows stand in every second row of a wider tensor.
void draw_all(const std::vector<Row>& rows, const std::vector<Sampling>& wishes, unsigned threads,
              const std::string& what) {
  const size_t size = rows[0].size(), stride = 2 * size;
  std::vector<float> logits(rows.size() * stride, 1e9f), out(2 * rows.size());
  std::vector<Rule> rules;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), logits.begin() + static_cast<std::ptrdiff_t>(i * stride));
    rules.push_back(rule_of<Rule>(wishes[i], static_cast<double>(i)));
  }
  gpu::launch({static_cast<unsigned>(rows.size())}, {threads}, [&] {
    kernels::draw_tokens::draw(logits.data(), static_cast<long long>(stride), static_cast<int>(size), rules.data(),
                               out.data());
  });
  for (size_t i = 0; i < rows.size(); ++i)
    expect_drawn(&out[2 * i], rows[i], wishes[i],
                 what + ", row " + std::to_string(i) + ", threads " + std::to_string(threads));
}

TEST(GpuDrawTokens, DrawsAsTheHost) {
  const std::vector<Sampling> all = settings();
  size_t first = 0;
  for (const auto& [name, rows] : kinds_of_rows(701))
    for (size_t i = first++ % 4; i < all.size(); i += 4) {
      std::vector<Sampling> wishes;
      for (size_t row = 0; row < rows.size(); ++row) wishes.push_back(all[(i + row) % all.size()]);
      draw_all(rows, wishes, 64, name);
    }
}

// More tokens than are copied, kept, or both; with as many threads as a block has.
TEST(GpuDrawTokens, DrawsFromManyTokens) {
  std::vector<Row> rows{normal_row(9001, 1, 0.3), normal_row(9001, 2, 3), normal_row(9001, 3, 2), Row(9001, -7.f)};
  for (float& x : rows[2]) x = std::round(4 * x) / 4;
  std::vector<std::vector<Sampling>> wishes(4, std::vector<Sampling>(rows.size(), {.top_logprobs = 0}));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t kind = 0; kind < wishes.size(); ++kind) wishes[kind][i].seed = 10 * kind + i;
    wishes[1][i].top_p = 0.97;
    wishes[2][i].top_k = i % 2 ? 50 : 6000;
    wishes[2][i].top_p = i == 2 ? 0.9 : 1;
    wishes[3][i].min_p = 1e-3;
  }
  for (const auto& wish : wishes) draw_all(rows, wish, 1024, "many");
}

}  // namespace
}  // namespace apus::testing_draws
