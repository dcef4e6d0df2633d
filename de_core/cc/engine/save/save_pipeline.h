// Writes the rows of a table into the sections of a file: one thread copies rows out of
// the table, other threads encode and write them.
#ifndef DE_CORE_ENGINE_SAVE_PIPELINE_H_
#define DE_CORE_ENGINE_SAVE_PIPELINE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "de_core/cc/engine/backend/row_source.h"
#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

namespace de::engine {

/// Only the copying thread locks the table's shards, each time for microseconds. So the other
/// threads may have the lowest scheduling priority: training never waits for them.
class SavePipeline {
 public:
  /// `rest`, if set, is called by the copying thread after each piece of rows; it may sleep. It
  /// returns true if the copying thread must do all work alone for now. `helpers` is the number of
  /// other threads, which encode and write. All arguments must outlive the pipeline.
  SavePipeline(RowSource* source, SnapshotWriter* writer, const std::function<bool()>& rest,
               size_t helpers);

  /// Copies on task 0 of the executor, and encodes and writes on its other tasks. If the executor
  /// is nullptr, or runs one task after another, task 0 does all work: it must run first then.
  Status Run(Executor* executor);

 private:
  /// The rows of one section. A batch is in turn copied, claimed by a thread, encoded, written.
  struct Batch {
    SavedRows rows;
    uint64_t begin = 0;
    uint64_t last = 0;
    EncodedSection section;
    bool encoded = false;
  };

  void Copy();
  Status CopyRange(RowSource::Range range, std::unique_lock<std::mutex>* lock);
  /// Calls rest_ without the lock. Returns with the lock.
  void Rest(std::unique_lock<std::mutex>* lock);
  void Help();
  /// Encodes or writes one batch. Returns false if no batch is ready.
  bool Step(std::unique_lock<std::mutex>* lock);
  void Wait(std::unique_lock<std::mutex>* lock);
  Batch* At(uint64_t number) { return &batches_[number % batches_.size()]; }
  void Fail(Status status);

  RowSource* source_;
  SnapshotWriter* writer_;
  const std::function<bool()>& rest_;
  const size_t helpers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch> batches_;  ///< a ring buffer: batch i of the file is at i modulo the size
  uint64_t copied_ = 0;         ///< number of batches copied so far
  uint64_t claimed_ = 0;        ///< number of batches that are encoded or being encoded
  uint64_t written_ = 0;
  bool writing_ = false;  ///< a thread is writing a batch
  bool copying_ = true;   ///< more batches will come
  size_t helping_ = 0;    ///< number of threads that have started to help
  bool alone_ = false;    ///< the helpers must pause, because `rest` said so
  Status status_;         ///< the first error
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_PIPELINE_H_
