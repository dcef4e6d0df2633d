// Lookups of cold rows on a disk, beside a plain reader of random blocks of 4 KiB with the same
// queue depth, in turns. Rows have 776 bytes: 64 floats, Adam's two slots and a step.
//
//   disk_rows_bench DIRECTORY [ROWS]
//
// Both bypass the page cache. The plain reader reads a file of the same size. Also prints the
// memory of the index, the amplification, and the rate of random updates.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/tier/block_reader.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/segment_file.h"
#include "de_core/cc/testing/tier/cold_rows_calls.h"

namespace de::engine {
namespace {

constexpr size_t kBatch = 4096;
constexpr size_t kRounds = 41;
constexpr uint32_t kDepth = 64;
constexpr size_t kAppended = 16384;  // rows per append, as a tiered table appends them

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message.c_str());
  std::exit(1);
}

double Median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

/// A file that is read in random blocks of 4 KiB.
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
    while (file_->end() < bytes) Check(file_->Append(part, kPart));
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

 private:
  std::unique_ptr<SegmentFile> file_;
  BlockBuffer buffer_;
};

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

RowLayout AdamLayout() {
  RowLayout layout(KeyType::kInt64, DType::kFloat32, 64);
  layout.Append("adam", {{"m", DType::kFloat32, 64, 0}, {"v", DType::kFloat32, 64, 0}});
  layout.Append("de", {{"step", DType::kInt64, 1, 0}});
  return layout;
}

/// Returns the seconds that the cold rows took.
double AppendKeys(DiskRows* rows, const RowLayout& layout, std::vector<uint64_t> keys) {
  RowBatch batch;
  batch.layout = layout;
  batch.words = std::move(keys);
  batch.rows.resize(batch.size() * layout.stride());
  for (size_t i = 0; i < batch.size(); ++i) {
    std::memcpy(batch.rows.data() + i * layout.stride(), &batch.words[i], sizeof(uint64_t));
  }
  const double begin = Seconds();
  Check(testing::Append(rows, batch));
  return Seconds() - begin;
}

void Lookups(const DiskRows& rows, const RowLayout& layout, uint64_t count, PlainFile* plain) {
  std::mt19937_64 random(2);
  BlockReader reader(kDepth);
  std::vector<double> found_rates, plain_rates, ratios, cpu, plain_cpu;
  std::vector<int64_t> keys(kBatch);
  testing::FoundRows found;
  for (size_t round = 0; round < kRounds; ++round) {
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % count);
    double begin = Seconds(), used = CpuSeconds();
    Check(testing::Find(rows, {keys.data(), nullptr, kBatch}, layout, nullptr, &found));
    found_rates.push_back(kBatch / (Seconds() - begin));
    cpu.push_back((CpuSeconds() - used) / kBatch * 1e6);
    for (size_t i = 0; i < kBatch; ++i) {
      int64_t word;
      std::memcpy(&word, found.rows.data() + i * layout.stride(), 8);
      if (found.positions[i] != i || word != keys[i]) Check(Status::Internal("a wrong row"));
    }
    begin = Seconds();
    used = CpuSeconds();
    plain->Read(&reader, kBatch, &random);
    plain_rates.push_back(kBatch / (Seconds() - begin));
    plain_cpu.push_back((CpuSeconds() - used) / kBatch * 1e6);
    ratios.push_back(found_rates.back() / plain_rates.back());
  }
  std::printf("lookups/s %.0f, plain reads/s %.0f (%s), ratio %.2f; CPU us %.1f and %.1f\n",
              Median(found_rates), Median(plain_rates), reader.has_ring() ? "io_uring" : "pread",
              Median(ratios), Median(cpu), Median(plain_cpu));
}

void Run(const std::string& directory, uint64_t count) {
  DiskOptions options;
  options.directory = directory;
  options.depth = kDepth;
  std::unique_ptr<DiskRows> rows;
  Check(DiskRows::Create(options, KeyType::kInt64, &rows));
  const RowLayout layout = AdamLayout();
  const double bytes = static_cast<double>(count * layout.stride());
  double begin = Seconds();
  for (uint64_t at = 0; at < count; at += kAppended) {
    std::vector<uint64_t> keys;
    for (uint64_t key = at; key < std::min<uint64_t>(count, at + kAppended); ++key) {
      keys.push_back(key);
    }
    AppendKeys(rows.get(), layout, std::move(keys));
  }
  std::printf("appended %.0f rows/s of %zu bytes; index %.1f bytes/row; disk %.2f of the rows\n",
              static_cast<double>(count) / (Seconds() - begin), layout.stride(),
              static_cast<double>(rows->Stats().filter_bytes) / static_cast<double>(count),
              static_cast<double>(rows->Stats().disk_bytes) / bytes);
  PlainFile plain(directory + "/plain", count * layout.stride());
  Lookups(*rows, layout, count, &plain);
  std::mt19937_64 random(3);
  const uint64_t before = rows->written_bytes();
  uint64_t updated = 0;
  double longest = 0, most_disk = 0, seconds = 0;
  const double used = CpuSeconds();
  while (updated < 3 * count) {
    std::vector<uint64_t> keys(kAppended);
    for (uint64_t& key : keys) key = random() % count;
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    updated += keys.size();
    const double took = AppendKeys(rows.get(), layout, std::move(keys));
    seconds += took;
    longest = std::max(longest, took);
    most_disk = std::max(most_disk, static_cast<double>(rows->Stats().disk_bytes) / bytes);
  }
  std::printf(
      "updates/s %.0f; CPU us per row, with the benchmark's own %.2f; longest append of %zu rows "
      "%.0f ms; written %.2f, on disk at most %.2f of the rows\n",
      static_cast<double>(updated) / seconds,
      1e6 * (CpuSeconds() - used) / static_cast<double>(updated), kAppended, 1e3 * longest,
      static_cast<double>(rows->written_bytes() - before) /
          static_cast<double>(updated * layout.stride()),
      most_disk);
  Lookups(*rows, layout, count, &plain);
}

}  // namespace
}  // namespace de::engine

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: disk_rows_bench DIRECTORY [ROWS]\n");
    return 2;
  }
  de::engine::Run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000);
  return 0;
}
