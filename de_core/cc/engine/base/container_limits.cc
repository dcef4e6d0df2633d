#include "de_core/cc/engine/base/container_limits.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace de::engine {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// Reads the limit of the control group at `folder`, of version 2 if `unified`. Returns kNone
/// without a limit.
using ReadLimit = double (*)(const std::string& folder, bool unified);

/// Version 2 stores quota and period in one file, as "50000 100000", or "max 100000" without a
/// quota. Version 1 stores the two numbers in two files, where a quota of -1 means no quota.
double CoresIn(const std::string& folder, bool unified) {
  double quota = -1;
  double period = 0;
  if (unified) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;  // "max" sets quota to 0
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : kNone;
}

/// Without a limit, version 2 stores "max", and version 1 a number greater than every memory.
double BytesIn(const std::string& folder, bool unified) {
  double bytes = -1;
  std::ifstream(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes")) >> bytes;
  return bytes > 0 ? bytes : kNone;
}

/// Returns the smallest limit of the control group `path` and its ancestors. In a container, `path`
/// may be the host's and not exist below `mount`. Then `mount` is the group itself, and folders
/// that do not exist count as no limit.
double LeastLimit(const std::string& mount, std::string path, bool unified, ReadLimit read) {
  double least = read(mount, unified);
  while (!path.empty() && path != "/") {
    least = std::min(least, read(mount + path, unified));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

bool Lists(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

double LimitOf(const std::string& controller, const std::string& root, ReadLimit read) noexcept
    try {
  double least = kNone;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      least = std::min(least, LeastLimit(mount, path, true, read));
    } else if (Lists(controllers, controller)) {
      least = std::min(least, LeastLimit(mount + "/" + controller, path, false, read));
    }
  }
  return least;
} catch (...) {  // out of memory
  return kNone;
}

}  // namespace

double CpuQuota(const std::string& root) noexcept { return LimitOf("cpu", root, CoresIn); }

double MemoryLimit(const std::string& root) noexcept { return LimitOf("memory", root, BytesIn); }

}  // namespace de::engine
