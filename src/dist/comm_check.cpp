// SPDX-License-Identifier: Apache-2.0
#include "dist/comm_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "device/agree.h"
#include "device/device.h"

namespace apus {

namespace {

// Small whole numbers, so that sums are exact whatever their order: element i of rank r is i % 97 + r.
class Checker {
 public:
  Checker(Comm& comm, Comm& host, const CommCheckSpec& spec) : comm_(comm), host_(host), spec_(spec) {}

  CommReport run() {
    CommReport report;
    const int64_t n = comm_.size(), count = std::max<int64_t>(n, spec_.bytes / 4 / n * n);
    const double all = static_cast<double>(count * 4), share = static_cast<double>(n - 1) / static_cast<double>(n);
    add(
        report, "all_reduce", 2 * share * all, [&](int64_t c) { return all_reduce(c); }, count);
    add(
        report, "all_gather", share * all, [&](int64_t c) { return all_gather(c / n); }, count);
    add(
        report, "all_gather_uneven", share * all, [&](int64_t c) { return all_gather_uneven(c / n); }, count);
    add(
        report, "reduce_scatter", share * all, [&](int64_t c) { return reduce_scatter(c / n); }, count);
    add(
        report, "all_to_all", share * all, [&](int64_t c) { return all_to_all(c / n); }, count);
    add(
        report, "broadcast", all, [&](int64_t c) { return broadcast(c); }, count);
    if (n > 1)
      add(
          report, "send_recv", all, [&](int64_t c) { return ring(c); }, count);
    add(
        report, "barrier", 0, [&](int64_t) { return barrier(); }, 0);
    if (spec_.pairs && n > 1) pairs(report);
    return report;
  }

 private:
  using Round = std::function<at::Tensor()>;  // carries the operation out once and gives its result
  struct Operation {
    Round round;
    at::Tensor expected;
  };

  at::Tensor numbers(int64_t count, double plus) const {
    return at::arange(count, at::TensorOptions().dtype(at::kFloat)).remainder(97).add(plus).to(spec_.device);
  }
  at::Tensor room(int64_t count) const {
    return at::zeros({count}, at::TensorOptions().dtype(at::kFloat)).to(spec_.device);
  }
  double rank() const { return comm_.rank(); }

  void synchronize() const { kind_of(spec_.device).synchronize(std::max<int>(0, spec_.device.index())); }

  // The slowest rank's time of one round.
  double time(const Round& round, int repeats) {
    round();
    synchronize();
    host_.barrier();
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) round();
    synchronize();
    return largest_of(host_, watch.seconds() / repeats);
  }

  void add(CommReport& report, const std::string& name, double bytes, const std::function<Operation(int64_t)>& make,
           int64_t count) {
    CollectiveReport c{.name = name, .wrong = "", .latency_us = 0, .gb_s = 0};
    const Operation large = make(count), small = make(comm_.size());
    c.wrong = differences(large);
    if (c.wrong.empty()) c.wrong = differences(small);
    c.latency_us = time(small.round, spec_.repeats * 10) * 1e6;
    if (bytes > 0) c.gb_s = bytes / time(large.round, spec_.repeats) / 1e9;
    report.collectives.push_back(std::move(c));
  }

  std::string differences(const Operation& operation) {
    const at::Tensor got = operation.round().to(at::kCPU).reshape({-1}),
                     want = operation.expected.to(at::kCPU).reshape({-1});
    std::string mine;
    const float *g = got.data_ptr<float>(), *w = want.data_ptr<float>();
    for (int64_t i = 0; i < want.numel() && mine.empty(); ++i)
      if (g[i] != w[i]) mine = apus::str("rank ", comm_.rank(), " got ", g[i], " instead of ", w[i], " at element ", i);
    for (const std::string& text : gather_text(mine, host_))
      if (!text.empty()) return text;
    return "";
  }

  Operation all_reduce(int64_t count) const {
    const double n = comm_.size();
    const at::Tensor in = numbers(count, rank()), t = room(count);
    return {[=, this] { return t.copy_(in), comm_.all_reduce(t)->wait(), t; },
            numbers(count, 0).mul(n).add(n * (n - 1) / 2)};
  }
  Operation all_gather(int64_t count) const {
    const at::Tensor in = numbers(count, rank()), out = room(count * comm_.size());
    return {[=, this] { return comm_.all_gather(out, in)->wait(), out; }, everybodys(count, 0)};
  }
  Operation all_gather_uneven(int64_t count) const {  // rank r gives r elements more
    std::vector<at::Tensor> out;
    for (int r = 0; r < comm_.size(); ++r) out.push_back(room(count + r));
    const at::Tensor in = numbers(count + comm_.rank(), rank());
    return {[=, this] { return comm_.all_gather_uneven(out, in)->wait(), joined(out); }, everybodys(count, 1)};
  }
  Operation reduce_scatter(int64_t count) const {
    const double n = comm_.size();
    const at::Tensor in = numbers(count * comm_.size(), rank()), out = room(count);
    return {[=, this] { return comm_.reduce_scatter(out, in)->wait(), out; },
            numbers(count * comm_.size(), 0).mul(n).add(n * (n - 1) / 2).narrow(0, count * comm_.rank(), count)};
  }
  Operation all_to_all(int64_t count) const {  // from rank s to rank d: count + s + d elements
    std::vector<at::Tensor> out, in, expected;
    for (int r = 0; r < comm_.size(); ++r) {
      const int64_t c = count + r + comm_.rank();
      out.push_back(room(c)), in.push_back(numbers(c, 10 * rank() + r)),
          expected.push_back(numbers(c, 10 * r + rank()));
    }
    return {[=, this] { return comm_.all_to_all(out, in)->wait(), joined(out); }, joined(expected)};
  }
  Operation broadcast(int64_t count) const {
    const int root = comm_.size() - 1;
    const at::Tensor in = numbers(count, rank()), t = room(count);
    return {[=, this] { return t.copy_(in), comm_.broadcast(t, root)->wait(), t; }, numbers(count, root)};
  }
  // To the next, from the one before; even ranks send first, for devices that do one at a time.
  Operation ring(int64_t count) const {
    const int n = comm_.size(), me = comm_.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    const at::Tensor in = numbers(count, rank()), out = room(count);
    return {[=, this] {
              if (me % 2 == 0)
                comm_.send(in, next)->wait(), comm_.recv(out, before)->wait();
              else
                comm_.recv(out, before)->wait(), comm_.send(in, next)->wait();
              return out;
            },
            numbers(count, before)};
  }
  Operation barrier() const {
    const at::Tensor none = room(0);
    return {[=, this] { return comm_.barrier(), none; }, none};
  }
  at::Tensor everybodys(int64_t count, int64_t more) const {
    std::vector<at::Tensor> all;
    for (int r = 0; r < comm_.size(); ++r) all.push_back(numbers(count + more * r, r));
    return joined(all);
  }
  at::Tensor joined(const std::vector<at::Tensor>& parts) const {
    int64_t total = 0, at = 0;
    for (const at::Tensor& p : parts) total += p.numel();
    at::Tensor whole = room(total);
    for (const at::Tensor& p : parts) whole.narrow(0, at, p.numel()).copy_(p), at += p.numel();
    return whole;
  }

  void pairs(CommReport& report) {
    const int n = comm_.size();
    report.pair_us.assign(static_cast<size_t>(n), std::vector<double>(static_cast<size_t>(n), 0));
    report.pair_gb_s = report.pair_us;
    const at::Tensor small = room(2), large = room(spec_.bytes / 4);
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) {
        host_.barrier();
        const double us = largest_of(host_, ping(small, a, b, spec_.repeats * 5)) * 1e6;
        const double s = largest_of(host_, ping(large, a, b, spec_.repeats));
        const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
        report.pair_us[i][j] = report.pair_us[j][i] = us;
        report.pair_gb_s[i][j] = report.pair_gb_s[j][i] = static_cast<double>(large.nbytes()) / s / 1e9;
      }
  }
  // Seconds of one way between two ranks; 0 on the others.
  double ping(const at::Tensor& t, int a, int b, int repeats) {
    const int me = comm_.rank();
    if (me != a && me != b) return 0;
    Stopwatch watch;
    for (int i = 0; i <= repeats; ++i) {
      if (i == 1) watch.restart();  // the first one is for warming up
      if (me == a)
        comm_.send(t, b)->wait(), comm_.recv(t, b)->wait();
      else
        comm_.recv(t, a)->wait(), comm_.send(t, a)->wait();
      synchronize();
    }
    return watch.seconds() / repeats / 2;
  }

  Comm& comm_;
  Comm& host_;
  const CommCheckSpec spec_;
};

}  // namespace

bool CommReport::sound() const {
  return std::all_of(collectives.begin(), collectives.end(), [](const CollectiveReport& c) { return c.wrong.empty(); });
}

CommReport run_comm_check(Comm& comm, Comm& host, const CommCheckSpec& spec) { return Checker(comm, host, spec).run(); }

Json comm_report_json(const CommReport& report) {
  Json out = {{"sound", report.sound()}, {"collectives", Json::array()}};
  for (const CollectiveReport& c : report.collectives)
    out["collectives"].push_back({{"name", c.name},
                                  {"correct", c.wrong.empty()},
                                  {"wrong", c.wrong},
                                  {"latency_us", c.latency_us},
                                  {"gb_s", c.gb_s}});
  if (!report.pair_us.empty()) out["pair_us"] = report.pair_us, out["pair_gb_s"] = report.pair_gb_s;
  return out;
}

std::string comm_report_text(const CommReport& report) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << std::left << std::setw(20) << "operation" << std::right << std::setw(12)
      << "latency us" << std::setw(10) << "GB/s"
      << "  result\n";
  for (const CollectiveReport& c : report.collectives) {
    out << std::left << std::setw(20) << c.name << std::right << std::setw(12) << c.latency_us << std::setw(10)
        << std::setprecision(2) << c.gb_s << std::setprecision(1) << "  "
        << (c.wrong.empty() ? "right" : "WRONG: " + c.wrong) << "\n";
  }
  if (report.pair_us.empty()) return out.str();
  out << "\none way between two ranks, us (GB/s)\n        ";
  const size_t n = report.pair_us.size();
  for (size_t j = 0; j < n; ++j) out << std::setw(16) << j;
  for (size_t i = 0; i < n; ++i) {
    out << "\n" << std::setw(8) << i;
    for (size_t j = 0; j < n; ++j) {
      std::ostringstream cell;
      cell << std::fixed << std::setprecision(0) << report.pair_us[i][j] << " (" << std::setprecision(2)
           << report.pair_gb_s[i][j] << ")";
      out << std::setw(16) << (i == j ? "-" : cell.str());
    }
  }
  out << "\n";
  return out.str();
}

}  // namespace apus
