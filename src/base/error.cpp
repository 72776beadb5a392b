// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

namespace apus {

int exit_code(Fault fault) {
  switch (fault) {
    case Fault::Usage:
      return 2;
    case Fault::Data:
      return 3;
    case Fault::Model:
      return 4;
    case Fault::Device:
      return 5;
    case Fault::Comm:
      return 6;
    case Fault::Io:
      return 7;
    case Fault::Bug:
      return 70;
  }
  return 70;
}

int http_status(Fault fault) {
  switch (fault) {
    case Fault::Usage:
      return 400;
    case Fault::Data:
      return 422;
    case Fault::Device:
    case Fault::Comm:
      return 503;
    default:
      return 500;
  }
}

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::Usage:
      return "usage";
    case Fault::Data:
      return "data";
    case Fault::Model:
      return "model";
    case Fault::Device:
      return "device";
    case Fault::Comm:
      return "communication";
    case Fault::Io:
      return "io";
    case Fault::Bug:
      return "bug";
  }
  return "bug";
}

}  // namespace apus
