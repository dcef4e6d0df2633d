#include "de_core/cc/engine/runs/run_reader.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {
namespace {

/// Reads by pread on some threads, which live for one call.
class ThreadReader final : public RunReader {
 public:
  explicit ThreadReader(uint32_t depth) : buffers_(std::min<uint32_t>(depth, kMostThreads)) {}

  Status Run(RunReads* reads) override {
    reads_ = reads;
    status_ = Status::Ok();
    RunRead first;
    status_ = Guarded([&] {
      busy_ = reads->Next(&first) ? 1 : 0;
      return Status::Ok();
    });
    if (!status_.ok() || busy_ == 0) return std::move(status_);
    std::vector<std::thread> threads;
    // Without more threads this thread reads all.
    (void)Guarded([&] {
      threads.reserve(buffers_.size());
      for (size_t i = 1; i < buffers_.size(); ++i) {
        threads.emplace_back([this, i] { Work(&buffers_[i], nullptr); });
      }
      return Status::Ok();
    });
    Work(buffers_.data(), &first);
    for (std::thread& thread : threads) thread.join();
    return std::move(status_);
  }

  const char* name() const noexcept override { return "threads"; }

 private:
  static constexpr uint32_t kMostThreads = 16;

  /// Reads `*read` if it is set, then all others.
  void Work(DirectBuffer* buffer, const RunRead* read) {
    std::unique_lock<std::mutex> hold(mutex_);
    for (RunRead next = read == nullptr ? RunRead{} : *read;;) {
      if (next.run != nullptr) {
        hold.unlock();
        Status status = Guarded([&] {
          const ReadRange range(next);
          buffer->Reserve(range.size);
          return next.run->file().ReadAligned(range.begin, range.size, range.needed,
                                              buffer->data());
        });
        hold.lock();
        if (status.ok()) {
          status =
              Guarded([&] { return reads_->Done(next, buffer->data() + ReadRange(next).skip); });
        }
        if (status_.ok()) status_ = std::move(status);
        --busy_;
        changed_.notify_all();
      }
      next = {};
      if (!status_.ok()) return;
      Status status = Guarded([&] {
        busy_ += reads_->Next(&next) ? 1 : 0;
        return Status::Ok();
      });
      if (status_.ok()) status_ = std::move(status);
      if (next.run != nullptr) continue;
      if (busy_ == 0 || !status_.ok()) return;
      changed_.wait(hold);
    }
  }

  std::vector<DirectBuffer> buffers_;  // (threads)
  std::mutex mutex_;
  std::condition_variable changed_;
  RunReads* reads_ = nullptr;
  size_t busy_ = 0;  ///< reads that were begun and are not done
  Status status_;
};

}  // namespace

std::unique_ptr<RunReader> NewRunReader(uint32_t depth, bool io_uring) {
  if (io_uring) {
    std::unique_ptr<RunReader> reader = NewUringReader(depth);
    if (reader != nullptr) return reader;
  }
  return std::make_unique<ThreadReader>(depth);
}

}  // namespace de::engine
