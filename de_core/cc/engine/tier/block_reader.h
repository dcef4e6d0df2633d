// Reads many blocks of files at once.
#ifndef DE_CORE_ENGINE_BLOCK_READER_H_
#define DE_CORE_ENGINE_BLOCK_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/object_pool.h"

namespace de::engine {

/// Files opened with O_DIRECT are read and written in whole blocks, at multiples of this size.
inline constexpr size_t kBlockBytes = 4096;

struct BlockRead {
  int file = -1;
  uint64_t offset = 0;
  size_t bytes = 0;
  char* to = nullptr;
  int error = 0;  ///< receives 0, or the `errno` of the read; EIO if the file ends before
};

/// Memory that reads share. The reads themselves name none.
struct ReadSlots {
  char* memory = nullptr;
  size_t bytes = 0;  ///< at least the bytes of each read
  size_t count = 0;
};

/// Keeps up to `depth` reads of a batch in the disk's queue, by io_uring. Where the system has no
/// io_uring or forbids it, reads by `pread` on the threads of an executor. Thread-safe.
class BlockReader {
 public:
  /// With `use_ring` unset, always uses `pread`.
  explicit BlockReader(uint32_t depth, bool use_ring = true);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// Reads all blocks, in any order, into slots, and sets the error of each. Calls visit(i) on this
  /// thread when read i is done, while other reads go on. Then the next read takes its slot.
  /// `visit` must not throw.
  void ReadEach(BlockRead* reads, size_t count, const ReadSlots& slots, Executor* executor,
                const std::function<void(size_t)>& visit) noexcept;

  /// True if reads go through io_uring.
  bool has_ring() const noexcept { return has_ring_; }

 private:
  class Ring;
  using Visit = std::function<void(size_t)>;

  bool ReadByRing(BlockRead* reads, size_t count, const ReadSlots& slots,
                  const Visit& visit) noexcept;

  const uint32_t depth_;
  bool has_ring_ = false;
  ObjectPool<Ring> rings_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_BLOCK_READER_H_
