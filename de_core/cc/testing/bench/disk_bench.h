// Shared by the benchmarks of rows on a disk: clocks, medians, a plain reader of random blocks.
#ifndef DE_CORE_TESTING_DISK_BENCH_H_
#define DE_CORE_TESTING_DISK_BENCH_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/tier/block_reader.h"
#include "de_core/cc/engine/tier/segment_file.h"

namespace de::engine::testing {

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message.c_str());
  std::exit(1);
}

/// Returns the number below which a fraction `part` of the numbers is.
inline double Quantile(std::vector<double> numbers, double part) {
  std::sort(numbers.begin(), numbers.end());
  const double at = part * static_cast<double>(numbers.size());
  return numbers[std::min(numbers.size() - 1, static_cast<size_t>(at))];
}
inline double Median(std::vector<double> numbers) { return Quantile(std::move(numbers), 0.5); }

/// A file that is written as fast as the disk allows, and read in random blocks of 4 KiB.
class PlainFile {
 public:
  static constexpr size_t kPart = size_t{1} << 20;

  PlainFile(const std::string& path, uint64_t bytes) {
    BlockBuffer part;
    part.Reserve(kPart);
    std::mt19937_64 random(1);
    for (size_t at = 0; at < kPart; at += 8) {
      const uint64_t word = random();
      std::memcpy(part.data() + at, &word, 8);
    }
    const RowLayout layout(KeyType::kInt64, DType::kFloat32, 1);
    std::shared_ptr<Disk> disk;
    Check(FolderDisk::Open(path + "-folder", 1, false, &disk));
    Check(SegmentFile::Create(disk, path, std::make_shared<RowLayout>(layout), &file_));
    const double begin = Seconds();
    while (file_->end() < bytes) Check(file_->Append(part, kPart));
    write_rate_ = static_cast<double>(file_->end()) / (Seconds() - begin);
  }

  /// Reads `count` random blocks.
  void Read(BlockReader* reader, size_t count, std::mt19937_64* random) {
    buffer_.Reserve(count * kBlockBytes);
    std::vector<BlockRead> reads(count);
    for (BlockRead& read : reads) {
      const uint64_t block = (*random)() % (file_->end() / kBlockBytes);
      read = {file_->descriptor(), block * kBlockBytes, kBlockBytes, nullptr, 0};
    }
    reader->ReadEach(reads.data(), count, {buffer_.data(), kBlockBytes, count}, nullptr,
                     [](size_t) {});
  }

  /// Bytes per second of the writes that made the file.
  double write_rate() const noexcept { return write_rate_; }

 private:
  std::unique_ptr<SegmentFile> file_;
  BlockBuffer buffer_;
  double write_rate_ = 0;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_DISK_BENCH_H_
