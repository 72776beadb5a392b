// SPDX-License-Identifier: Apache-2.0
#include "run/rank_agreement.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <vector>

#include "base/files.h"
#include "nn/parts.h"
#include "ops/quantised.h"

namespace apus {

namespace {

// 64 bits that differ where the bytes do, at the speed of memory; no protection against somebody who means harm.
class ByteDigest {
 public:
  void add(const void* data, size_t bytes) {
    const char* p = static_cast<const char*>(data);
    for (; bytes >= 8; p += 8, bytes -= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      mix(word);
    }
    uint64_t rest = bytes;
    std::memcpy(&rest, p, bytes);
    mix(rest ^ static_cast<uint64_t>(bytes) << 56);
  }
  std::string text() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out += digits[state_ >> shift & 15];
    return out;
  }

 private:
  void mix(uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ ^= state_ >> 29;
  }
  uint64_t state_ = 0x243f6a8885a308d3u;
};

std::string tensor_digest(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().to(at::kCPU).contiguous();
  ByteDigest digest;
  digest.add(here.data_ptr(), here.nbytes());
  return digest.text();
}

}  // namespace

void require_same_weights(Module& model, World& world, const std::filesystem::path& folder) {
  if (world.size() == 1) return;
  std::string text;
  model.visit([&](const std::string& name, Param& p) {
    // Of what ranks share out each has read other rows.
    if (!p.tied.empty() || !p.data.defined() || is_cut(p, model.mesh())) return;
    text += str(name, " ", std::string(p.data.dtype().name()), " ",
                tensor_digest(ops::is_quantised(p.data) ? ops::plain(p.data) : p.data), "\n");
    if (p.mapped) forget_mapped(p.data.data_ptr(), static_cast<int64_t>(p.data.nbytes()));
  });
  world.require_same(text, "the weights",
                     str("The files of ", folder.string(),
                         " are not the same everywhere: copy those of rank 0, or let it "
                         "send its weights with --broadcast_weights true"));
}

void broadcast_weights(Module& model, World& world) {
  if (world.size() == 1) return;
  const at::NoGradGuard no_gradients;
  model.visit([&](const std::string&, Param& p) {
    if (!p.tied.empty() || !p.data.defined()) return;
    require(!ops::is_quantised(p.data), Fault::Usage,
            "--broadcast_weights true does not send quantised weights; give every machine the model's files");
    at::Tensor values =
        world.first() ? p.data.detach().contiguous() : at::empty_like(p.data, at::MemoryFormat::Contiguous);
    world.devices().broadcast(values, 0)->wait();
    if (world.first()) return;
    if (!p.mapped) {
      p.data.copy_(values);
      return;
    }
    p.data.set_data(values);  // a view of a file cannot be written into
    p.mapped = false;
  });
}

void require_same_state(const RunState& state, World& world, const std::filesystem::path& folder) {
  if (world.size() == 1) return;
  std::string text = str("step ", state.step, ", epoch ", state.epoch, "\nplace in the data ", json_text(state.data),
                         "\nprogress ", json_text(state.progress), "\noptimizer ", state.optimizer, "\n");
  // Of slices each rank reads what it needs; they are not compared.
  const bool whole = state.optimizer_slices.size() == 1;
  text += str(state.optimizer_slices.size(), " slices of its state\n");
  for (size_t i = 0; whole && i < state.optimizer_slices.size(); ++i)
    for (const auto& [name, tensor] : state.optimizer_slices[i]) text += str(name, " ", tensor_digest(tensor), "\n");
  world.require_same(text, "the states to go on from",
                     str(folder.string(), " is not the same everywhere: copy that of rank 0"));
}

std::string rows_by_file(const RowStore& rows) {
  struct Counted {
    std::string file;
    int64_t rows = 0;
    ByteDigest digest;
  };
  std::vector<Counted> files;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const Row row = rows.row(i);
    const std::string name = std::filesystem::path(*row.origin.file).filename().string();
    if (files.empty() || files.back().file != name) files.push_back({.file = name, .rows = 0, .digest = {}});
    const std::string text = json_text(row.value);
    files.back().digest.add(text.data(), text.size());
    ++files.back().rows;
  }
  std::string out;
  for (const Counted& f : files) out += str(f.file, ": ", f.rows, " rows, ", f.digest.text(), "\n");
  return out;
}

}  // namespace apus
