// Lookups and scans of a store of runs.
#include <algorithm>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/runs/run_lookup.h"
#include "de_core/cc/engine/runs/run_merge.h"
#include "de_core/cc/engine/runs/run_store.h"

namespace de::engine {
namespace {

constexpr size_t kKeysPerTask = 256;               // least keys that are worth a thread
constexpr size_t kScanWindow = size_t{128} << 10;  // bytes that a scan reads at once of each run

}  // namespace

Status RunStore::Find(const Keys& keys, const RowLayout& layout, char* rows, bool* found,
                      Executor* executor) const noexcept {
  return Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    DE_RETURN_IF_ERROR(CheckLayout(layout));
    const Version version = State();
    if (version->runs() == 0) {
      std::fill(found, found + keys.size, false);
      return Status::Ok();
    }
    Executor* const threads = ThreadsFor(keys.size >= 2 * kKeysPerTask, executor);
    const size_t tasks =
        threads == nullptr ? 1 : std::min(threads->threads(), keys.size / kKeysPerTask);
    return RunGuarded(threads, tasks, [&](size_t task) {
      const size_t begin = keys.size * task / tasks;
      const size_t end = keys.size * (task + 1) / tasks;
      return FindPart(*version, keys, begin, end - begin, layout, rows, found);
    });
  });
}

/// Finds some keys of a batch on this thread.
Status RunStore::FindPart(const RunVersion& version, const Keys& keys, size_t begin, size_t count,
                          const RowLayout& layout, char* rows, bool* found) const {
  RunLookup lookup(version, keys, begin, count, layout, rows, found);
  DE_RETURN_IF_ERROR(lookup.Start());
  std::unique_ptr<RunReader> reader = TakeReader();
  used_io_uring_.store(reader->name()[0] == 'i', std::memory_order_relaxed);
  const Status status = reader->Run(&lookup);
  if (status.ok()) GiveReader(std::move(reader));
  reads_ += lookup.reads();
  read_bytes_ += lookup.read_bytes();
  false_positives_ += lookup.false_positives();
  return status;
}

std::unique_ptr<RunReader> RunStore::TakeReader() const {
  {
    const std::lock_guard<std::mutex> hold(readers_lock_);
    if (!readers_.empty()) {
      std::unique_ptr<RunReader> reader = std::move(readers_.back());
      readers_.pop_back();
      return reader;
    }
  }
  return NewRunReader(options_.queue_depth, options_.io_uring);
}

void RunStore::GiveReader(std::unique_ptr<RunReader> reader) const noexcept {
  (void)Guarded([&] {
    const std::lock_guard<std::mutex> hold(readers_lock_);
    readers_.push_back(std::move(reader));
    return Status::Ok();
  });
}

Status RunStore::Scan(uint64_t begin, uint64_t last, size_t most, const RowLayout& layout,
                      RowBatch* batch) const noexcept {
  return Guarded([&]() -> Status {
    *batch = RowBatch{};
    batch->layout = layout;
    batch->hash_begin = begin;
    batch->hash_last = last;
    const Version version = State();
    RunMerge merge(layout, kScanWindow);
    for (const std::vector<RunRef>* runs : {&version->upper, &version->last}) {
      for (const RunRef& run : *runs) {
        if (run.file->hash_begin() <= last) DE_RETURN_IF_ERROR(merge.Add(run, begin));
      }
    }
    std::vector<size_t> ends;  // of the string keys in batch->bytes
    for (uint64_t before = begin;;) {
      MergedKey key;
      bool done = false;
      DE_RETURN_IF_ERROR(merge.Next(last, &key, &done));
      if (done) break;
      if (batch->size() >= most && key.hash != before) {
        batch->hash_last = key.hash - 1;
        break;
      }
      before = key.hash;
      if (key.row == nullptr) continue;
      batch->words.push_back(key.word);
      batch->rows.resize(batch->size() * layout.stride());
      key.converter->Convert(key.row, batch->rows.data() + batch->rows.size() - layout.stride());
      if (key.text == nullptr) continue;
      batch->bytes.append(*key.text);
      ends.push_back(batch->bytes.size());
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      const size_t from = i == 0 ? 0 : ends[i - 1];
      batch->keys.emplace_back(batch->bytes.data() + from, ends[i] - from);
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
