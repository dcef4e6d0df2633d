// Checks served files, so that damage is found before a lookup reads it.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/kernels/background/background_threads.h"
#include "de_core/cc/kernels/files/env_stream.h"
#include "de_core/cc/kernels/files/frozen_file.h"

namespace de::kernels {
namespace {

using Clock = std::chrono::steady_clock;

/// Upper limit of bytes checked per second, so that lookups keep most of the disk's and the
/// memory's bandwidth.
constexpr uint64_t kBytesASecond = uint64_t{256} << 20;
constexpr std::chrono::seconds kUntilThereIsMemory{1};

/// Reads the sections of a base or a delta. Thread-safe if each thread uses its own buffer.
class Sections {
 public:
  Sections(const FrozenFile& served, size_t number)
      : served_(served), number_(number), mapped_(served.reader(number)) {
    // Read the file instead of the mapping. If the disk cannot deliver a page, reading the file
    // returns an error that says so. A file that was deleted or replaced is read from the mapping,
    // because only the mapping still has its bytes.
    std::unique_ptr<FileSource> source;
    if (!FileSource::Open(tensorflow::Env::Default(), served.path(number), &source).ok()) return;
    if (!engine::SnapshotReader::Open(std::move(source), &reader_).ok()) return;
    if (reader_->header().id != mapped_.header().id) reader_.reset();
  }

  size_t count() const noexcept { return mapped_.sections().size(); }

  /// Reads the pages of a section and returns its size.
  uint64_t ReadAhead(size_t section) const {
    const auto& sections = mapped_.sections();
    const uint64_t begin = sections[section].offset;
    const bool last = section + 1 == sections.size();
    const uint64_t end = last ? mapped_.file_bytes() : sections[section + 1].offset;
    served_.ReadAhead(number_, begin, end);
    return end - begin;
  }

  const engine::SnapshotReader& reader() const noexcept {
    return reader_ == nullptr ? mapped_ : *reader_;
  }

 private:
  const FrozenFile& served_;
  const size_t number_;
  const engine::SnapshotReader& mapped_;
  std::unique_ptr<engine::SnapshotReader> reader_;
};

/// Checks all files of a served table. Stops early if the table is no longer used.
void Check(const std::weak_ptr<FrozenFile>& held) {
  std::optional<Sections> sections;
  engine::SectionBuffer buffer;
  size_t section = 0;
  for (size_t number = 0;;) {
    Clock::time_point rested = Clock::now();
    {
      const std::shared_ptr<FrozenFile> served = held.lock();
      if (served == nullptr) return;
      if (sections.has_value() && section == sections->count()) {
        sections.reset();
        section = 0;
        if (++number > served->deltas()) return served->FoundIntact();
      }
      uint64_t bytes = 0;
      const engine::Status status = engine::Guarded([&] {
        if (!sections.has_value()) sections.emplace(*served, number);
        if (section == sections->count()) return engine::Status::Ok();
        const uint64_t size = sections->ReadAhead(section);
        engine::Status read = sections->reader().ReadSection(section, &buffer);
        if (read.code == engine::Code::kResourceExhausted) return read;  // try again later
        ++section;
        bytes = size;
        return read;
      });
      if (status.code == engine::Code::kResourceExhausted) {
        rested += kUntilThereIsMemory;  // out of memory: the file may be intact
      } else if (!status.ok()) {
        return served->FoundDamaged(served->path(number), status);
      }
      served->Checked(bytes);
      rested += std::chrono::microseconds(bytes * 1000000 / kBytesASecond);
    }
    std::this_thread::sleep_until(rested);
  }
}

/// The files to check. Never destroyed, because its thread may outlive static objects.
struct Queue {
  std::mutex mutex;
  std::deque<std::weak_ptr<FrozenFile>> files;
  bool working = false;  ///< whether a thread is processing the files
};

Queue& TheQueue() {
  static Queue* const queue = new Queue;
  return *queue;
}

void Work() {
  YieldToOthers();
#if defined(__linux__)
  (void)::pthread_setname_np(::pthread_self(), "de_file_check");
#endif
  Queue& queue = TheQueue();
  while (true) {
    std::weak_ptr<FrozenFile> next;
    {
      const std::lock_guard<std::mutex> guard(queue.mutex);
      queue.working = !queue.files.empty();
      if (!queue.working) return;
      next = std::move(queue.files.front());
      queue.files.pop_front();
    }
    Check(next);
  }
}

}  // namespace

engine::Status FrozenFile::CheckNow(size_t number, engine::Executor* executor) const {
  const Sections sections(*this, number);
  std::atomic<size_t> next{0};
  const size_t threads = executor == nullptr ? 1 : executor->threads();
  const size_t tasks = std::min(threads, sections.count());
  return engine::RunGuarded(engine::ThreadsFor(tasks > 1, executor), tasks, [&](size_t) {
    engine::SectionBuffer buffer;
    for (size_t at = next++; at < sections.count(); at = next++) {
      (void)sections.ReadAhead(at);
      const engine::Status status = sections.reader().CheckSection(at, &buffer);
      if (status.ok()) continue;
      next = sections.count();  // the other threads stop
      return status;
    }
    return engine::Status::Ok();
  });
}

void FrozenFile::CheckInBackground(std::weak_ptr<FrozenFile> file) {
  Queue& queue = TheQueue();
  const std::lock_guard<std::mutex> guard(queue.mutex);
  queue.files.push_back(std::move(file));
  if (queue.working) return;
  try {
    std::thread(Work).detach();
    queue.working = true;
  } catch (const std::exception&) {  // no thread could be started; the next call tries again
  }
}

}  // namespace de::kernels
