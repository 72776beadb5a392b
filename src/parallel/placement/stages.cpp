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
  const int64_t pieces = wish.stages * wish.pieces;
  Counts counts(static_cast<size_t>(pieces), 0);
  const int64_t given = (wish.first ? 1 : 0) + (wish.last ? 1 : 0), others = pieces - given,
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
  require(wish.pieces == 1 || (wish.stages > 1 && !wish.first && !wish.last), Fault::Usage,
          "--virtual_pipeline_model_parallel_size cuts the layers of each stage into pieces: it needs "
          "--pipeline_model_parallel_size, and in place of --decoder_first_pipeline_num_layers and "
          "--decoder_last_pipeline_num_layers --pipeline_model_parallel_layout with the layers of every piece");
  const int64_t pieces = wish.stages * wish.pieces;
  require(layers >= pieces, Fault::Usage, "every stage of a pipeline needs a layer at least",
          wish.pieces > 1 ? " for each of its pieces" : "", ", and ", pieces, wish.pieces > 1 ? " pieces" : " stages",
          " share ", layers);
  const Counts counts = wish.layout.empty() ? even_counts(layers, wish) : counts_of(wish.layout);
  const bool fits = wish.pieces == 1 ? std::ssize(counts) % wish.stages == 0 : std::ssize(counts) == pieces;
  require(fits, Fault::Usage, kLayoutFlag, wish.layout, " has ", counts.size(),
          " stages, and --pipeline_model_parallel_size is ", wish.stages,
          wish.pieces > 1 ? str(", with ", wish.pieces, " pieces each") : "");
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

namespace {
// Micro-batches go through the pieces by groups, none smaller than there are stages where there are as many.
int64_t groups_of(int64_t stages, int64_t micro_batches) { return std::max<int64_t>(1, micro_batches / stages); }

// All passes of one direction: each group goes through one piece after another.
std::vector<PipelinePass> passes_of(int stages, int64_t micro_batches, int pieces, bool backward) {
  std::vector<PipelinePass> passes;
  const auto groups = static_cast<int>(groups_of(stages, micro_batches));
  for (int group = 0; group < groups; ++group)
    for (int i = 0; i < pieces; ++i) {
      const Range members = part_of(micro_batches, group, groups);
      for (int64_t m = members.begin; m < members.begin + members.size; ++m)
        passes.push_back({m, backward, backward ? pieces - 1 - i : i});
    }
  return passes;
}

// Forward passes before the first backward one.
int64_t passes_ahead(int64_t stage, int64_t stages, int64_t micro_batches, int64_t pieces) {
  const int64_t groups = groups_of(stages, micro_batches), group = (micro_batches + groups - 1) / groups;
  const int64_t ahead = pieces == 1 ? stages - stage - 1 : 2 * (stages - stage - 1) + (pieces - 1) * group;
  return std::min(ahead, pieces * micro_batches);
}
}  // namespace

std::vector<PipelinePass> one_forward_one_backward(int stage, int stages, int64_t micro_batches, int pieces) {
  const auto forward = passes_of(stages, micro_batches, pieces, false),
             backward = passes_of(stages, micro_batches, pieces, true);
  std::vector<PipelinePass> passes;
  const auto all = forward.size(), ahead = static_cast<size_t>(passes_ahead(stage, stages, micro_batches, pieces));
  for (size_t i = 0; i < all + ahead; ++i) {
    if (i < all) passes.push_back(forward[i]);
    if (i >= ahead) passes.push_back(backward[i - ahead]);
  }
  return passes;
}

int64_t passes_kept(int64_t stage, int64_t stages, int64_t micro_batches, int64_t pieces) {
  return std::min(passes_ahead(stage, stages, micro_batches, pieces) + 1, pieces * micro_batches);
}

}  // namespace apus
