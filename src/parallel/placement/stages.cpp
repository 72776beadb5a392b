// SPDX-License-Identifier: Apache-2.0
#include "parallel/placement/stages.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "dist/launch/stage_cut.h"

namespace apus {

namespace {

using Counts = std::vector<int64_t>;
constexpr size_t kLongestLayout = 4096;
constexpr const char* kLayoutFlag = "--pipeline_model_parallel_layout ";

// "6,7,7,4"
Counts numbers_of(const std::string& text) {
  Counts counts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const bool number = !word.empty() && word.size() < 7 &&
                        std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    require(number, Fault::Usage, kLayoutFlag, text, ": '", word, "' is no number of layers");
    counts.push_back(std::stol(word));
  }
  return counts;
}

// Megatron's letters: E the embedding, t a layer, L the loss, | between stages; "t*3" and "(t|)*3" repeat.
class LetterReader {
 public:
  explicit LetterReader(const std::string& text) : text_(text) {}

  Counts counts() {
    const std::string all = sequence(0);
    require(at_ == text_.size(), Fault::Usage, kLayoutFlag, text_, ": a ')' without '('");
    require(std::count(all.begin(), all.end(), 'E') == 1 && all.front() == 'E' &&
                std::count(all.begin(), all.end(), 'L') == 1 && all.back() == 'L',
            Fault::Usage, kLayoutFlag, text_, " must begin with E, the embedding, and end with L, the loss");
    Counts counts(1, 0);
    for (const char c : all)
      if (c == '|')
        counts.push_back(0);
      else
        counts.back() += c == 't';
    return counts;
  }

 private:
  std::string sequence(int depth) {
    std::string out;
    for (; at_ < text_.size() && text_[at_] != ')';) {
      const char c = text_[at_++];
      if (c == ',' || c == ' ') continue;
      std::string item(1, c);
      if (c == '(') {
        require(depth < 8, Fault::Usage, kLayoutFlag, text_, ": too many '(' in one another");
        item = sequence(depth + 1);
        require(at_ < text_.size(), Fault::Usage, kLayoutFlag, text_, ": a '(' without ')'");
        ++at_;
      } else {
        require(c == 'E' || c == 't' || c == 'L' || c == '|', Fault::Usage, kLayoutFlag, text_, ": '", item,
                "' is not possible; possible: E the embedding, t a layer, L the loss, | between stages, t*3, (t|)*3");
      }
      for (int64_t n = times(); n > 0; --n) {
        out += item;
        require(out.size() <= kLongestLayout, Fault::Usage, kLayoutFlag, text_, " means too many layers");
      }
    }
    return out;
  }
  int64_t times() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    int64_t n = 0;
    const size_t begin = ++at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && n < 10000; ++at_)
      n = n * 10 + (text_[at_] - '0');
    require(at_ > begin && n > 0, Fault::Usage, kLayoutFlag, text_, ": '*' wants a number behind it");
    return n;
  }
  const std::string& text_;
  size_t at_ = 0;
};

Counts counts_of(const std::string& layout) {
  require(layout.size() <= kLongestLayout, Fault::Usage, kLayoutFlag, "is too long");
  const bool letters = layout.find_first_of("EtL|") != std::string::npos;
  return letters ? LetterReader(layout).counts() : numbers_of(layout);
}

// The first ones get what does not come out even.
Counts even_counts(int64_t layers, const StageWish& wish) {
  Counts counts(static_cast<size_t>(wish.stages), 0);
  const int64_t given = (wish.first ? 1 : 0) + (wish.last ? 1 : 0), others = wish.stages - given,
                rest = layers - wish.first.value_or(0) - wish.last.value_or(0);
  require(others > 0 ? rest >= others : rest == 0, Fault::Usage,
          "--decoder_first_pipeline_num_layers and "
          "--decoder_last_pipeline_num_layers leave ",
          rest, " of ", layers, " layers to the other ", others, " stages",
          others > 0 ? ", which want one at least each" : "");
  int64_t number = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool first = i == 0 && wish.first, last = i + 1 == counts.size() && wish.last;
    counts[i] = first  ? *wish.first
                : last ? *wish.last
                       : part_of(rest, static_cast<int>(number++), static_cast<int>(others)).size;
  }
  return counts;
}

}  // namespace

std::vector<Range> stage_layers(int64_t layers, const StageWish& wish, int64_t seen) {
  require(wish.stages >= 1 && wish.stages <= kMostStages, Fault::Usage, "--pipeline_model_parallel_size ", wish.stages,
          ": possible are 1 to ", kMostStages);
  require(wish.layout.empty() || (!wish.first && !wish.last), Fault::Usage,
          "--pipeline_model_parallel_layout says the layers of every stage: leave out "
          "--decoder_first_pipeline_num_layers and --decoder_last_pipeline_num_layers");
  require(layers >= wish.stages, Fault::Usage, "every stage of a pipeline needs a layer at least, and ", wish.stages,
          " stages share ", layers);
  const Counts counts = wish.layout.empty() ? even_counts(layers, wish) : counts_of(wish.layout);
  require(std::ssize(counts) == wish.stages, Fault::Usage, kLayoutFlag, wish.layout, " has ", counts.size(),
          " stages, and --pipeline_model_parallel_size is ", wish.stages);
  require(std::none_of(counts.begin(), counts.end(), [](int64_t n) { return n < 1; }), Fault::Usage, kLayoutFlag,
          wish.layout, ": every stage needs a layer at least");
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  require(all == layers, Fault::Usage, kLayoutFlag, wish.layout, " has ", all, " layers, and the model ", layers);
  require(counts[0] >= seen, Fault::Usage, "the first stage runs ", counts[0], counts[0] == 1 ? " layer" : " layers",
          ", and what this model sees goes into the first ", seen,
          ": take fewer stages, or --decoder_first_pipeline_num_layers ", seen);
  std::vector<Range> ranges;
  for (int64_t begin = 0; const int64_t n : counts) ranges.push_back({begin, n}), begin += n;
  return ranges;
}

std::vector<PipelinePass> one_forward_one_backward(int stage, int stages, int64_t micro_batches) {
  std::vector<PipelinePass> passes;
  const int64_t ahead = std::min<int64_t>(stages - stage - 1, micro_batches);
  for (int64_t i = 0; i < micro_batches + ahead; ++i) {
    if (i < micro_batches) passes.push_back({i, false});
    if (i >= ahead) passes.push_back({i - ahead, true});
  }
  return passes;
}

}  // namespace apus
