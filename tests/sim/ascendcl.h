/* SPDX-License-Identifier: Apache-2.0
 * The part of the Ascend runtime's C interface that the simulated NPU offers (and the simulated torch_npu calls).
 * Numbers and names follow the vendor's documentation. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int aclError;
enum {
  ACL_SUCCESS = 0,
  ACL_ERROR_INVALID_PARAM = 100000,
  ACL_ERROR_UNINITIALIZE = 100001,
  ACL_ERROR_REPEAT_INITIALIZE = 100002,
  ACL_ERROR_RT_PARAM_INVALID = 107000,
  ACL_ERROR_RT_INVALID_DEVICEID = 107001,
  ACL_ERROR_RT_CONTEXT_NULL = 107002,
  ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
  ACL_ERROR_RT_DEV_SETUP_ERROR = 507033
};

aclError aclInit(const char* config_path);
aclError aclFinalize(void);
aclError aclrtGetDeviceCount(uint32_t* count);
aclError aclrtSetDevice(int32_t device);
aclError aclrtGetDevice(int32_t* device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtSynchronizeDevice(void);
aclError aclrtCreateStream(void** stream);
aclError aclrtDestroyStream(void* stream);
aclError aclrtSynchronizeStream(void* stream);
aclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t milliseconds);
aclError aclrtMalloc(void** pointer, size_t size, int policy);
aclError aclrtFree(void* pointer);
aclError aclrtGetMemInfo(int attribute, size_t* free, size_t* total);
aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch);
const char* aclrtGetSocName(void);
typedef struct {
  char version[128], majorVersion[64], minorVersion[64], releaseVersion[64], patchVersion[64], reserved[128];
} aclCANNPackageVersion;
aclError aclsysGetCANNVersion(int name, aclCANNPackageVersion* version);
const char* aclGetRecentErrMsg(void);

#ifdef __cplusplus
}
#endif
