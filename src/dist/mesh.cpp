// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh.h"

#include "base/error.h"

namespace apus {

Mesh::Mesh(World& world, const MeshSizes& sizes)
    : MeshView(MeshLayout(sizes, world.size(), world.rank())), world_(world), number_(world.number_mesh()) {}

Comm& Mesh::among(AxisSet axes, bool on_host) {
  const AxisSet real = layout().real(axes);  // sets that mean the same ranks share a communicator
  if (layout().size(real) == layout().world()) return on_host ? world_.host() : world_.devices();
  auto& comm = made_[{real.bits(), on_host}];
  if (comm) return *comm;
  const std::vector<int> ranks = layout().ranks(real);
  if (ranks.size() == 1) return *(comm = lone_comm());
  // Every line of this mesh along these axes has a name of its own: two meshes may have the same lines.
  return *(comm = world_.connect(str("mesh ", number_, " ", real.bits(), on_host ? " host " : " device ", ranks[0]),
                                 ranks, on_host));
}

}  // namespace apus
