#include "de_core/cc/kernels/background/background_threads.h"

#include <system_error>

#include "de_core/cc/kernels/background/work_clock.h"

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace de::kernels {
namespace {

/// On a core that other threads keep busy, a thread of this nice value runs about 3 % of the time.
constexpr int kNice = 15;

}  // namespace

void YieldToOthers() {
#if defined(__linux__)
  // Despite the name PRIO_PROCESS, this affects only the calling thread. A failure does no harm.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
#endif
}

BackgroundThreads::~BackgroundThreads() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : started_) thread.join();
}

void BackgroundThreads::Run(size_t count, const std::function<void(size_t)>& task) {
  try {
    while (started_.size() < threads_ && started_.size() + 1 < count) {
      started_.emplace_back([this] { Work(); });
    }
  } catch (const std::system_error&) {  // the system cannot start another thread
  }
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = &task;
  next_ = 1;
  count_ = left_ = count;
  changed_.notify_all();
  lock.unlock();
  task(0);
  lock.lock();
  --left_;
  while (started_.empty() && next_ < count_) RunNext(&lock);
  changed_.wait(lock, [this] { return left_ == 0; });
}

void BackgroundThreads::Work() {
  YieldToOthers();
  const WorkClock clock;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || next_ < count_; });
    if (stop_) return;
    RunNext(&lock);
  }
}

void BackgroundThreads::RunNext(std::unique_lock<std::mutex>* lock) {
  const size_t at = next_++;
  const auto& task = *task_;
  lock->unlock();
  task(at);
  lock->lock();
  if (--left_ == 0) changed_.notify_all();
}

}  // namespace de::kernels
