// SPDX-License-Identifier: Apache-2.0
#include "serve/key_book.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "serve/api_error.h"

namespace apus {
namespace {

constexpr int64_t kMostBytes = 4 << 20;
constexpr size_t kShortestKey = 8;

// Keys are looked up by this, so that how long it takes tells nothing of them.
std::string digest_of(const std::string& key) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

bool plain(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '@';
  });
}

int64_t limit_of(const Json& person, const char* what, const std::string& where) {
  if (!person.contains(what)) return 0;
  require(person[what].is_number_integer() && person[what] > 0, Fault::Usage, where, ": ", what,
          " must be a whole number above 0; leave it out for no limit");
  return person[what].get<int64_t>();
}

}  // namespace

void Allowance::refill(double now) {
  if (now > at_) left_ = std::min(limit_, left_ + (now - at_) * limit_ / 60), at_ = now;
}

double Allowance::wait_for(double amount, double now) {
  if (!limited()) return 0;
  refill(now);
  const double wanted = std::min(amount, limit_);
  return left_ >= wanted ? 0 : (wanted - left_) * 60 / limit_;
}

void Allowance::take(double amount, double now) {
  if (!limited()) return;
  refill(now);
  left_ -= amount;
}

KeyBook::KeyBook(std::filesystem::path file) : file_(std::move(file)) { read(); }

void KeyBook::read() {
  const auto written = std::filesystem::last_write_time(file_);
  const std::string where = file_.string();
  const Json all = parse_json(read_file(file_, kMostBytes), where);
  require(all.is_object() && !all.empty(), Fault::Usage, where,
          " must be a JSON object of names and keys, such as {\"alice\": \"KEY\"}");
  std::map<std::string, std::string> names;
  std::map<std::string, Person> people;
  for (const auto& [name, said] : all.items()) {
    const std::string its = where + ": " + name;
    require(plain(name), Fault::Usage, where, ": the name '", name.substr(0, 64),
            "' must be of letters, digits and . _ - @");
    require(said.is_string() || (said.is_object() && said.contains("key") && said["key"].is_string()), Fault::Usage,
            its, " must be a key, or an object with a \"key\"");
    const std::string key = said.is_string() ? said.get<std::string>() : said["key"].get<std::string>();
    require(key.size() >= kShortestKey, Fault::Usage, its, ": a key has ", kShortestKey, " characters at least");
    require(names.emplace(digest_of(key), name).second, Fault::Usage, its, ": somebody else has this key too");
    Person person;
    if (said.is_object()) {
      for (const auto& [field, value] : said.items())
        require(field == "key" || field == "requests_per_minute" || field == "tokens_per_minute", Fault::Usage, its,
                ": '", field, "' is not possible. Allowed: key, requests_per_minute, tokens_per_minute");
      person.requests = Allowance(limit_of(said, "requests_per_minute", its));
      person.tokens = Allowance(limit_of(said, "tokens_per_minute", its));
    }
    people[name] = person;
  }
  const std::lock_guard lock(mutex_);
  for (auto& [name, person] : people)
    if (const auto before = people_.find(name); before != people_.end()) {
      const Person& old = before->second;
      person.asked = old.asked, person.refused = old.refused;
      person.prompt = old.prompt, person.completion = old.completion;
      if (old.requests.a_minute() == person.requests.a_minute()) person.requests = old.requests;
      if (old.tokens.a_minute() == person.tokens.a_minute()) person.tokens = old.tokens;
    }
  names_ = std::move(names), people_ = std::move(people), read_at_ = written;
}

void KeyBook::look_again() {
  std::error_code code;
  const auto written = std::filesystem::last_write_time(file_, code);
  if (code || written == read_at_) return;
  try {
    read();
    log_info(file_.string(), " was read again: ", people_.size(), " keys");
  } catch (const Error& error) {
    read_at_ = written;
    log_warning("the keys stay as they are: ", error.what());
  }
}

std::optional<std::string> KeyBook::holder(const std::string& key) const {
  const std::string digest = digest_of(key);
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(digest);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

void KeyBook::admit(const std::string& name, double now) {
  const std::lock_guard lock(mutex_);
  const auto found = people_.find(name);
  if (found == people_.end()) return;
  Person& person = found->second;
  const double requests = person.requests.wait_for(1, now), tokens = person.tokens.wait_for(1, now);
  if (requests <= 0 && tokens <= 0) {
    ++person.asked;
    return person.requests.take(1, now);
  }
  ++person.refused;
  const bool of_requests = requests >= tokens;
  ApiError error(429,
                 str("This key may ask for ", (of_requests ? person.requests : person.tokens).a_minute(),
                     of_requests ? " requests" : " tokens", " a minute, and has: ask again later."),
                 "", "rate_limit_exceeded");
  error.retry_after = std::max(1, static_cast<int>(std::ceil(std::max(requests, tokens))));
  throw error;
}

void KeyBook::had(const std::string& name, int64_t prompt_tokens, int64_t completion_tokens, double now) {
  const std::lock_guard lock(mutex_);
  const auto found = people_.find(name);
  if (found == people_.end()) return;
  found->second.prompt += prompt_tokens, found->second.completion += completion_tokens;
  found->second.tokens.take(static_cast<double>(prompt_tokens + completion_tokens), now);
}

Json KeyBook::usage(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  Json all = Json::array();
  for (const auto& [who, person] : people_)
    if (name.empty() || who == name)
      all.push_back({{"name", who},
                     {"requests", person.asked},
                     {"refused", person.refused},
                     {"prompt_tokens", person.prompt},
                     {"completion_tokens", person.completion}});
  return all;
}

std::string KeyBook::prometheus() const {
  const struct {
    const char *name, *help;
    int64_t Person::*count;
  } counters[] = {{"apus_key_requests_total", "requests for the model, by key", &Person::asked},
                  {"apus_key_refused_total", "requests above the limits of their key", &Person::refused},
                  {"apus_key_prompt_tokens_total", "tokens of prompts, by key", &Person::prompt},
                  {"apus_key_generated_tokens_total", "tokens of answers, by key", &Person::completion}};
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& counter : counters) {
    out += str("# HELP ", counter.name, " ", counter.help, "\n# TYPE ", counter.name, " counter\n");
    for (const auto& [who, person] : people_)
      out += str(counter.name, "{key=\"", who, "\"} ", person.*counter.count, "\n");
  }
  return out;
}

}  // namespace apus
