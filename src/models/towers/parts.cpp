// SPDX-License-Identifier: Apache-2.0
#include "models/towers/parts.h"

namespace apus {

Table::Table(const TowerPart& part) : weight_(param("weight", part.shape)) {
  if (part.bias) bias_ = &param("bias", {part.shape[0]});
}

TowerParts::TowerParts(const std::vector<TowerPart>& parts) {
  for (const TowerPart& p : parts) {
    switch (p.kind) {
      case TowerPart::Kind::Linear:
        linears_[p.name] = &child<Linear>(p.name, Linear::Spec{.in = p.shape[1], .out = p.shape[0], .bias = p.bias});
        break;
      case TowerPart::Kind::Norm:
        norms_[p.name] = &child<Norm>(p.name, p.shape[0], p.norm);
        break;
      case TowerPart::Kind::Idle:
        tables_[p.name] = &child<Table>(p.name, p);
        tables_[p.name]->visit([](const std::string&, Param& param) { param.trainable = false; });
        break;
      case TowerPart::Kind::Bare:
        bare_[p.name] = &param(p.name, p.shape);
        break;
      case TowerPart::Kind::Fixed: {
        Param& fixed = param(p.name, p.shape);
        fixed.statistic = true, fixed.trainable = false, fixed.scalar = p.shape == std::vector<int64_t>{1};
        bare_[p.name] = &fixed;
        break;
      }
      case TowerPart::Kind::Table:
        tables_[p.name] = &child<Table>(p.name, p);
        break;
    }
  }
}

}  // namespace apus
