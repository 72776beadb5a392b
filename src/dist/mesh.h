// SPDX-License-Identifier: Apache-2.0
// The world as a mesh: communicators along its axes. They are made when first asked for, by all their ranks together.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "dist/launch/mesh_layout.h"
#include "dist/world.h"

namespace apus {

// A mesh as one of its ranks sees it. Tests make one without processes.
class MeshView {
 public:
  explicit MeshView(const MeshLayout& layout) : layout_(layout) {}
  virtual ~MeshView() = default;

  const MeshLayout& layout() const { return layout_; }
  int size(AxisSet axes) const { return layout_.size(axes); }
  int rank(AxisSet axes) const { return layout_.rank(axes); }
  virtual Comm& comm(AxisSet axes) = 0;  // for tensors on the device
  virtual Comm& host(AxisSet axes) = 0;  // for tensors on the host

 private:
  MeshLayout layout_;
};

class Mesh : public MeshView {
 public:
  explicit Mesh(World& world, const MeshSizes& sizes = {});  // without sizes all ranks are copies of the model

  Comm& comm(AxisSet axes) override { return among(axes, false); }
  Comm& host(AxisSet axes) override { return among(axes, true); }
  c10::Device device() const { return world_.device().device; }

 private:
  Comm& among(AxisSet axes, bool on_host);
  World& world_;
  const int number_;
  std::map<std::pair<unsigned, bool>, std::unique_ptr<Comm>> made_;
};

}  // namespace apus
