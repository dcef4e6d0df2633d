// Clocks, rounds and the report of the table benchmark.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/bench/table_bench.h"

namespace de::bench {
namespace {

double Seconds(clockid_t clock) {
  timespec at;
  clock_gettime(clock, &at);
  return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
}

}  // namespace

double CpuSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }
double WallSeconds() { return Seconds(CLOCK_MONOTONIC); }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void Rounds::Add(const std::string& name, double items, std::function<void()> body,
                 std::function<void()> before) {
  measures_.push_back({name, items, std::move(body), std::move(before), {}, {}});
}

void Rounds::Run(int rounds) {
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < measures_.size(); ++i) {
      Measure& measure = measures_[(i + static_cast<size_t>(round + 1)) % measures_.size()];
      if (measure.before) measure.before();
      const double cpu = CpuSeconds(), wall = WallSeconds();
      measure.body();
      if (round < 0) continue;
      measure.cpu.push_back(CpuSeconds() - cpu);
      measure.wall.push_back(WallSeconds() - wall);
    }
  }
}

const Rounds::Measure* Rounds::Find(const std::string& name) const {
  for (const Measure& measure : measures_) {
    if (measure.name == name) return &measure;
  }
  return nullptr;
}

double Rounds::Rate(const std::string& name, bool wall) const {
  const Measure* const measure = Find(name);
  if (measure == nullptr) return 0;
  return measure->items / Median(wall ? measure->wall : measure->cpu) / 1e6;
}

double Rounds::Ratio(const std::string& a, const std::string& b, bool wall) const {
  const Measure* const over = Find(a);
  const Measure* const under = Find(b);
  if (over == nullptr || under == nullptr) return 0;
  const std::vector<double>& s = wall ? over->wall : over->cpu;
  const std::vector<double>& t = wall ? under->wall : under->cpu;
  std::vector<double> ratios;
  for (size_t i = 0; i < s.size(); ++i) {
    ratios.push_back(over->items / s[i] / (under->items / t[i]));
  }
  return Median(std::move(ratios));
}

std::string Number(double value, int digits) {
  if (value == 0) return "-";
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

void PrintSection(const std::string& title, const std::vector<std::string>& columns) {
  std::printf("\n### %s\n\n", title.c_str());
  PrintRow(columns);
  PrintRow(std::vector<std::string>(columns.size(), "---"));
}

void PrintRow(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) std::printf("| %s ", cell.c_str());
  std::printf("|\n");
  std::fflush(stdout);
}

std::vector<int64_t> KeysFrom(uint64_t first, uint64_t count) {
  std::vector<int64_t> keys(count);
  for (uint64_t i = 0; i < count; ++i) {
    keys[i] = static_cast<int64_t>(engine::Mix64(first + i + 1));
  }
  return keys;
}

void LetTheHostFinish() {
  static const bool is_virtual = [] {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("flags", 0) == 0) return line.find(" hypervisor") != std::string::npos;
    }
    return false;
  }();
  if (is_virtual) std::this_thread::sleep_for(std::chrono::seconds(6));
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0;
  while (meminfo >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace de::bench
