// SPDX-License-Identifier: Apache-2.0
// How fast rows become micro-batches on one core: read and normalised, encoded, packed and taken out.
//   data_bench TOKENIZER_FOLDER [rows]
// The rows are made up: one to three rounds of English-like words, about 350 tokens each.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/random.h"
#include "data/source/training_data.h"

namespace {

using namespace apus;

std::string words(Random& random, size_t count) {
  static const char* const parts[] = {"the",    "model", "learns",  "from",     "every", "answer",
                                      "tensor", "and",   "of",      "gradient", "12",    "memory,",
                                      "token",  "is",    "faster.", "a",        "with",  "layers"};
  std::string out;
  for (size_t i = 0; i < count; ++i) out += (i ? " " : "") + std::string(parts[random.below(std::size(parts))]);
  return out;
}

void write_rows(const std::filesystem::path& file, int64_t rows) {
  Random random(1, "bench.rows");
  std::ofstream out(file);
  for (int64_t i = 0; i < rows; ++i) {
    Json messages = Json::array({Json{{"role", "system"}, {"content", "You are a helpful assistant."}}});
    for (uint64_t round = 0; round <= random.below(3); ++round) {
      messages.push_back({{"role", "user"}, {"content", words(random, 10 + random.below(60))}});
      messages.push_back({{"role", "assistant"}, {"content", words(random, 20 + random.below(250))}});
    }
    out << json_text(Json{{"messages", messages}}) << '\n';
  }
}

void say(const char* what, double seconds, double tokens, double bytes) {
  std::printf("%-28s %8.3f s  %12.0f tokens/s  %8.1f MB/s\n", what, seconds, tokens / seconds, bytes / seconds / 1e6);
}

int run(int argc, char** argv) {
  const std::filesystem::path folder = argv[1];
  const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 4000;
  const auto file = std::filesystem::temp_directory_path() / "apus-data-bench.jsonl";
  write_rows(file, rows);
  const auto bytes = static_cast<double>(std::filesystem::file_size(file));
  RejectLog rejects({});
  const Encoder encoder(
      Tokenizer::load(folder),
      ChatTemplate::from_text("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor "
                              "%}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
                              "chatml", folder),
      {.max_length = 4096});
  DatasetOptions datasets;
  datasets.train = {file.string()};
  Stopwatch watch;
  const Datasets loaded = load_datasets(datasets, rejects);
  const double reading = watch.seconds();
  watch = Stopwatch();
  const SampleStore samples = encode_rows(
      *loaded.rows, loaded.train, [&](const Row& row) { return encoder.encode(row); }, rejects, 1, "encoding");
  const double encoding = watch.seconds();
  double tokens = 0;
  for (const int64_t length : samples.lengths()) tokens += static_cast<double>(length);
  watch = Stopwatch();
  auto source =
      make_indexed_source(samples.size(), samples.lengths(), [&](int64_t i) { return Samples{samples.get(i)}; },
                          {.packing = true, .packing_length = 4096});
  int64_t packs = 0;
  while (source->next()) ++packs;
  const double packing = watch.seconds();
  std::filesystem::remove(file);
  say("read and normalise", reading, tokens, bytes);
  say("template and tokenise", encoding, tokens, bytes);
  say("pack and take out", packing, tokens, bytes);
  say("all of it", reading + encoding + packing, tokens, bytes);
  std::printf("%lld packs of 4096, %.2f %% full\n", static_cast<long long>(packs),
              100.0 * tokens / (4096.0 * static_cast<double>(packs)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: data_bench TOKENIZER_FOLDER [rows]\n");
    return 2;
  }
  return run(argc, argv);
}
