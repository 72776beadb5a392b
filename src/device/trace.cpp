// SPDX-License-Identifier: Apache-2.0
#include "device/trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/files.h"
#include "base/json.h"

namespace apus {

namespace {

namespace profiler = torch::profiler::impl;

// The host's, which are the first of the list; and all that this libtorch knows of devices, where one is used.
std::set<profiler::ActivityType> activities(bool devices) {
  std::set<profiler::ActivityType> all;
  const int count = devices ? static_cast<int>(profiler::ActivityType::NUM_KINETO_ACTIVITIES) : 1;
  for (int i = 0; i < count; ++i) all.insert(static_cast<profiler::ActivityType>(i));
  return all;
}

struct Span {
  std::string name;
  double begin, end, inner = 0;  // microseconds; inner: of what it called
};

// Of one thread, in the order of their begins: each takes its time from the one that it stands in.
void take_inner_times(std::vector<Span>& spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  std::vector<Span*> open;
  for (Span& span : spans) {
    while (!open.empty() && open.back()->end <= span.begin) open.pop_back();
    if (!open.empty()) open.back()->inner += span.end - span.begin;
    open.push_back(&span);
  }
}

using Sums = std::map<std::string, TracedOperator>;

void add(Sums& sums, const std::string& name, double microseconds) {
  TracedOperator& sum = sums[name];
  sum.name = name, sum.milliseconds += microseconds / 1e3, ++sum.calls;
}

// The host's operators in the form of Kineto's files; their times have other names in newer releases.
template <class Event>
std::string host_trace(const std::vector<Event>& events) {
  Json all = Json::array();
  for (const Event& e : events) {
    Json event{{"ph", "X"}, {"cat", "cpu_op"}, {"name", e.name()}, {"pid", 1}, {"tid", e.startThreadId()}};
    if constexpr (requires { e.startNs(); })
      event["ts"] = static_cast<double>(e.startNs()) / 1e3, event["dur"] = static_cast<double>(e.durationNs()) / 1e3;
    else
      event["ts"] = e.startUs(), event["dur"] = e.durationUs();
    all.push_back(std::move(event));
  }
  return Json{{"traceEvents", std::move(all)}}.dump();
}

}  // namespace

Trace::Trace(at::Device device) {
  const bool devices = !device.is_cpu();
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities(devices));
  torch::autograd::profiler::enableProfiler(config, activities(devices));
}

Trace::~Trace() {
  if (running_) torch::autograd::profiler::disableProfiler();
}

std::vector<TracedOperator> Trace::finish(const std::filesystem::path& file) {
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  try {
    result->save(file.string());
  } catch (const c10::Error&) {  // a libtorch without Kineto, as Debian builds it
    write_file_atomic(file, host_trace(result->events()));
  }
  return traced_operators(read_file(file));
}

std::vector<TracedOperator> traced_operators(const std::string& trace) {
  static const std::set<std::string> of_device{"kernel", "gpu_memcpy", "gpu_memset", "Kernel"};
  Sums device, host;
  std::map<std::string, std::vector<Span>> threads;
  const Json whole = parse_json(trace, "the trace");
  for (const Json& event : whole.at("traceEvents")) {
    const std::string kind = event.value("cat", "");
    if (!event.contains("dur")) continue;
    const double begin = event.at("ts").get<double>(), time = event.at("dur").get<double>();
    const std::string name = event.value("name", "");
    if (of_device.contains(kind)) add(device, name, time);
    if (kind == "cpu_op" || kind == "Operator") threads[event.at("tid").dump()].push_back({name, begin, begin + time});
  }
  for (auto& [thread, spans] : threads) {
    take_inner_times(spans);
    for (const Span& span : spans) add(host, span.name, span.end - span.begin - span.inner);
  }
  std::vector<TracedOperator> all;
  for (auto& [name, sum] : device.empty() ? host : device) all.push_back(sum);
  std::stable_sort(all.begin(), all.end(),
                   [](const TracedOperator& a, const TracedOperator& b) { return a.milliseconds > b.milliseconds; });
  return all;
}

}  // namespace apus
