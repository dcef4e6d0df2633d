// Lookups per second in a snapshot mapped into memory. For the same random keys, compares them with
// the live table and with prefetched reads from an array (without an index). Also measures how fast
// snapshots are written and verified.
//
//   cmake --build --preset default --target frozen_table_bench
//   build/engine/cc/testing/frozen_table_bench [ROWS [DIM [FILE]]]
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/values.h"
#include "de_core/cc/engine/serving/frozen_table.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using Clock = std::chrono::steady_clock;

/// Writes in blocks of 2 MiB, as a save does. With such blocks, some file systems hold the file in
/// huge pages of the page cache.
class FileSink final : public ByteSink {
 public:
  explicit FileSink(int file) : file_(file) { block_.reserve(kBlock); }
  Status Append(const void* data, size_t size) override {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
      const size_t part = std::min(size, kBlock - block_.size());
      block_.insert(block_.end(), at, at + part);
      at += part;
      size -= part;
      if (block_.size() == kBlock) DE_RETURN_IF_ERROR(Flush());
    }
    return Status::Ok();
  }
  Status Flush() {
    const auto size = static_cast<ssize_t>(block_.size());
    if (::write(file_, block_.data(), block_.size()) != size) {
      return Status::ResourceExhausted("cannot write the file");
    }
    block_.clear();
    return Status::Ok();
  }

 private:
  static constexpr size_t kBlock = size_t{2} << 20;
  int file_;
  std::vector<char> block_;
};

template <typename Body>
double Seconds(const Body& body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void Expect(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message.c_str());
  std::exit(1);
}

/// Returns how many bits of the hash number the sections, so that each has some thousand rows.
uint32_t SectionBits(size_t rows) {
  uint32_t bits = 0;
  while ((rows >> bits) > 4000) ++bits;
  return bits;
}

/// Writes a snapshot to a file at this path, maps it, and deletes the file.
class MappedSnapshot {
 public:
  MappedSnapshot(const testing::SampleTable& sample, const char* path, DType stored) {
    const int file = ::open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    ::unlink(path);
    FileSink sink(file);
    writing_ = Seconds([&] {
      Expect(sample.Write(&sink, SnapshotHeader(), SectionBits(sample.size()), stored));
      Expect(sink.Flush());
    });
    size_ = static_cast<size_t>(::lseek(file, 0, SEEK_END));
    void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    ::close(file);
    if (data == MAP_FAILED) Expect(Status::ResourceExhausted("cannot map the file"));
    data_ = static_cast<const char*>(data);
    opening_ = Seconds([&] { Expect(FrozenTable::Open(data_, size_, {}, &table_)); });
  }

  void Report(size_t row_bytes) const {
    const double verifying = Seconds([&] { Expect(table_->reader().Verify()); });
    const double giga = static_cast<double>(size_) / 1e9;
    std::printf(
        "file %.3f GB, %.4f times keys and values; write %.2f GB/s, verify %.2f GB/s, open %.0f "
        "us\n",
        giga, static_cast<double>(size_) / static_cast<double>(table_->size() * (row_bytes + 8)),
        giga / writing_, giga / verifying, opening_ * 1e6);
  }

  const FrozenTable& table() const { return *table_; }

 private:
  double writing_ = 0;
  double opening_ = 0;
  size_t size_ = 0;
  const char* data_ = nullptr;
  std::unique_ptr<FrozenTable> table_;
};

int Run(size_t rows, size_t dim, const char* path) {
  const testing::SampleTable sample(RowLayout(KeyType::kInt64, DType::kFloat32, dim), rows);
  const size_t bytes = dim * sizeof(float);
  const MappedSnapshot mapped(sample, path, DType::kFloat32);
  mapped.Report(bytes);
  const FrozenTable* const frozen = &mapped.table();

  std::mt19937_64 random(3);
  const size_t batch = size_t{1} << 20;
  std::vector<int64_t> known(batch);
  std::vector<int64_t> unknown(batch);
  std::vector<size_t> positions(batch);
  for (size_t i = 0; i < batch; ++i) {
    positions[i] = random() % rows;
    known[i] = sample.keys()[positions[i]].number;
    unknown[i] = static_cast<int64_t>(random());
  }
  const Keys hits{known.data(), nullptr, batch};
  const Keys misses{unknown.data(), nullptr, batch};
  std::vector<float> out(batch * dim);
  char* const out_bytes = reinterpret_cast<char*>(out.data());
  std::unique_ptr<bool[]> found(new bool[batch]);

  TableOptions options;
  options.dim = dim;
  options.init_size = rows;
  std::unique_ptr<Table> live;
  Expect(Table::Create(options, &live));
  for (size_t i = 0; i < rows; ++i) {
    const Keys key{&sample.keys()[i].number, nullptr, 1};
    Expect(live->InsertOrAssign(key, {sample.row(i).data(), nullptr}, nullptr));
  }

  const char* const array = sample.row(0).data();
  const auto report = [&](const char* what, const auto& body) {
    double best = 1e9;
    for (int round = 0; round < 7; ++round) best = std::min(best, Seconds(body));
    std::printf("%-34s %6.1f ns a key, %5.1f million keys/s\n", what,
                best * 1e9 / static_cast<double>(batch), static_cast<double>(batch) / best / 1e6);
  };
  report("gather, no index", [&] {
    for (size_t i = 0; i < batch; ++i) {
      if (i + 16 < batch) PrefetchBytes(array + positions[i + 16] * bytes, bytes);
      CopyBytes(out_bytes + i * bytes, array + positions[i] * bytes, bytes);
    }
  });
  report("frozen table, known keys", [&] { Expect(frozen->Find(hits, out.data(), found.get())); });
  report("live table, known keys",
         [&] { Expect(live->Find(hits, {out_bytes, nullptr}, found.get(), nullptr)); });
  report("frozen table, unknown keys",
         [&] { Expect(frozen->Find(misses, out.data(), found.get())); });
  report("live table, unknown keys",
         [&] { Expect(live->Find(misses, {out_bytes, nullptr}, found.get(), nullptr)); });
  for (const DType stored : {DType::kHalf, DType::kBFloat16, DType::kInt8}) {
    const MappedSnapshot narrow(sample, path, stored);
    const std::string name = "frozen table stored as " + std::string(NameOf(stored));
    report(name.c_str(), [&] { Expect(narrow.table().Find(hits, out.data(), found.get())); });
  }
  return 0;
}

}  // namespace
}  // namespace de::engine

int main(int argc, char** argv) {
  return de::engine::Run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000,
                         argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 16,
                         argc > 3 ? argv[3] : "/tmp/frozen_table_bench.snapshot");
}
