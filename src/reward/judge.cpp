// SPDX-License-Identifier: Apache-2.0
// A model that judges in words, behind OpenAI's chat API: `--reward_funcs judge --judge_url http://host:8000/v1`. It is
// shown question and answer and says a number; several answers are judged at the same time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "hub/http.h"
#include "reward/reward.h"

namespace apus {
namespace {

constexpr int kAttempts = 3;  // of a judge that is busy
constexpr int64_t kReplyBytes = 1 << 20;
constexpr size_t kBytesShown = 300;

constexpr const char* kJudgePrompt =
    "Judge how good the answer to the question is: whether it is right, to the point and well said.\n\n"
    "Question:\n{question}\n\nAnswer:\n{answer}\n\n"
    "Explain briefly, and end with a line `Score: N`, N from 0 (useless) to 10 (perfect).";

// {name} becomes its value; what a value holds in braces stays.
std::string filled_in(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
    const auto value = end == std::string::npos ? values.end() : values.find(text.substr(at + 1, end - at - 1));
    if (value == values.end()) {
      out += text[at++];
      continue;
    }
    out += value->second, at = end + 1;
  }
  return out;
}

// What was said before the answer.
std::string question_of(const RewardInput& answer) {
  std::string out;
  if (!answer.row || !answer.row->contains("messages")) return out;
  const Json& messages = (*answer.row)["messages"];
  const size_t last =
      messages.size() && messages.back().value("role", "") == "assistant" ? messages.size() - 1 : messages.size();
  for (size_t i = 0; i < last; ++i) {
    const Json& content = messages[i].contains("content") ? messages[i]["content"] : Json("");
    const std::string text = content.is_string() ? content.get<std::string>() : json_text(content);
    if (!out.empty()) out += "\n";
    out += last == 1 ? text : str(messages[i].value("role", ""), ": ", text);
  }
  return out;
}

// The last number of a text: what it counts up to may be explained before.
std::optional<double> last_number_of(const std::string& text) {
  for (size_t end = text.size(); end > 0; --end) {
    if (text[end - 1] < '0' || text[end - 1] > '9') continue;
    size_t begin = end;
    while (begin > 0 && ((text[begin - 1] >= '0' && text[begin - 1] <= '9') || text[begin - 1] == '.')) --begin;
    while (begin < end && text[begin] == '.') ++begin;
    if (begin > 0 && text[begin - 1] == '-') --begin;
    const double value = std::strtod(text.substr(begin, end - begin).c_str(), nullptr);
    // "8/10" and "8 out of 10" mean 8.
    const std::string before = text.substr(0, begin);
    for (const char* of : {"/", " / ", " out of "}) {
      const std::string word = of;
      if (before.size() > word.size() && before.compare(before.size() - word.size(), word.size(), word) == 0)
        return last_number_of(before.substr(0, before.size() - word.size()));
    }
    return value;
  }
  return std::nullopt;
}

class JudgeReward final : public Reward {
 public:
  explicit JudgeReward(const RewardOptions& o) : o_(o) {
    url_ = *o.judge_url;
    while (!url_.empty() && url_.back() == '/') url_.pop_back();
    url_ += "/chat/completions";
    prompt_ = kJudgePrompt;
    std::error_code code;
    if (o.judge_prompt)
      prompt_ = std::filesystem::exists(*o.judge_prompt, code) ? read_file(*o.judge_prompt, 1 << 20) : *o.judge_prompt;
    headers_ = {"Content-Type: application/json"};
    if (const char* key = std::getenv("JUDGE_API_KEY")) headers_.push_back(str("Authorization: Bearer ", key));
  }

  bool judges_alone() const override { return true; }
  std::vector<double> score(const std::vector<RewardInput>& answers) override {
    absent_ = false;
    std::vector<double> out(answers.size(), NAN);
    std::vector<std::string> faults(answers.size());
    in_parallel(answers.size(), static_cast<size_t>(o_.judge_parallel), [&](size_t i) {
      try {
        if (!absent_) out[i] = asked(answers[i]);
      } catch (const Error& error) {
        if (o_.reward_failure != "skip" || error.at.fault != Fault::Data) throw;
        faults[i] = error.what();
      }
    });
    const auto without = std::count_if(out.begin(), out.end(), [](double x) { return std::isnan(x); });
    const auto told = std::find_if(faults.begin(), faults.end(), [](const std::string& f) { return !f.empty(); });
    if (told != faults.end())
      log_warning(*told, " (--reward_failure skip: its opinion of ", without, " of ", answers.size(),
                  " answers is left out)");
    return out;
  }

 private:
  double asked(const RewardInput& answer) const {
    std::map<std::string, std::string> values = {{"question", question_of(answer)}, {"answer", answer.completion}};
    if (answer.row && answer.row->contains("solution")) {
      const Json& solution = (*answer.row)["solution"];
      values["solution"] = solution.is_string() ? solution.get<std::string>() : json_text(solution);
    }
    const std::string text = filled_in(prompt_, values);
    const Json body = {{"model", o_.judge_model},
                       {"temperature", 0},
                       {"max_tokens", o_.judge_max_tokens},
                       {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
    const std::string said = reply_to(json_text(body));
    const auto number = last_number_of(said);
    require(number && std::isfinite(*number), Fault::Data, "the judge ", url_, " says no number: '",
            said.substr(0, kBytesShown), "'. Its --judge_prompt should ask for one at the end of its reply");
    return *number / o_.judge_best_score;
  }

  std::string reply_to(const std::string& body) const {
    std::string why;
    bool absent = false;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (attempt > 0) std::this_thread::sleep_for(std::chrono::seconds(attempt));
      const Stopwatch watch;
      HttpRequest request{.url = url_, .headers = headers_, .post = body};
      request.body_limit = kReplyBytes;
      request.quiet_seconds = static_cast<int64_t>(std::ceil(o_.reward_timeout));
      request.abandoned = [&] { return watch.seconds() > o_.reward_timeout; };
      const HttpReply reply = http_request(request);
      if (reply.status == 200) return content_of(reply.body);
      const bool late = reply.status == 0 && watch.seconds() > o_.reward_timeout;
      why = late           ? str("did not answer within ", o_.reward_timeout, " s (--reward_timeout)")
            : reply.status ? str("says ", reply.status, ": ", reply.body.substr(0, kBytesShown))
                           : str("cannot be reached: ", reply.error);
      absent = reply.status == 0;
      if (late || (reply.status != 0 && reply.status != 429 && reply.status < 500)) break;
    }
    absent_ = absent_ || absent;
    fail(Fault::Data, "the judge ", url_, " ", why,
         ". Is --judge_url the address of an OpenAI chat API, up to /v1, and ", "--judge_model '", o_.judge_model,
         "' a model that it has?");
  }

  std::string content_of(const std::string& body) const {
    const Json reply = parse_json(body, "what the judge " + url_ + " sent");
    const Json::json_pointer content("/choices/0/message/content");
    require(reply.contains(content) && reply[content].is_string(), Fault::Data, "the judge ", url_,
            " sent no choices[0].message.content: ", body.substr(0, kBytesShown));
    return reply[content].get<std::string>();
  }

  const RewardOptions o_;
  std::string url_, prompt_;
  std::vector<std::string> headers_;
  mutable std::atomic<bool> absent_{false};  // in this round: it is not asked about the other answers
};

const RegisterReward<JudgeReward> judge_reward("judge");

}  // namespace
}  // namespace apus
