// SPDX-License-Identifier: Apache-2.0
// What is in memory while a program runs, as a tally that remembers its fullest moment.
#pragma once

#include <algorithm>
#include <array>
#include <string>

namespace apus {

enum class Holds { Weights, Gradients, Optimizer, Activations, Head, Cache, Communication, Media, Runtime };
constexpr std::array kHoldsNames = {"weights",         "gradients",     "optimizer",   "activations", "head and loss",
                                    "key-value cache", "communication", "media cache", "runtime"};
constexpr size_t kHolds = kHoldsNames.size();

using Bytes = std::array<double, kHolds>;
inline double& of(Bytes& b, Holds what) { return b[static_cast<size_t>(what)]; }
inline double of(const Bytes& b, Holds what) { return b[static_cast<size_t>(what)]; }
inline double sum(const Bytes& b) {
  double total = 0;
  for (const double each : b) total += each;
  return total;
}

class Timeline {
 public:
  void add(Holds what, double bytes) {
    of(now_, what) += bytes, total_ += bytes;
    if (total_ > peak_) peak_ = total_, at_peak_ = now_, when_ = moment_;
  }
  void drop(Holds what, double bytes) { of(now_, what) -= bytes, total_ -= bytes; }
  void brief(Holds what, double bytes) { add(what, bytes), drop(what, bytes); }  // there for an instant
  double now(Holds what) const { return of(now_, what); }
  void moment(std::string name) { moment_ = std::move(name); }

  double peak() const { return peak_; }
  const Bytes& at_peak() const { return at_peak_; }
  const std::string& when() const { return when_; }

 private:
  Bytes now_{}, at_peak_{};
  double total_ = 0, peak_ = 0;
  std::string moment_, when_;
};

}  // namespace apus
