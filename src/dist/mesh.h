// SPDX-License-Identifier: Apache-2.0
// The world as a mesh: communicators along its axes, made when they are first asked for,
// which all their ranks do together.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "dist/launch/mesh_layout.h"
#include "dist/world.h"

namespace apus {

class Mesh {
 public:
  explicit Mesh(World& world, const MeshSizes& sizes = {});  // without sizes all ranks are copies of the model

  const MeshLayout& layout() const { return layout_; }
  int size(AxisSet axes) const { return layout_.size(axes); }
  int rank(AxisSet axes) const { return layout_.rank(axes); }
  Comm& comm(AxisSet axes) { return among(axes, false); }  // for tensors on the device
  Comm& host(AxisSet axes) { return among(axes, true); }   // for tensors on the host
  c10::Device device() const { return world_.device().device; }

 private:
  Comm& among(AxisSet axes, bool on_host);
  World& world_;
  MeshLayout layout_;
  std::map<std::pair<unsigned, bool>, std::unique_ptr<Comm>> made_;
};

}  // namespace apus
