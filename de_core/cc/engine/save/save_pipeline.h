// From a live table's rows to the sections of a file: one thread copies rows out of the table,
// others encode and write what it has copied.
#ifndef DE_CORE_ENGINE_SAVE_PIPELINE_H_
#define DE_CORE_ENGINE_SAVE_PIPELINE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

namespace de::engine {

/// Only the thread that copies holds the table's shards, a piece at a time. So the others may be
/// threads that the system prefers least: nobody who trains waits for one that lost its core.
class SavePipeline {
 public:
  /// `rest`, where set, is called by the thread that copies after every piece of work. It may sleep
  /// there, and returns whether that thread shall do all the work alone. Everything outlives the
  /// pipeline. `helpers` encode and write beside it.
  SavePipeline(SaveSource* source, SnapshotWriter* writer, const std::function<bool()>& rest,
               size_t helpers);

  /// Copies on task 0 of the executor, which may be nullptr, and encodes and writes on the others,
  /// if it runs them at once.
  Status Run(Executor* executor);

 private:
  /// Of one section, in the order copied, claimed by who encodes it, encoded, written.
  struct Batch {
    SavedRows rows;
    uint64_t begin = 0;
    uint64_t last = 0;
    EncodedSection section;
    bool encoded = false;
  };

  bool Claims(size_t number);
  void Copy();
  Status CopyRange(SaveSource::Range range, std::unique_lock<std::mutex>* lock);
  /// Left with the lock.
  void Rest(std::unique_lock<std::mutex>* lock);
  void Help();
  /// Encodes or writes one batch if there is one to; false without.
  bool Step(std::unique_lock<std::mutex>* lock);
  void Wait(std::unique_lock<std::mutex>* lock);
  Batch* At(uint64_t number) { return &batches_[number % batches_.size()]; }
  void Fail(Status status);

  SaveSource* source_;
  SnapshotWriter* writer_;
  const std::function<bool()>& rest_;
  const size_t helpers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch> batches_;  ///< batch i of the file at i modulo the size
  uint64_t copied_ = 0;         ///< batches of the file that were copied so far
  uint64_t claimed_ = 0;        ///< that somebody encodes or has encoded
  uint64_t written_ = 0;
  bool writing_ = false;  ///< somebody writes one
  bool copier_ = false;   ///< somebody copies, or has copied
  bool copying_ = true;   ///< more will come
  size_t helping_ = 0;    ///< threads that have begun to help
  bool alone_ = false;    ///< they shall not go on for now
  Status status_;         ///< the first error
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SAVE_PIPELINE_H_
