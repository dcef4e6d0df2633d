// Reads many blocks at once: by io_uring, or by threads with pread where the kernel or a sandbox
// forbids io_uring.
#ifndef DE_CORE_ENGINE_RUN_READER_H_
#define DE_CORE_ENGINE_RUN_READER_H_

#include <cstdint>
#include <memory>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/runs/run_file.h"

namespace de::engine {

/// A block to read. `tag` is the caller's.
struct RunRead {
  const RunFile* run = nullptr;
  size_t block = 0;
  uint32_t tag = 0;
};

/// The blocks that a reader reads. The reader calls the methods one at a time.
class RunReads {
 public:
  virtual ~RunReads() = default;
  /// Returns false if there is nothing to read now. Done may add more.
  virtual bool Next(RunRead* read) = 0;
  /// Receives the bytes of a block, which are valid during the call.
  virtual Status Done(const RunRead& read, const char* bytes) = 0;
};

/// Used by one thread at a time.
class RunReader {
 public:
  virtual ~RunReader() = default;
  /// Reads until there is nothing to read. After the first error it starts no read, waits for those
  /// that run, and returns the error. Usable again after an error.
  virtual Status Run(RunReads* reads) = 0;
  /// Returns "io_uring" or "threads".
  virtual const char* name() const noexcept = 0;
};

/// Creates a reader with up to `depth` reads at once. Prefers io_uring if `io_uring` is set.
std::unique_ptr<RunReader> NewRunReader(uint32_t depth, bool io_uring);

/// Returns nullptr if this machine has no io_uring or forbids it.
std::unique_ptr<RunReader> NewUringReader(uint32_t depth);

/// The bytes of a file that contain a block, in the units that the file can read.
struct ReadRange {
  explicit ReadRange(const RunRead& read) noexcept {
    const uint64_t align = read.run->file().align();
    const uint64_t from = read.run->block_offset(read.block);
    const uint64_t to = from + read.run->block_bytes(read.block);
    // Blocks are aligned to 64 bytes, so the block is aligned in memory too.
    const uint64_t unit = align < 64 ? 64 : align;
    begin = from / unit * unit;
    size = static_cast<uint32_t>((to - begin + unit - 1) / unit * unit);
    skip = static_cast<uint32_t>(from - begin);
    needed = static_cast<uint32_t>(to - begin);
  }
  uint64_t begin;   ///< offset in the file
  uint32_t size;    ///< bytes to read; the file may end before
  uint32_t skip;    ///< bytes before the block
  uint32_t needed;  ///< bytes to the block's end
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_RUN_READER_H_
