// SPDX-License-Identifier: Apache-2.0
#include "reward/plugins.h"

#include <cmath>
#include <iostream>

#include "base/assets.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/program.h"

namespace apus {
namespace {

constexpr size_t kPluginReplyBytes = 64 << 20;
constexpr double kLoadSeconds = 300;  // large libraries are read from slow disks

std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

std::vector<std::string> built_in_rewards() {
  std::vector<std::string> names;
  for (const auto& [name, make] : Registry<MakeReward>::of().all())
    if (name != "judge") names.push_back(name);
  return names;
}

std::string script() {
  return "BUILT_IN_REWARDS = " + json_text(Json(built_in_rewards())) + "\n" + std::string(asset("plugins/names.py")) +
         "\n\n" + std::string(asset("plugins/runner.py"));
}

// What a plugin asks of a reward that is part of this program.
Json own_rewards(const Json& question, const Json& settings) {
  RewardOptions options;
  OptionTable table = OptionTable::of(options);
  for (const auto& [name, value] : settings.items()) table.set(name, value);
  options.reward_funcs = {question.at("name").get<std::string>()}, options.reward_weights.clear();
  options.reward_model.clear();
  const Json& texts = question.at("completions");
  const Json columns = question.value("columns", Json::object());
  std::vector<Json> rows(texts.size(), Json::object());
  std::vector<RewardInput> answers;
  for (size_t i = 0; i < texts.size(); ++i) {
    for (const auto& [name, values] : columns.items())
      if (values.is_array() && i < values.size()) rows[i][name] = values[i];
    RewardInput& answer = answers.emplace_back();
    answer.completion = texts[i].get<std::string>(), answer.row = &rows[i];
    if (const auto ids = rows[i].find("response_token_ids"); ids != rows[i].end() && ids->is_array())
      for (const Json& id : *ids)
        if (id.is_number_integer()) answer.tokens.push_back(id.get<int32_t>());
  }
  Json out = Json::array();
  const Rewards::Scores scores = Rewards(options).score(answers);
  for (const double reward : scores.functions.at(0)) out.push_back(std::isnan(reward) ? Json() : Json(reward));
  return out;
}

// A row of what ms-swift gives rewards: the dataset's columns, the conversation with the answer, and how it came about.
Json columns_of(const RewardInput& answer, size_t number) {
  Json line = answer.row ? *answer.row : Json::object();
  Json messages = line.value("messages", Json::array());
  if (!messages.empty() && messages.back().value("role", "") == "assistant") messages.erase(messages.size() - 1);
  if (answer.trajectory)
    for (const Json& message : *answer.trajectory) messages.push_back(message);
  else
    messages.push_back({{"role", "assistant"}, {"content", answer.completion}});
  const size_t turns = answer.trajectory ? answer.trajectory->size() / 2 + 1 : 1;
  line["completion"] = answer.completion, line["messages"] = std::move(messages);
  line["response_token_ids"] = answer.tokens;
  line["finish_reason"] = answer.cut ? "length" : "stop", line["is_truncated"] = answer.cut;
  line["request_id"] = str(answer.step, "-", answer.group, "-", number);
  line["prompt_id"] = str(answer.step, "-", answer.group);
  line["rollout_infos"] = {{"num_turns", turns}};
  return line;
}

}  // namespace

Plugins::Plugins(const PluginOptions& options, Json settings, std::shared_ptr<const Tokenizer> tokenizer)
    : options_(options), settings_(std::move(settings)), tokenizer_(std::move(tokenizer)) {}

Plugins::~Plugins() = default;

std::string Plugins::shown() const {
  std::vector<std::string> files;
  for (const std::string& file : options_.external_plugins) files.push_back(program_name(file));
  return (files.size() > 1 ? "the plugins " : "the plugin ") + join(files);
}

const Json& Plugins::names() {
  const std::lock_guard lock(mutex_);
  if (!program_) start();
  return names_;
}

bool Plugins::has(const char* kind, const std::string& name) {
  const Json& all = names().at(kind);
  return std::find(all.begin(), all.end(), name) != all.end();
}

Json Plugins::ask(const Json& line, double seconds, const std::string& flag) {
  const std::lock_guard lock(mutex_);
  if (!program_) start();
  return reply_to(line, seconds, flag);
}

void Plugins::greet(const Json& line, double seconds, const std::string& flag) {
  ask(line, seconds, flag);
  const std::lock_guard lock(mutex_);
  greeting_ = {line, seconds, flag};
}

void Plugins::start() {
  program_ = std::make_unique<Program>("exec " + in_quotes(options_.python) + " -c " + in_quotes(script()), "plugins");
  program_->overhears = [](const std::string& text) { std::cerr << text << std::flush; };
  try {
    names_ = reply_to({{"op", "load"}, {"files", options_.external_plugins}, {"args", settings_}}, kLoadSeconds, "");
    if (greeting_) reply_to(greeting_->line, greeting_->seconds, greeting_->flag);
  } catch (const Error&) {
    program_.reset();
    throw;
  }
}

Json Plugins::reply_to(const Json& line, double seconds, const std::string& flag) {
  Json reply;
  try {
    reply = talked(line, seconds, flag);
  } catch (const Error&) {
    program_.reset();  // whatever it does now, it is not what it was asked
    throw;
  }
  if (reply.contains("error")) fail(Fault::Data, shown(), ": ", reply["error"].get<std::string>());
  return reply;
}

Json Plugins::talked(const Json& line, double seconds, const std::string& flag) {
  const Stopwatch watch;
  std::string text = json_text(line) + "\n";
  std::string& printed = program_->printed;
  const auto enough = [&] { return printed.find('\n') != std::string::npos; };
  for (;;) {
    const Program::Heard heard = program_->talk(text, seconds - watch.seconds(), kPluginReplyBytes, enough);
    require(heard != Program::Heard::Late, Fault::Data, shown(), " gave no reply in ", seconds, " s",
            flag.empty() ? std::string(" while it was imported") : " (" + flag + ")", program_->last_words());
    require(heard != Program::Heard::TooMuch, Fault::Data, shown(), " gave a reply of more than ", kPluginReplyBytes,
            " bytes");
    if (heard == Program::Heard::End) {
      const int status = program_->wait(false);
      fail(Fault::Data, shown(), ": ", options_.python, " ", how_it_ended(status), program_->last_words());
    }
    const size_t end = printed.find('\n');
    Json reply = parse_json(printed.substr(0, end), "what " + shown() + " replied");
    printed.erase(0, end + 1);
    require(reply.is_object(), Fault::Data, "what ", shown(), " replied is no object");
    if (!reply.contains("ask")) return reply;
    text = json_text(answer_to(reply)) + "\n";
  }
}

Json Plugins::answer_to(const Json& question) const {
  try {
    const auto what = question.at("ask").get<std::string>();
    if (what == "reward") return {{"answer", own_rewards(question, settings_)}};
    require(tokenizer_ != nullptr, Fault::Data, "there is no tokenizer here");
    if (what == "encode")
      return {
          {"answer", tokenizer_->encode(question.at("text").get<std::string>(), question.at("special").get<bool>())}};
    return {{"answer",
             tokenizer_->decode(question.at("ids").get<std::vector<int32_t>>(), question.at("skip").get<bool>())}};
  } catch (const std::exception& error) {
    return {{"refused", error.what()}};
  }
}

PluginReward::PluginReward(std::string name, std::shared_ptr<Plugins> plugins, const RewardOptions& options,
                           std::string op)
    : name_(std::move(name)),
      op_(std::move(op)),
      plugins_(std::move(plugins)),
      timeout_(options.reward_timeout),
      skips_(options.reward_failure == "skip") {}

std::vector<double> PluginReward::score(const std::vector<RewardInput>& answers) {
  std::vector<double> out;
  try {
    Json lines = Json::array();
    for (const RewardInput& answer : answers) lines.push_back(columns_of(answer, lines.size()));
    const Json reply = plugins_->ask({{"op", op_},
                                      {"name", name_},
                                      {"several_turns", !answers.empty() && answers[0].trajectory},
                                      {"trainer_state", {{"global_step", answers.empty() ? 0 : answers[0].step}}},
                                      {"answers", std::move(lines)}},
                                     timeout_, "--reward_timeout");
    for (const Json& reward : reply.at("rewards")) {
      out.push_back(reward.is_null() ? NAN : reward.get<double>());
      require(std::isnan(out.back()) || std::isfinite(out.back()), Fault::Data, plugins_->shown(), ": the reward '",
              name_, "' is ", out.back(), " for an answer");
    }
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    log_warning(error.what(), " (--reward_failure skip: its opinion of these ", answers.size(),
                " answers is left out)");
    return std::vector<double>(answers.size(), NAN);
  }
  return out;
}

}  // namespace apus
