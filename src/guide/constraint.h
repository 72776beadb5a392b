// SPDX-License-Identifier: Apache-2.0
// What guided decoding gives the sampler: which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace apus {

// Restricts the next token (guided decoding): a fresh object per sequence, advanced with every accepted token.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // Bit t of mask (64 tokens a word) is set when token t may come next.
  virtual void allowed(std::vector<uint64_t>& mask) = 0;
  virtual void accept(int32_t token) = 0;
  virtual bool finished() const = 0;  // only the end of the answer may follow
  virtual std::unique_ptr<Constraint> clone() const = 0;
};

}  // namespace apus
