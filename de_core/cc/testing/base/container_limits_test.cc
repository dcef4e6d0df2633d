// Limits of Linux control groups, versions 1 and 2, read from a folder that imitates / of Linux.
#include "de_core/cc/engine/base/container_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace de::engine {
namespace {

class ContainerLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = std::filesystem::path(::testing::TempDir()) / ("container_limits_" + name);
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  double Quota() const { return CpuQuota(root_.string()); }
  double Memory() const { return MemoryLimit(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(ContainerLimitsTest, none) {
  EXPECT_TRUE(std::isinf(Quota()));
  Put("proc/self/cgroup", "0::/a");
  EXPECT_TRUE(std::isinf(Quota()));
  Put("sys/fs/cgroup/a/cpu.max", "max 100000");
  EXPECT_TRUE(std::isinf(Quota()));
  Put("sys/fs/cgroup/a/cpu.max", "nonsense");
  EXPECT_TRUE(std::isinf(Quota()));
}

TEST_F(ContainerLimitsTest, version_2_takes_the_least_on_the_way_up) {
  Put("proc/self/cgroup", "0::/a/b");
  Put("sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  EXPECT_EQ(Quota(), 4.0);
  Put("sys/fs/cgroup/a/cpu.max", "150000 100000");
  EXPECT_EQ(Quota(), 1.5);
}

TEST_F(ContainerLimitsTest, version_2_in_a_container) {
  Put("proc/self/cgroup", "0::/");
  Put("sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(ContainerLimitsTest, version_1) {
  Put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/1\n0::/y");
  Put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  Put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_TRUE(std::isinf(Quota()));
  Put("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "200000");
  Put("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Quota(), 2.0);
}

TEST_F(ContainerLimitsTest, memory_of_version_2) {
  EXPECT_TRUE(std::isinf(Memory()));
  Put("proc/self/cgroup", "0::/a/b");
  Put("sys/fs/cgroup/a/b/memory.max", "max");
  EXPECT_TRUE(std::isinf(Memory()));
  Put("sys/fs/cgroup/a/memory.max", "1048576");
  EXPECT_EQ(Memory(), 1048576.0);
}

TEST_F(ContainerLimitsTest, memory_of_version_1) {
  Put("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/1");
  Put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_GT(Memory(), 9e18);
  Put("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2097152");
  EXPECT_EQ(Memory(), 2097152.0);
}

}  // namespace
}  // namespace de::engine
