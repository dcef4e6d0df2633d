// A disk in memory that fails as its seed says.
#ifndef DE_CORE_TESTING_SIMULATED_DISK_H_
#define DE_CORE_TESTING_SIMULATED_DISK_H_

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/alloc_failure/alloc_failure.h"

namespace de::engine::testing {

/// How many of 1,000 calls have each fault.
struct DiskFaults {
  // Faults that the disk reports.
  unsigned create_error = 0;
  unsigned write_error = 0;
  unsigned part_error = 0;  ///< writes a part, and reports an error
  unsigned read_error = 0;
  // Faults that it does not report.
  unsigned lost = 0;         ///< writes nothing
  unsigned torn = 0;         ///< writes a part
  unsigned delayed = 0;      ///< writes after some later calls
  unsigned misdirected = 0;  ///< writes to another place, of this file or another
  unsigned flipped = 0;      ///< one bit of a file changes
  unsigned misread = 0;      ///< reads another place
};

/// Thread-safe, except the members that a test sets.
class SimulatedDisk final : public Disk {
 public:
  explicit SimulatedDisk(uint64_t seed = 0) : random_(seed) {}

  DiskFaults faults;
  size_t capacity = ~size_t{0};            ///< bytes of all files
  std::function<void()> on_read = [] {};   ///< called before each read
  std::function<void()> on_write = [] {};  ///< called before each write
  std::atomic<size_t> reads{0}, writes{0};
  std::atomic<size_t> slot_bytes{0};  ///< size of a slot of the last reads

  int Create(const std::string&, int* file) noexcept override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (Hits(faults.create_error)) return EIO;
    return Faults::Quietly([&] {
      *file = static_cast<int>(files_.size());
      files_.emplace_back();
      return 0;
    });
  }

  int Write(int file, const char* from, size_t bytes, uint64_t offset) noexcept override {
    return Faults::Quietly([&] {
      on_write();
      const std::lock_guard<std::mutex> hold(mutex_);
      return WriteNow(static_cast<size_t>(file), from, bytes, offset);
    });
  }

  void Remove(int file, const std::string&) noexcept override {
    const std::lock_guard<std::mutex> hold(mutex_);
    std::string().swap(files_[static_cast<size_t>(file)]);
  }

  void ReadEach(BlockRead* reads_of, size_t count, const ReadSlots& slots, Executor*,
                const std::function<void(size_t)>& visit) noexcept override {
    slot_bytes = slots.bytes;
    for (size_t i = 0; i < count; ++i) {
      BlockRead& read = reads_of[i];
      read.to = slots.memory + i % slots.count * slots.bytes;
      Faults::Quietly([&] {
        on_read();
        const std::lock_guard<std::mutex> hold(mutex_);
        ++reads;
        RunDelayed(1);
        read.error = ReadNow(read);
        return 0;
      });
      visit(i);
    }
  }

 private:
  struct Delayed {
    size_t file;
    uint64_t offset;
    std::string bytes;
  };

  bool Hits(unsigned per_thousand) noexcept {
    return per_thousand != 0 && random_() % 1000 < per_thousand;
  }
  /// A part of `bytes`, in whole sectors.
  size_t PartOf(size_t bytes) noexcept { return random_() % (bytes / 512) * 512; }
  size_t AnyFile() noexcept { return random_() % files_.size(); }

  void Put(size_t file, const char* from, size_t bytes, uint64_t offset) {
    std::string& to = files_[file];
    if (to.size() < offset + bytes) to.resize(offset + bytes);
    std::memcpy(to.data() + offset, from, bytes);
  }
  /// Makes the file as long as if the bytes were written.
  void Extend(size_t file, size_t bytes, uint64_t offset) {
    if (files_[file].size() < offset + bytes) files_[file].resize(offset + bytes);
  }
  void RunDelayed(size_t most) {
    for (; most > 0 && !delayed_.empty() && random_() % 8 == 0; --most) {
      const Delayed late = std::move(delayed_.back());
      delayed_.pop_back();
      Put(late.file, late.bytes.data(), late.bytes.size(), late.offset);
    }
  }

  int WriteNow(size_t file, const char* from, size_t bytes, uint64_t offset) {
    ++writes;
    RunDelayed(4);
    size_t used = 0;
    for (const std::string& each : files_) used += each.size();
    if (used + bytes > capacity || Hits(faults.write_error)) return ENOSPC;
    if (Hits(faults.part_error)) {
      Put(file, from, PartOf(bytes), offset);
      return EIO;
    }
    if (Hits(faults.flipped)) {
      std::string& any = files_[AnyFile()];
      if (!any.empty()) any[random_() % any.size()] ^= static_cast<char>(1U << random_() % 8);
    }
    if (Hits(faults.lost)) {
      Extend(file, bytes, offset);
    } else if (Hits(faults.torn)) {
      Put(file, from, PartOf(bytes), offset);
      Extend(file, bytes, offset);
    } else if (Hits(faults.delayed)) {
      Extend(file, bytes, offset);
      delayed_.push_back({file, offset, std::string(from, bytes)});
    } else if (Hits(faults.misdirected)) {
      Extend(file, bytes, offset);
      const size_t other = random_() % 2 == 0 ? file : AnyFile();
      const uint64_t blocks = files_[other].size() / kBlockBytes;
      Put(other, from, bytes, blocks == 0 ? 0 : random_() % blocks * kBlockBytes);
    } else {
      Put(file, from, bytes, offset);
    }
    return 0;
  }

  int ReadNow(const BlockRead& read) {
    if (Hits(faults.read_error)) return EIO;
    size_t file = static_cast<size_t>(read.file);
    uint64_t offset = read.offset;
    if (Hits(faults.misread)) {
      file = AnyFile();
      offset = random_() % (files_[file].size() / kBlockBytes + 1) * kBlockBytes;
    }
    const std::string& from = files_[file];
    if (offset + read.bytes > from.size()) return EIO;
    std::memcpy(read.to, from.data() + offset, read.bytes);
    return 0;
  }

  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<std::string> files_;
  std::vector<Delayed> delayed_;
};

/// Makes a tiered table whose cold rows are on `disk`.
inline std::unique_ptr<TableBackend> TableOn(std::shared_ptr<SimulatedDisk> disk,
                                             const TableOptions& options, uint64_t memory_bytes) {
  DiskOptions disk_options;
  disk_options.directory = "sim";
  disk_options.own_thread = false;
  std::unique_ptr<DiskRows> cold;
  std::unique_ptr<TableBackend> table;
  EXPECT_TRUE(DiskRows::Create(disk_options, std::move(disk), options.key_type, &cold).ok());
  EXPECT_TRUE(TieredTable::Create(options, memory_bytes, std::move(cold), &table).ok());
  return table;
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_SIMULATED_DISK_H_
