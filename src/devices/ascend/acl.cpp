// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/acl.h"

#include <cstdlib>

#include "base/error.h"
#include "devices/ascend/libraries.h"

namespace apus::ascend {

namespace {

struct Found {
  Acl table;
  bool ok = false;
  std::string why_not;
};

Found look() {
  Found found;
  std::string why;
  void* library = open_library("libascendcl.so", &why);
  if (!library) {
    const char* home = std::getenv("ASCEND_HOME_PATH");
    found.why_not = home && *home ? str("libascendcl.so does not load although ASCEND_HOME_PATH is ", home, ": ", why)
                                  : str("no CANN here (", why,
                                        "); where it is installed, `source <CANN>/set_env.sh` makes it found");
    return found;
  }
  Acl& t = found.table;
  const bool whole =
      look_up(library, "aclInit", t.init) && look_up(library, "aclrtGetDeviceCount", t.device_count) &&
      look_up(library, "aclrtSetDevice", t.set_device) && look_up(library, "aclrtGetDevice", t.get_device) &&
      look_up(library, "aclrtSynchronizeDevice", t.synchronize) && look_up(library, "aclrtGetMemInfo", t.memory);
  look_up(library, "aclrtGetVersion", t.version);
  look_up(library, "aclrtGetSocName", t.soc_name);
  look_up(library, "aclGetRecentErrMsg", t.recent_error);
  look_up(library, "aclsysGetCANNVersion", t.cann_version);
  look_up(library, "aclsysGetVersionStr", t.package_version);
  if (t.init) t.file = file_of(reinterpret_cast<const void*>(t.init));
  found.ok = whole;
  if (!whole)
    found.why_not = str(t.file.empty() ? "libascendcl.so" : t.file,
                        " lacks functions of the ACL interface: it is no runtime of CANN");
  return found;
}

}  // namespace

const Acl* acl(std::string* why_not) {
  static const Found found = look();
  if (!found.ok && why_not) *why_not = found.why_not;
  return found.ok ? &found.table : nullptr;
}

}  // namespace apus::ascend
