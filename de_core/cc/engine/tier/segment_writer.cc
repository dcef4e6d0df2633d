#include "de_core/cc/engine/tier/segment_writer.h"

#include <exception>
#include <utility>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {

SegmentWriter::~SegmentWriter() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

BlockBuffer* SegmentWriter::Next() noexcept {
  std::unique_lock<std::mutex> hold(mutex_);
  changed_.wait(hold, [this] { return begun_ - done_ < jobs_.size(); });
  return &JobOf(begun_).blocks;
}

void SegmentWriter::Append(std::shared_ptr<SegmentFile> file, size_t bytes) noexcept {
  std::unique_lock<std::mutex> hold(mutex_);
  Job& job = JobOf(begun_++);
  job.file = std::move(file);
  job.bytes = bytes;
  if (!own_thread_) return WriteNext(&hold);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { Work(); });
    } catch (const std::exception&) {
      return WriteNext(&hold);
    }
  }
  changed_.notify_all();
}

Status SegmentWriter::Wait() noexcept {
  std::unique_lock<std::mutex> hold(mutex_);
  changed_.wait(hold, [this] { return done_ == begun_; });
  return std::exchange(status_, Status::Ok());
}

/// Writes the oldest append. Requires mutex_, which it releases meanwhile.
void SegmentWriter::WriteNext(std::unique_lock<std::mutex>* hold) noexcept {
  Job& job = JobOf(done_);
  if (status_.ok()) {
    hold->unlock();
    Status status = Guarded([&] { return job.file->Append(job.blocks, job.bytes); });
    hold->lock();
    status_ = std::move(status);
  }
  job.file.reset();
  ++done_;
  changed_.notify_all();
}

void SegmentWriter::Work() noexcept {
  std::unique_lock<std::mutex> hold(mutex_);
  while (true) {
    changed_.wait(hold, [this] { return stop_ || done_ < begun_; });
    if (done_ == begun_) return;
    WriteNext(&hold);
  }
}

}  // namespace de::engine
