// SPDX-License-Identifier: Apache-2.0
// Reports about devices, for people.
#pragma once

#include <string>
#include <vector>

#include "doctor/inventory.h"
#include "doctor/paint.h"

namespace apus {

std::string devices_text(const std::vector<DeviceGroup>& groups, const Paint& paint);
std::string links_text(const std::vector<LinkGroup>& groups, const Paint& paint);

}  // namespace apus
