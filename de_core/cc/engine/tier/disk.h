// All calls of a tier to its disk. A test puts a simulated disk here.
#ifndef DE_CORE_ENGINE_DISK_H_
#define DE_CORE_ENGINE_DISK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/fork_mark.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/tier/block_reader.h"

namespace de::engine {

/// The names of files of rows begin with this.
inline constexpr char kRowFiles[] = "rows-";

/// Files of rows. A file has a number. Calls return 0 or the number of an error, as `errno`
/// does. Write and Remove of one file, and ReadEach, may run at the same time.
class Disk {
 public:
  virtual ~Disk() = default;

  /// Creates an empty file.
  virtual int Create(const std::string& path, int* file) noexcept = 0;
  /// Writes whole blocks.
  virtual int Write(int file, const char* from, size_t bytes, uint64_t offset) noexcept = 0;
  virtual void Remove(int file, const std::string& path) noexcept = 0;
  /// Reads blocks, as BlockReader::ReadEach does.
  virtual void ReadEach(BlockRead* reads, size_t count, const ReadSlots& slots, Executor* executor,
                        const std::function<void(size_t)>& visit) noexcept = 0;
};

/// A folder on a local disk, which one object at a time uses.
class FolderDisk final : public Disk {
 public:
  /// Creates the folder if it does not exist, and removes the files that a killed process left in
  /// it. FailedPrecondition if another object uses the folder. Throws std::bad_alloc.
  static Status Open(const std::string& folder, uint32_t depth, bool use_ring,
                     std::shared_ptr<Disk>* disk);
  ~FolderDisk() override;

  int Create(const std::string& path, int* file) noexcept override;
  int Write(int file, const char* from, size_t bytes, uint64_t offset) noexcept override;
  void Remove(int file, const std::string& path) noexcept override;
  void ReadEach(BlockRead* reads, size_t count, const ReadSlots& slots, Executor* executor,
                const std::function<void(size_t)>& visit) noexcept override {
    reader_.ReadEach(reads, count, slots, executor, visit);
  }

 private:
  FolderDisk(uint32_t depth, bool use_ring) : reader_(depth, use_ring) {}

  BlockReader reader_;
  int lock_file_ = -1;
  ForkMark fork_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_DISK_H_
