// Appends blocks to files on a thread of its own, so that the caller encodes further rows
// meanwhile.
#ifndef DE_CORE_ENGINE_SEGMENT_WRITER_H_
#define DE_CORE_ENGINE_SEGMENT_WRITER_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/tier/segment_file.h"

namespace de::engine {

/// One thread at a time may use it. Its own thread starts with the first append; if the system has
/// none, or without `own_thread`, the caller's thread writes.
class SegmentWriter {
 public:
  explicit SegmentWriter(bool own_thread = true) : own_thread_(own_thread) {}
  /// Finishes the appends.
  ~SegmentWriter();
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;

  /// Returns memory for the next blocks. Waits until a buffer is free.
  BlockBuffer* Next() noexcept;
  /// Appends the first `bytes` of Next() to a file, after the earlier appends. If one fails, those
  /// after it are left out.
  void Append(std::shared_ptr<SegmentFile> file, size_t bytes) noexcept;
  /// Waits for all appends, and returns the first error since the last call.
  Status Wait() noexcept;

 private:
  struct Job {
    std::shared_ptr<SegmentFile> file;
    BlockBuffer blocks;
    size_t bytes = 0;
  };
  Job& JobOf(uint64_t number) noexcept { return jobs_[number % jobs_.size()]; }
  void WriteNext(std::unique_lock<std::mutex>* hold) noexcept;
  void Work() noexcept;

  const bool own_thread_;
  std::array<Job, 3> jobs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t begun_ = 0;  ///< number of appends; guarded by mutex_, like all below
  uint64_t done_ = 0;
  Status status_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SEGMENT_WRITER_H_
