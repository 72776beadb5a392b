// SPDX-License-Identifier: Apache-2.0
// Parameters that describe themselves, and the tree that holds them. Names are HuggingFace's names, so loading, saving,
// adapters and merging need no per-model code.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

class MeshView;  // dist/mesh.h

struct Param {
  at::Tensor data;            // this rank's part; undefined until loaded
  std::vector<int64_t> full;  // the whole tensor's shape
  // How the ranks share it out, each cutting what those before it left. The last is along dimension 0, between the
  // ranks that shard the parameters.
  std::vector<Cut> cuts;
  std::vector<Range> part;  // what of each dimension this rank holds: all of it until Module::place()
  std::vector<int64_t> local_shape() const;
  bool trainable = true;
  // A statistic that training elsewhere has made: f32 whatever the weights are, and never trained.
  bool statistic = false;
  // Of a statistic: whole numbers, which are I64 on disk.
  bool counts = false;
  // One number, which has no dimensions on disk.
  bool scalar = false;
  // On disk the last two dimensions of three stand the other way round.
  bool turned = false;
  // On disk the first two dimensions of three are one.
  bool flat = false;
  // Stacked weights: on disk they are `pieces.size()` tensors, relative names, equal parts of `data` in memory order
  // ([E, 2, F, D] read as 2E pieces of [F, D]). Empty: one tensor under the parameter's own name.
  std::vector<std::string> pieces;
  std::string tied;  // not on disk: the same tensor as this parameter (full name)
  // `data` is a read-only view of a mapped file: its pages can be given back.
  bool mapped = false;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  using Visit = std::function<void(const std::string& name, Param&)>;
  void visit(const Visit& f, const std::string& prefix = "");
  using VisitModule = std::function<void(const std::string& name, Module&)>;
  void visit_modules(const VisitModule& f, const std::string& prefix = "");  // this one and all below, parents first

  // Gives every parameter of the tree its part on this rank of the mesh, before weights are loaded; modules that are
  // added later (adapters) are placed likewise. The mesh must outlive the tree.
  void place(MeshView& mesh);
  MeshView* mesh() const { return mesh_; }  // null: not placed, one rank holds everything

  // Called once after the weights are in: fuse, pack, build tables. Inference only; training keeps plain weights.
  virtual void prepare_inference() {}

 protected:
  // `cuts`: those of its own. To these comes the one of the ranks that shard all parameters.
  Param& param(std::string name, std::vector<int64_t> full, std::vector<Cut> cuts = {});
  template <class M, class... A>
  M& child(std::string name, A&&... args) {
    return adopt(std::move(name), std::make_unique<M>(std::forward<A>(args)...));
  }
  template <class M>
  M& adopt(std::string name, std::unique_ptr<M> module) {
    M& ref = *module;
    if (mesh_) ref.place(*mesh_);
    children_.emplace_back(std::move(name), std::move(module));
    return ref;
  }
  void drop_child(const std::string& name);

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Param>>> params_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  MeshView* mesh_ = nullptr;
};

}  // namespace apus
