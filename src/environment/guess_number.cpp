// SPDX-License-Identifier: Apache-2.0
// A number is to be guessed; every guess is told whether it is too low or too high. The row's columns "low" and "high"
// (1 and 100) bound it, "number" is it; otherwise it is drawn, the same for all answers of a group. Worth 1 when found.
#include <cctype>

#include "base/error.h"
#include "base/random.h"
#include "environment/environment.h"

namespace apus {
namespace {

// The last whole number of a text, of few digits.
std::optional<int64_t> last_whole_number(const std::string& text) {
  size_t end = text.size();
  while (end > 0 && !std::isdigit(static_cast<unsigned char>(text[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  if (begin == end || end - begin > 15) return std::nullopt;
  const bool minus = begin > 0 && text[begin - 1] == '-';
  return (minus ? -1 : 1) * std::stoll(text.substr(begin, end - begin));
}

int64_t whole(const Json& row, const char* name, int64_t otherwise) {
  const Json* value = column(row, {name});
  require(!value || value->is_number_integer(), Fault::Data, "guess_number: the row's column '", name, "' is ",
          value ? value->dump().substr(0, 100) : "", ", and no whole number");
  return value ? value->get<int64_t>() : otherwise;
}

class GuessNumber final : public Episode {
 public:
  GuessNumber(const Json& row, uint64_t seed) : low_(whole(row, "low", 1)), high_(whole(row, "high", 100)) {
    require(low_ <= high_ && high_ - low_ < (int64_t{1} << 40), Fault::Data, "guess_number: nothing lies between ",
            low_, " and ", high_, " (columns 'low' and 'high'), or far too much");
    Random random(seed, "guess_number");
    number_ = whole(row, "number", low_ + static_cast<int64_t>(random.below(static_cast<uint64_t>(high_ - low_) + 1)));
  }
  static Json tools() { return nullptr; }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const auto guess = last_whole_number(turn.text);
    if (!guess) return {.messages = user_says(str("Say a number from ", low_, " to ", high_, "."))};
    if (*guess == number_) return {.reward = 1, .done = true};
    return {.messages = user_says(*guess < number_ ? "higher" : "lower")};
  }

 private:
  const int64_t low_, high_;
  int64_t number_;
};

const RegisterEnvironment<GuessNumber> guess_number("guess_number");

}  // namespace
}  // namespace apus
