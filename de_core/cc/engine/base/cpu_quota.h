// How many cores a container lets the process use, which may be fewer than it sees.
#ifndef DE_CORE_ENGINE_CPU_QUOTA_H_
#define DE_CORE_ENGINE_CPU_QUOTA_H_

#include <string>

namespace de::engine {

/// The least quota of CPU time, in cores, of the process's control group (version 1 or 2) and those
/// above it; infinity where there is none or none can be read. `root` stands before the paths of
/// /proc and /sys, for tests.
double CpuQuota(const std::string& root = "") noexcept;

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_CPU_QUOTA_H_
