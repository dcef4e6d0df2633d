#include "de_core/cc/engine/save/save_pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;  // bytes of rows in a full batch
constexpr std::chrono::milliseconds kPatience(20);

/// Returns the number of batches that may be between copying and the disk. Few if they are large.
/// Batches of listed rows are small; then there are more, so that copying goes on while a block of
/// the file is written.
size_t BatchesFor(const RowSource& source, size_t helpers) {
  const RowLayout& layout = source.layout();
  const bool strings =
      layout.key_type() == KeyType::kString || layout.value_dtype() == DType::kString;
  size_t largest = 1;  // in bytes
  for (const RowSource::Range& range : source.ranges()) {
    const size_t rows = range.end - range.first;
    largest = std::max(largest, range.listed && !strings ? rows * layout.stride() : kMostBytes);
  }
  const size_t few = std::clamp<size_t>(3 * helpers, 2, 16);
  return std::clamp(few * kMostBytes / largest, few, 4 * few);
}

}  // namespace

SavePipeline::SavePipeline(RowSource* source, SnapshotWriter* writer,
                           const std::function<bool()>& rest, size_t helpers)
    : source_(source), writer_(writer), rest_(rest), helpers_(helpers) {
  batches_.resize(BatchesFor(*source, helpers));
}

Status SavePipeline::Run(Executor* executor) {
  const auto task = [this](size_t number) {
    Status status = Guarded([&] {
      if (number == 0) {
        Copy();
      } else {
        Help();
      }
      return Status::Ok();
    });
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!status.ok()) Fail(std::move(status));
  };
  if (executor == nullptr) {
    task(0);
  } else {
    executor->Run(helpers_ + 1, task);
  }
  return status_;
}

void SavePipeline::Copy() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (const RowSource::Range& range : source_->ranges()) {
    Status status = CopyRange(range, &lock);
    if (!lock.owns_lock()) lock.lock();
    if (!status.ok()) Fail(std::move(status));
    if (!status_.ok()) break;
  }
  copying_ = false;
  changed_.notify_all();
  while (status_.ok() && written_ < copied_) Wait(&lock);
}

/// Copies the rows of a range into batches. Call it with the lock. Returns with the lock, unless it
/// fails.
Status SavePipeline::CopyRange(RowSource::Range range, std::unique_lock<std::mutex>* lock) {
  for (bool done = false; !done;) {
    while (status_.ok() && copied_ - written_ == batches_.size()) Wait(lock);
    if (!status_.ok()) return Status::Ok();
    Batch* const batch = At(copied_);
    batch->rows.Clear();
    batch->begin = range.begin;
    do {
      lock->unlock();
      DE_RETURN_IF_ERROR(source_->Collect(&range, &batch->rows, &batch->last, &done));
      lock->lock();
      Rest(lock);
    } while (!done && batch->rows.bytes() < kMostBytes);
    source_->FreeCollected();
    ++copied_;
    changed_.notify_all();
  }
  return Status::Ok();
}

void SavePipeline::Help() {
  std::unique_lock<std::mutex> lock(mutex_);
  ++helping_;
  while (status_.ok() && (copying_ || written_ < copied_)) {
    if ((alone_ && !source_->urgent()) || !Step(&lock)) changed_.wait(lock);
  }
}

void SavePipeline::Rest(std::unique_lock<std::mutex>* lock) {
  if (!rest_) return;
  if (lock->owns_lock()) lock->unlock();
  const bool alone = !source_->urgent() && rest_();
  lock->lock();
  if (alone_ != alone) changed_.notify_all();
  alone_ = alone;
}

/// Waits until another thread changes the state, for at most kPatience. Encodes or writes a batch
/// itself if there are no helpers, or if the helpers are slow because they hardly get a core.
void SavePipeline::Wait(std::unique_lock<std::mutex>* lock) {
  const bool patient = helping_ > 0 && !alone_ && !source_->urgent();
  if (patient && changed_.wait_for(*lock, kPatience) == std::cv_status::no_timeout) return;
  if (Step(lock)) {
    Rest(lock);
  } else if (!patient && helping_ > 0) {  // another thread is at work and will notify
    changed_.wait(*lock);
  }
}

bool SavePipeline::Step(std::unique_lock<std::mutex>* lock) {
  if (!writing_ && written_ < claimed_ && At(written_)->encoded) {
    writing_ = true;
    Batch* const batch = At(written_);
    lock->unlock();
    Status status = writer_->Append(&batch->section);
    lock->lock();
    writing_ = false;
    batch->encoded = false;
    ++written_;
    if (!status.ok()) Fail(std::move(status));
  } else if (claimed_ < copied_) {
    Batch* const batch = At(claimed_++);
    lock->unlock();
    Status status = Guarded([&] {
      return writer_->Encode(batch->rows.section(source_->layout(), batch->begin, batch->last),
                             &batch->section);
    });
    lock->lock();
    batch->encoded = true;
    if (!status.ok()) Fail(std::move(status));
  } else {
    return false;
  }
  changed_.notify_all();
  return true;
}

void SavePipeline::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
  changed_.notify_all();
}

}  // namespace de::engine
