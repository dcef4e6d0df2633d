// An immutable file of rows and tombstones in the order of their hashes: a delta snapshot
// (snapshot_format.h) with blocks of about 4 KiB. Memory has the first hash of each block and a
// filter, so that a key costs one read if it is there, and mostly none if it is not.
#ifndef DE_CORE_ENGINE_RUN_FILE_H_
#define DE_CORE_ENGINE_RUN_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/rows/row_layout.h"
#include "de_core/cc/engine/runs/local_file.h"
#include "de_core/cc/engine/runs/run_block.h"
#include "de_core/cc/engine/runs/run_filter.h"

namespace de::engine {

/// The parts of a run that stay in memory.
struct RunIndex {
  std::vector<uint64_t> begins;   // (blocks): first hash of each block's range
  std::vector<uint32_t> offsets;  // (blocks + 1): offset of each block and of the end, in 64 bytes
  uint64_t hash_last = 0;         ///< last hash of the run's range
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  RunFilter filter;

  uint64_t bytes() const noexcept {
    return begins.capacity() * sizeof(uint64_t) + offsets.capacity() * sizeof(uint32_t) +
           filter.bytes();
  }
};

/// Thread-safe. Removes its file when the last reader is done, if the file is obsolete.
class RunFile {
 public:
  RunFile(std::unique_ptr<LocalFile> file, uint64_t number, RowLayout layout, RunIndex index)
      : file_(std::move(file)),
        number_(number),
        layout_(std::move(layout)),
        index_(std::move(index)) {}
  ~RunFile();
  RunFile(const RunFile&) = delete;
  RunFile& operator=(const RunFile&) = delete;

  /// Opens a file that an earlier process wrote. Reads and checks all of it.
  static Status Open(const std::string& path, uint64_t number, bool direct, uint32_t filter_bits,
                     std::shared_ptr<RunFile>* run);

  const LocalFile& file() const noexcept { return *file_; }
  const std::string& path() const noexcept { return file_->path(); }
  uint64_t number() const noexcept { return number_; }
  const RowLayout& layout() const noexcept { return layout_; }
  uint64_t rows() const noexcept { return index_.rows; }
  uint64_t tombstones() const noexcept { return index_.tombstones; }
  uint64_t entries() const noexcept { return index_.rows + index_.tombstones; }
  uint64_t file_bytes() const noexcept { return file_->size(); }
  uint64_t memory_bytes() const noexcept { return sizeof(*this) + index_.bytes(); }
  uint64_t hash_begin() const noexcept { return index_.begins.front(); }
  uint64_t hash_last() const noexcept { return index_.hash_last; }

  const RunFilter& filter() const noexcept { return index_.filter; }
  size_t blocks() const noexcept { return index_.begins.size(); }
  /// Returns the block whose range has the hash. The run's range must have it.
  size_t BlockOf(uint64_t hash) const noexcept;
  uint64_t block_begin(size_t block) const noexcept { return index_.begins[block]; }
  uint64_t block_offset(size_t block) const noexcept {
    return uint64_t{index_.offsets[block]} * 64;
  }
  uint64_t block_bytes(size_t block) const noexcept {
    return uint64_t{index_.offsets[block + 1] - index_.offsets[block]} * 64;
  }

  /// Checks the bytes of a block. The error names the file.
  Status View(size_t block, const char* bytes, BlockView* view) const;
  /// Returns an error that names the file.
  Status Corrupt(const std::string& why) const {
    return Status::DataLoss("the file " + path() + " is corrupt: " + why);
  }

  /// Removes the file when this object is destroyed.
  void MakeObsolete() noexcept { obsolete_.store(true, std::memory_order_relaxed); }

 private:
  const std::unique_ptr<LocalFile> file_;
  const uint64_t number_;
  const RowLayout layout_;
  const RunIndex index_;
  std::atomic<bool> obsolete_{false};
};

/// Reads the blocks of a run one after another, many in one read.
class BlockStream {
 public:
  /// Starts at `block`. Reads `window` bytes at once.
  BlockStream(const RunFile* run, size_t block, size_t window)
      : run_(run), next_(block), window_(window) {}

  /// Reads the next block. The view is valid until the next call. Sets *done behind the last block.
  Status Next(BlockView* view, bool* done);

 private:
  const RunFile* run_;
  size_t next_;
  size_t window_;
  DirectBuffer buffer_;
  uint64_t begin_ = 0;  ///< offset in the file of the buffer's first byte
  uint64_t end_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_FILE_H_
