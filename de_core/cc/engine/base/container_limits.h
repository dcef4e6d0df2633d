// Cores and memory that a container allows. The process may see more of both.
#ifndef DE_CORE_ENGINE_CONTAINER_LIMITS_H_
#define DE_CORE_ENGINE_CONTAINER_LIMITS_H_

#include <string>

namespace de::engine {

/// Returns the smallest CPU quota, in cores, of the process's control group (version 1 or 2) and
/// its ancestors. Returns infinity if there is no quota or none can be read. Tests pass a `root`,
/// which is prepended to the paths of /proc and /sys.
double CpuQuota(const std::string& root = "") noexcept;

/// Like CpuQuota, for the limit of memory in bytes, which includes the page cache.
double MemoryLimit(const std::string& root = "") noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CONTAINER_LIMITS_H_
