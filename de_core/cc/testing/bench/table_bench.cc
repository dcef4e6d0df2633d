// Compares the table with other maps and with plain memory accesses. See `table_bench --help`.
#include "de_core/cc/testing/bench/table_bench.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace {

using de::bench::Options;

constexpr char kHelp[] =
    R"(Measures the embedding table, interleaved with its peers, and prints ratios.

  table_bench [--quick] [--only SECTION,…] [--OPTION VALUE …]

Peers: libcuckoo with rows inline (apt-get install libcuckoo-dev), and absl::flat_hash_map
(libabsl-dev) and boost::unordered_flat_map (libboost1.81-dev) as an index of a plain array. Peers
that CMake did not find are left out.
The limit of the memory: `gather` reads random rows from a plain array in huge pages. `probe` reads
one random index line and then its row. Both prefetch into the second-level cache, like the table.

All measures run in turn in every round. Each number is a median over the rounds, of CPU time unless
noted; each ratio is the median of the rounds' ratios. Before a measure that allocates, as much
memory is touched and freed. Quote numbers only from a quiet machine.

Sections (all by default):
  w3       uniform hits, by dim and batch; a large table and a small one; one and two threads
  fill     from empty, growing and with init_size
  memory   resident bytes over keys and values while growing

Options:
  --rows N          rows of w3 and memory           (10000000)
  --small_rows N    rows of w3's small table        (200000)
  --fill_rows N     rows of fill                    (5000000)
  --queries N       queries per round               (1048576)
  --payload_mb N    greatest rows * dim * 4 bytes   (2600)
  --rounds N        rounds of lookups               (7)
  --fill_rounds N   rounds of fill                  (3)
  --dims N,…        dims among 8, 16, 32, 64, 128   (all)
  --batches N,…     batch sizes of w3               (256,4096,131072)
  --quick           1 % of the rows and three rounds: a quick check that it runs

The defaults need 12 GB and some minutes.
)";

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<size_t> Sizes(const std::string& text) {
  std::vector<size_t> sizes;
  for (const std::string& part : Split(text))
    sizes.push_back(std::strtoull(part.c_str(), nullptr, 10));
  return sizes;
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "%s. See table_bench --help.\n", what.c_str());
  std::exit(1);
}

Options Parse(int argc, char** argv) {
  Options options;
  const std::vector<std::pair<std::string, uint64_t*>> numbers = {
      {"--rows", &options.rows},
      {"--small_rows", &options.small_rows},
      {"--fill_rows", &options.fill_rows},
      {"--queries", &options.queries}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    if (name == "--quick") {
      for (const auto& [option, number] : numbers) *number /= 100;
      options.small_rows = 20'000;
      options.rounds = 3;
      options.fill_rounds = 1;
      continue;
    }
    if (i + 1 == argc) Refuse("An option needs a value. Received: " + name);
    const std::string value = argv[++i];
    const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--only") {
      for (const std::string& part : Split(value)) options.only.insert(part);
    } else if (name == "--dims") {
      options.dims = Sizes(value);
    } else if (name == "--batches") {
      options.batches = Sizes(value);
    } else {
      bool known = false;
      for (const auto& [option, to] : numbers) {
        if (name != option) continue;
        *to = number;
        known = true;
      }
      if (name == "--payload_mb") {
        options.payload_bytes = number * 1'000'000;
      } else if (name == "--rounds") {
        options.rounds = static_cast<int>(number);
      } else if (name == "--fill_rounds") {
        options.fill_rounds = static_cast<int>(number);
      } else if (!known) {
        Refuse("There is no such option. Received: " + name);
      }
      if (number == 0) Refuse("A number above 0 is needed. Received: " + name + " " + value);
    }
  }
  const std::set<std::string> sections = {"w3", "fill", "memory"};
  for (const std::string& section : options.only) {
    if (sections.count(section) == 0) Refuse("There is no such section. Received: " + section);
  }
  return options;
}

std::string FirstLine(const char* path, const std::string& prefix = "") {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, prefix.size(), prefix) != 0) continue;
    const size_t colon = prefix.empty() ? std::string::npos : line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "?";
}

void PrintMachine() {
  std::printf("%s, %u cores, %.1f GB free, load %s, huge pages %s, compiler %s\n",
              FirstLine("/proc/cpuinfo", "model name").c_str(), std::thread::hardware_concurrency(),
              static_cast<double>(de::bench::AvailableBytes()) / 1e9,
              FirstLine("/proc/loadavg").c_str(),
              FirstLine("/sys/kernel/mm/transparent_hugepage/enabled").c_str(), __VERSION__);
  if (!de::bench::Cuckoo<8>::kThere)
    std::printf("Left out: libcuckoo (apt-get install libcuckoo-dev)\n");
  if (!de::bench::Flat<de::bench::AbslMap>::kThere)
    std::printf("Left out: absl (apt-get install libabsl-dev)\n");
  if (!de::bench::Flat<de::bench::BoostMap>::kThere)
    std::printf("Left out: boost (apt-get install libboost1.81-dev)\n");
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  PrintMachine();
  const double start = de::bench::WallSeconds();
  // Run this section first: memory that other sections free would distort its results.
  if (options.Wants("memory")) de::bench::MemorySection(options);
  if (options.Wants("w3")) de::bench::LookupSection(options);
  if (options.Wants("fill")) de::bench::FillSection(options);
  std::printf("\n%.0f s; load at the end %s\n", de::bench::WallSeconds() - start,
              FirstLine("/proc/loadavg").c_str());
}
