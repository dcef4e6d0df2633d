// How the table benchmark measures: interleaved rounds, medians and ratios.
#ifndef DE_CORE_TESTING_TABLE_BENCH_H_
#define DE_CORE_TESTING_TABLE_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace de::bench {

struct Options {
  uint64_t rows = 10'000'000;              ///< rows of the large tables
  uint64_t small_rows = 200'000;           ///< rows of the table that fits the cache
  uint64_t fill_rows = 5'000'000;          ///< rows of the table that is filled
  uint64_t queries = 1 << 20;              ///< keys per round
  uint64_t payload_bytes = 2'600'000'000;  ///< upper limit of rows * row bytes of one table
  int rounds = 7;
  int fill_rounds = 3;
  std::vector<size_t> dims = {8, 16, 32, 64, 128};
  std::vector<size_t> batches = {256, 4096, 131072};
  std::set<std::string> only;  ///< names of the sections to run; empty runs all

  uint64_t RowsOf(uint64_t wanted, size_t dim) const {
    const uint64_t most = payload_bytes / (4 * dim);
    return wanted < most ? wanted : most;
  }
  bool Wants(const std::string& section) const { return only.empty() || only.count(section) > 0; }
};

double CpuSeconds();  ///< CPU time of this thread
double WallSeconds();
double Median(std::vector<double> values);

/// Measurements that run in turn, round by round. So a change of the machine's speed affects all of
/// them.
class Rounds {
 public:
  /// Adds a measurement of `body`, which handles `items` keys. `before`, if given, runs before each
  /// call of `body`; its time does not count.
  void Add(const std::string& name, double items, std::function<void()> body,
           std::function<void()> before = nullptr);
  /// Runs one round that is not recorded, then `rounds` rounds. Each round starts with a different
  /// measurement than the previous round.
  void Run(int rounds);

  /// Returns the median rate in million items per second of CPU time, or of wall time (`wall`).
  double Rate(const std::string& name, bool wall = false) const;
  /// Returns the median over the rounds of rate(a) / rate(b); 0 if `a` or `b` was not measured.
  double Ratio(const std::string& a, const std::string& b, bool wall = false) const;

 private:
  struct Measure {
    std::string name;
    double items;
    std::function<void()> body, before;
    std::vector<double> cpu, wall;  // seconds
  };
  const Measure* Find(const std::string& name) const;

  std::vector<Measure> measures_;
};

// Print Markdown tables: a title with the names of the columns, and a row.
void PrintSection(const std::string& title, const std::vector<std::string>& columns);
void PrintRow(const std::vector<std::string>& cells);

/// Formats a number as "12.34". Returns "-" for 0, which means that it was not measured.
std::string Number(double value, int digits = 2);

/// Returns `count` distinct keys. Disjoint ranges share no keys.
std::vector<int64_t> KeysFrom(uint64_t first, uint64_t count);

/// In a virtual machine, waits until the host has taken back freed memory. Linux reports free
/// memory to the host after two seconds. Some hosts then stop the virtual machine for 30 to 40 of
/// every 100 ms.
void LetTheHostFinish();

uint64_t ResidentBytes();   ///< resident bytes of this process
uint64_t AvailableBytes();  ///< available bytes of the machine

// The sections.
void LookupSection(const Options& options);
void FillSection(const Options& options);
void MemorySection(const Options& options);

}  // namespace de::bench

#endif  // DE_CORE_TESTING_TABLE_BENCH_H_
