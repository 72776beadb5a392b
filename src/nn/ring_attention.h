// SPDX-License-Identifier: Apache-2.0
// Attention whose keys and values go round: each rank has some tokens of every sequence (nn/ring_layout.h), asks with
// its own queries the keys that it has at the moment, hands these on, and joins what it was answered. No rank has the
// keys of all tokens at a time. Keys that no rank's queries reach in a layer with a window are passed over.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "device/comm.h"
#include "nn/ring_layout.h"
#include "ops/attention_part.h"

namespace apus {

// Attention to two sets of keys as one to both. out and lse in at least f32; -inf: nothing was seen.
ops::Attended joined(const ops::Attended& a, const ops::Attended& b);

// Who takes part in a pass, and what is asked of whose keys.
class Ring {
 public:
  // Of `ranks` those take part that are `step` apart from this one: their places in the ring are rank / step.
  Ring(Comm& ranks, int step, const std::vector<int32_t>& lengths);

  int size() const { return static_cast<int>(runs_.size()); }
  int rank() const { return ranks_.rank() / step_; }
  // The i-th before this one; the 0-th is itself.
  int before(int i) const { return (rank() - i + size()) % size(); }
  int64_t tokens_of(int rank) const { return apus::tokens_of(runs_[static_cast<size_t>(rank)]); }
  const std::vector<TokenRun>& runs(int rank) const { return runs_[static_cast<size_t>(rank)]; }

  // One call of the operator; undefined rows: all in their order.
  struct Call {
    ops::Mask mask;
    ops::PackedRuns runs;
    at::Tensor row_q, row_k;  // int64
  };
  // How many ranks before this one those are whose keys any rank's queries see, this one itself first: 0, rising.
  // Others need not come by.
  const std::vector<int>& steps(const ops::Mask& mask) const;
  const std::vector<Call>& calls(int of_keys, const ops::Mask& mask, at::Device device) const;

  // Numbers on their way from rank to rank, which must not change before they have arrived.
  struct OnTheWay {
    WorkPtr work;
    at::Tensor sent, received;
    at::Tensor arrived() const {
      work->wait();
      return received;
    }
  };
  // Gives what this rank has to the `hop`-th behind it, and gets so many numbers from the `hop`-th before it.
  OnTheWay hand_on(const at::Tensor& flat, int hop, int64_t numbers) const;

 private:
  Comm& ranks_;
  const int step_;
  std::vector<std::vector<TokenRun>> runs_;  // of each rank
  // Made when they are first asked for, as layers differ: by rank, window and device.
  mutable std::map<std::tuple<int, int64_t, int>, std::vector<Call>> calls_;
  mutable std::map<int64_t, std::vector<int>> steps_;  // by window
};

// Queries, keys and values of this rank's tokens [t, ., .] -> [t, N, V]. kept: as of ops::attention.
at::Tensor ring_attention(const at::Tensor& q_tNH, const at::Tensor& k_tKH, const at::Tensor& v_tKV,
                          const ops::AttentionRule& rule, const std::shared_ptr<const Ring>& ring,
                          ops::Attended* kept = nullptr);

}  // namespace apus
