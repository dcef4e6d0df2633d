#include "de_core/cc/engine/base/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace de::engine {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// Returns the quota, in cores, of the control group at `folder`, or kNone. Version 2 (`unified`)
/// stores quota and period in one file, as "50000 100000", or "max 100000" without a quota. Version
/// 1 stores the two numbers in two files, where a quota of -1 means no quota.
double QuotaIn(const std::string& folder, bool unified) {
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

/// Returns the smallest quota of the control group `path` and its ancestors. In a container, `path`
/// may be the host's and not exist below `mount`. Then `mount` is the group itself, and folders
/// that do not exist count as no quota.
double LeastQuota(const std::string& mount, std::string path, bool unified) {
  double least = QuotaIn(mount, unified);
  while (!path.empty() && path != "/") {
    least = std::min(least, QuotaIn(mount + path, unified));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return least;
}

bool Lists(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

double Read(const std::string& root) {
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
      least = std::min(least, LeastQuota(mount, path, true));
    } else if (Lists(controllers, "cpu")) {
      least = std::min(least, LeastQuota(mount + "/cpu", path, false));
    }
  }
  return least;
}

}  // namespace

double CpuQuota(const std::string& root) noexcept {
  try {
    return Read(root);
  } catch (...) {  // out of memory
    return kNone;
  }
}

}  // namespace de::engine
