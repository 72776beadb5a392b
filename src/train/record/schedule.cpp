// SPDX-License-Identifier: Apache-2.0
#include "train/record/schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace {

constexpr double kPi = std::numbers::pi;

// Reads the keyword arguments of one schedule and, at the end, refuses the ones nobody asked for.
class Arguments {
 public:
  Arguments(const std::string& schedule, const Json& kwargs) : schedule_(schedule), given_(kwargs) {
    require(given_.is_null() || given_.is_object(), Fault::Usage,
            "--lr_scheduler_kwargs must be a JSON object, e.g. '{\"num_cycles\": 2}'");
  }
  bool has(const char* key) {
    known_.push_back(key);
    return given_.is_object() && given_.contains(key) && !given_[key].is_null();
  }
  double number(const char* key, double fallback) {
    if (!has(key)) return fallback;
    require(given_[key].is_number(), Fault::Usage, "--lr_scheduler_kwargs: ", key, " must be a number");
    return given_[key].get<double>();
  }
  std::string text(const char* key, const std::string& fallback, const std::vector<std::string>& allowed) {
    if (!has(key)) return fallback;
    const std::string value = given_[key].is_string() ? given_[key].get<std::string>() : given_[key].dump();
    require(std::find(allowed.begin(), allowed.end(), value) != allowed.end(), Fault::Usage,
            "--lr_scheduler_kwargs: ", key, " is ", value, "; possible: ", join(allowed));
    return value;
  }
  void done() const {
    if (!given_.is_object()) return;
    for (const auto& [key, value] : given_.items())
      require(std::find(known_.begin(), known_.end(), key) != known_.end(), Fault::Usage,
              "--lr_scheduler_kwargs: the schedule ", schedule_, " has no '", key, "'",
              known_.empty() ? "; it takes none" : "; it takes " + join(known_));
  }

 private:
  std::string schedule_;
  const Json& given_;
  std::vector<std::string> known_;
};

double ratio(double part, double whole) { return part / std::max(1.0, whole); }

// The part after warm-up as a function of the progress through it, 0 at its start and 1 at the last step.
Schedule after_warmup(const ScheduleSpec& s, std::function<double(double progress)> decay) {
  const auto warmup = static_cast<double>(s.warmup_steps), rest = static_cast<double>(s.total_steps - s.warmup_steps);
  return [=](int64_t step) {
    const auto at = static_cast<double>(step);
    return at < warmup ? ratio(at, warmup) : decay(ratio(at - warmup, rest));
  };
}

double cosine(double cycles, double progress) { return 0.5 * (1 + std::cos(kPi * cycles * 2 * progress)); }

double min_rate(const ScheduleSpec& s, Arguments& a) {
  const bool rate = a.has("min_lr_rate"), absolute = a.has("min_lr");
  require(rate != absolute, Fault::Usage, "--lr_scheduler_type ", s.type,
          " needs --lr_scheduler_kwargs with one of min_lr (a learning rate) ",
          "and min_lr_rate (a share of --learning_rate), e.g. '{\"min_lr_rate\": 0.1}'");
  if (rate) return a.number("min_lr_rate", 0);
  require(s.base_lr > 0, Fault::Usage, "min_lr needs a --learning_rate above 0");
  return a.number("min_lr", 0) / s.base_lr;
}

Schedule cosine_warmup_with_min_lr(const ScheduleSpec& s, Arguments& a) {
  const double cycles = a.number("num_cycles", 0.5), least = min_rate(s, a),
               first = a.has("warmup_lr_rate") ? a.number("warmup_lr_rate", 0) : -1;
  const auto warmup = static_cast<double>(s.warmup_steps), total = static_cast<double>(s.total_steps);
  return [=](int64_t step) {
    const auto at = static_cast<double>(step);
    if (at < warmup) return first < 0 ? ratio(at + 1, warmup) : first + (1 - first) * ratio(at, warmup - 1);
    return std::max(0.0, cosine(cycles, ratio(at - warmup + 1, total - warmup)) * (1 - least) + least);
  };
}

Schedule polynomial(const ScheduleSpec& s, Arguments& a) {
  const double end = a.number("lr_end", 1e-7), power = a.number("power", 1), first = s.base_lr;
  require(first > end, Fault::Usage, "polynomial: lr_end (", end, ") must be smaller than --learning_rate (", first,
          ")");
  const auto warmup = static_cast<double>(s.warmup_steps), total = static_cast<double>(s.total_steps);
  return [=](int64_t step) {
    const auto at = static_cast<double>(step);
    if (at < warmup) return ratio(at, warmup);
    if (at > total || total <= warmup) return end / first;
    const double left = 1 - (at - warmup) / (total - warmup);
    return ((first - end) * std::pow(left, power) + end) / first;
  };
}

Schedule inverse_sqrt(const ScheduleSpec& s, Arguments& a) {
  const auto warmup = static_cast<double>(s.warmup_steps);
  const double scale = a.number("timescale", s.warmup_steps ? warmup : 10000);
  require(scale > 0, Fault::Usage, "inverse_sqrt: timescale must be above 0");
  return [=](int64_t step) {
    const auto at = static_cast<double>(step);
    return at < warmup ? ratio(at, warmup) : 1 / std::sqrt((at + scale - warmup) / scale);
  };
}

// Warm-up, stable, decay. Without num_decay_steps the last tenth of the run decays.
Schedule warmup_stable_decay(const ScheduleSpec& s, Arguments& a) {
  const std::vector<std::string> shapes = {"linear", "cosine", "1-sqrt"};
  const std::string up = a.text("warmup_type", "linear", shapes), down = a.text("decay_type", "cosine", shapes);
  const double least = a.number("min_lr_ratio", 0), cycles = a.number("num_cycles", 0.5);
  const auto warmup = static_cast<double>(s.warmup_steps), total = static_cast<double>(s.total_steps);
  const double falling = a.number("num_decay_steps", std::ceil(total * 0.1));
  const double stable = a.number("num_stable_steps", total - warmup - falling);
  require(falling >= 0 && stable >= 0, Fault::Usage, s.type, ": ", warmup, " warm-up and ", falling,
          " decay steps do not fit in ", total, " steps");
  const auto scaled = [least](double factor) { return std::max(0.0, factor * (1 - least) + least); };
  return [=](int64_t step) {
    const auto at = static_cast<double>(step);
    if (at < warmup) {
      const double p = ratio(at, warmup);
      return scaled(up == "linear" ? p : up == "cosine" ? 0.5 * (1 - std::cos(kPi * p)) : 1 - std::sqrt(1 - p));
    }
    if (at < warmup + stable) return 1.0;
    if (at >= warmup + stable + falling) return least;
    const double p = ratio(at - warmup - stable, falling);
    return scaled(down == "linear" ? 1 - p : down == "cosine" ? cosine(cycles, p) : 1 - std::sqrt(p));
  };
}

using Make = Schedule (*)(const ScheduleSpec&, Arguments&);

const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> all = {
      {"constant", [](const ScheduleSpec&, Arguments&) -> Schedule { return [](int64_t) { return 1.0; }; }},
      {"constant_with_warmup",
       [](const ScheduleSpec& s, Arguments&) { return after_warmup(s, [](double) { return 1.0; }); }},
      {"linear", [](const ScheduleSpec& s,
                    Arguments&) { return after_warmup(s, [](double p) { return std::max(0.0, 1 - p); }); }},
      {"cosine",
       [](const ScheduleSpec& s, Arguments& a) {
         const double cycles = a.number("num_cycles", 0.5);
         return after_warmup(s, [cycles](double p) { return std::max(0.0, cosine(cycles, p)); });
       }},
      {"cosine_with_restarts",
       [](const ScheduleSpec& s, Arguments& a) {
         const double cycles = a.number("num_cycles", 1);
         return after_warmup(s, [cycles](double p) {
           return p >= 1 ? 0.0 : std::max(0.0, 0.5 * (1 + std::cos(kPi * std::fmod(cycles * p, 1.0))));
         });
       }},
      {"cosine_with_min_lr",
       [](const ScheduleSpec& s, Arguments& a) {
         const double cycles = a.number("num_cycles", 0.5), least = min_rate(s, a);
         return after_warmup(s, [=](double p) { return std::max(0.0, cosine(cycles, p) * (1 - least) + least); });
       }},
      {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr},
      {"polynomial", polynomial},
      {"inverse_sqrt", inverse_sqrt},
      {"warmup_stable_decay", warmup_stable_decay},
      {"wsd", warmup_stable_decay},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : makers()) all.push_back(name);
    return all;
  }();
  return names;
}

Schedule make_schedule(const ScheduleSpec& spec, const Json& kwargs) {
  const auto maker = makers().find(spec.type);
  require(maker != makers().end(), Fault::Usage, "--lr_scheduler_type ", spec.type,
          " is not known; possible: ", join(schedule_names()));
  require(spec.warmup_steps >= 0 && spec.total_steps >= 0, Fault::Usage, "warm-up and total steps cannot be negative");
  Arguments arguments(spec.type, kwargs);
  Schedule made = maker->second(spec, arguments);
  arguments.done();
  return made;
}

int64_t warmup_length(int64_t warmup_steps, double warmup_ratio, int64_t total_steps) {
  if (warmup_steps > 0) return warmup_steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * warmup_ratio));
}

}  // namespace apus
