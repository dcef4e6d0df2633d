// Lookups in a served file that is larger than memory: by page faults, with pages read ahead, and
// beside plain reads of as many blocks. Batches of the three alternate. Run it with a limit of
// memory that is far below the size of the file:
//
//   cmake --build --preset default --target cold_lookup_bench
//   systemd-run --scope -p MemoryMax=200M build/engine/cc/testing/cold_lookup_bench FILE [ROUNDS]
//
// FILE is a snapshot with integer keys, such as de.checkpoint.save writes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/engine/tier/block_reader.h"
#include "de_core/cc/engine/tier/segment_file.h"

namespace de::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 1000;
constexpr size_t kKeysPerSection = 200;

class Bench {
 public:
  bool Open(const char* path) {
    file_ = open(path, O_RDONLY);
    direct_ = open(path, O_RDONLY | O_DIRECT);
    struct stat info{};
    if (file_ < 0 || direct_ < 0 || fstat(file_, &info) != 0) return false;
    size_ = static_cast<size_t>(info.st_size);
    if (!Map(MADV_NORMAL, &plain_) || !Map(MADV_RANDOM, &single_)) return false;
    SectionBuffer buffer;
    for (size_t i = 0; i < single_->reader(0).sections().size(); ++i) {
      if (!single_->reader(0).ReadSection(i, &buffer).ok()) return false;
      const size_t step = buffer.section.count / kKeysPerSection + 1;
      for (size_t row = 0; row < buffer.section.count; row += step) {
        known_.push_back(static_cast<int64_t>(buffer.section.words[row]));
      }
    }
    posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
    values_.resize(kBatch * single_->value_bytes());
    blocks_.Reserve(kBatch * kBlockBytes);
    return !known_.empty();
  }

  void Faults(const FrozenChain& chain) { (void)chain.Find(Keys(), values_.data(), nullptr); }
  void Ahead() {
    const engine::Keys keys = Keys();
    (void)single_->ReadAhead(keys);
    (void)single_->Find(keys, values_.data(), nullptr);
  }
  /// A lookup reads an index line and a row of each key.
  void Reads() {
    for (int part = 0; part < 2; ++part) {
      reads_.clear();
      for (size_t i = 0; i < kBatch; ++i) {
        const uint64_t offset = random_() % (size_ / kBlockBytes) * kBlockBytes;
        reads_.push_back({direct_, offset, kBlockBytes, nullptr, 0});
      }
      reader_.ReadEach(reads_.data(), kBatch, {blocks_.data(), kBlockBytes, kBatch}, nullptr,
                       [](size_t) {});
    }
  }

  template <typename Work>
  void Time(const Work& work, std::vector<double>* all) {
    const auto begin = Clock::now();
    work();
    all->push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }

  void Run(size_t rounds) {
    std::vector<double> single, ahead, reads, plain;
    for (size_t i = 0; i < rounds; ++i) {
      Time([&] { Faults(*single_); }, &single);
      Time([&] { Ahead(); }, &ahead);
      Time([&] { Reads(); }, &reads);
    }
    const auto end = Clock::now() + std::chrono::minutes(1);
    while (plain.size() < rounds && Clock::now() < end) {
      Time([&] { Faults(*plain_); }, &plain);
    }
    Print("read ahead", &ahead);
    Print("faults of single pages", &single);
    Print("faults as the system reads by default", &plain);
    Print("reads of random blocks", &reads);
  }

 private:
  bool Map(int advice, std::unique_ptr<FrozenChain>* chain) const {
    void* const data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
    if (data == MAP_FAILED || madvise(data, size_, advice) != 0) return false;
    return FrozenChain::Open({{static_cast<const char*>(data), size_}}, {}, chain).ok();
  }
  engine::Keys Keys() {
    keys_.resize(kBatch);
    for (int64_t& key : keys_) key = known_[random_() % known_.size()];
    return {keys_.data(), nullptr, kBatch};
  }
  static void Print(const char* name, std::vector<double>* seconds) {
    std::sort(seconds->begin(), seconds->end());
    const size_t count = seconds->size();
    std::printf("%-40s p50 %8.1f ms  p99 %8.1f ms  (%zu batches of %zu keys)\n", name,
                1e3 * (*seconds)[count / 2], 1e3 * (*seconds)[count * 99 / 100], count, kBatch);
  }

  int file_ = -1, direct_ = -1;
  size_t size_ = 0;
  std::unique_ptr<FrozenChain> plain_, single_;
  std::vector<int64_t> known_, keys_;
  std::vector<char> values_;
  BlockBuffer blocks_;
  BlockReader reader_{128};
  std::vector<BlockRead> reads_;
  std::mt19937_64 random_{1};
};

}  // namespace
}  // namespace de::engine

int main(int argc, char** argv) {
  de::engine::Bench bench;
  if (argc < 2 || !bench.Open(argv[1])) {
    std::fprintf(stderr, "usage: cold_lookup_bench FILE [ROUNDS]; FILE is a snapshot\n");
    return 1;
  }
  bench.Run(argc > 2 ? static_cast<size_t>(std::atoi(argv[2])) : 100);
  return 0;
}
