// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/recording.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <mutex>
#include <optional>

namespace apus::cuda {

namespace {

// Other threads may use the device meanwhile, where libtorch can be told so (2.1 and later).
template <class CudaGraph, class Pool>
void begin(CudaGraph& graph, Pool pool) {
  if constexpr (requires { graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal); })
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  else
    graph.capture_begin(pool);
}

class Graph final : public Recording {
 public:
  Graph(const std::function<void()>& work, const Graph* sharing) {
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard there(stream());
    begin(graph_, sharing ? sharing->pool_ : at::cuda::graph_pool_handle());
    try {
      work();
    } catch (...) {
      end_failed();
      throw;
    }
    graph_.capture_end();
    pool_ = graph_.pool();
  }
  void play() override { graph_.replay(); }

 private:
  // One for all recordings of a device: libraries keep memory for each stream.
  static c10::cuda::CUDAStream stream() {
    static std::mutex mutex;
    static std::array<std::optional<c10::cuda::CUDAStream>, 64> streams;
    const std::lock_guard lock(mutex);
    auto& own = streams.at(static_cast<size_t>(c10::cuda::current_device()));
    if (!own) own = c10::cuda::getStreamFromPool();
    return *own;
  }
  void end_failed() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // what went wrong is known already
    }
    static_cast<void>(cudaGetLastError());
  }

  at::cuda::CUDAGraph graph_;
  decltype(at::cuda::graph_pool_handle()) pool_{};
};

}  // namespace

std::unique_ptr<Recording> record(const std::function<void()>& work, const Recording* sharing) {
  return std::make_unique<Graph>(work, static_cast<const Graph*>(sharing));
}

}  // namespace apus::cuda
