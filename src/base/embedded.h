// SPDX-License-Identifier: Apache-2.0
// The table that cmake/EmbedAssets.cmake generates from assets/.
#pragma once

namespace apus {

struct EmbeddedAsset {
  const char *name, *begin, *end;
};
const EmbeddedAsset* embedded_assets();  // ends with a null name

}  // namespace apus
