// SPDX-License-Identifier: Apache-2.0
#include "run/own_places.h"

#include "dist/mesh.h"
#include "nn/parts.h"

namespace apus {

StatePlaces own_places(const std::map<std::string, Model*>& models, const std::vector<NamedParam>& updated) {
  StatePlaces of_all, mine;
  for (const auto& [prefix, model] : models) {
    const MeshLayout layout = model->mesh() ? model->mesh()->layout() : MeshLayout();
    model->visit([&, &prefix = prefix](const std::string& name, const Param& p) {
      StatePlace& place = of_all[prefix + name];
      place.full = p.full, place.held = local_part(p.full, unsharded_cuts(p), layout);
      if (p.tied.empty()) return;
      place.tied = prefix + p.tied;
      of_all[place.tied].tied = prefix + name;
    });
  }
  for (const NamedParam& p : updated) {
    if (p.elsewhere) continue;
    StatePlace place = of_all.at(p.name);
    int64_t row = 1;  // numbers of one
    for (size_t d = 1; d < place.held.size(); ++d) row *= place.held[d].size;
    if (row > 0) place.held[0] = {place.held[0].begin + p.first / row, p.tensor.size(0)};
    mine[p.name] = std::move(place);
  }
  return mine;
}

}  // namespace apus
