// Compaction of a store of runs. The policy is in run_store.h.
#include <algorithm>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/runs/run_merge.h"
#include "de_core/cc/engine/runs/run_store.h"

namespace de::engine {
namespace {

constexpr size_t kMergeWindow = size_t{256} << 10;       // bytes read at once of each run
constexpr uint64_t kLeastSweep = uint64_t{1} << 20;      // fewer bytes are not worth a merge
constexpr uint64_t kMostRunBytes = uint64_t{200} << 30;  // a run must be below 256 GiB
constexpr uint64_t kMostParts = 64;                      // files of the last level, about
constexpr double kHashes = 18446744073709551616.0;       // 2^64

/// Returns the layout of the merged rows: the newest one, without dropped slots.
RowLayout MergedLayout(const RunRef& newest) {
  RowLayout layout = newest.layout;
  layout.Remove("");
  return layout;
}

uint64_t BytesOf(const std::vector<RunRef>& runs) noexcept {
  uint64_t bytes = 0;
  for (const RunRef& run : runs) bytes += run.file->file_bytes();
  return bytes;
}

/// New files, which are removed unless they are kept.
class NewParts {
 public:
  ~NewParts() {
    for (const std::shared_ptr<RunFile>& part : parts) part->MakeObsolete();
  }
  void Keep() noexcept { parts.clear(); }
  std::vector<std::shared_ptr<RunFile>> parts;
};

}  // namespace

void RunStore::CompactInBackground() noexcept {
  std::unique_lock<std::mutex> hold(wake_lock_);
  for (;;) {
    wake_.wait(hold, [&] { return stop_ || (work_ && paused_ == 0); });
    if (stop_) return;
    work_ = false;
    hold.unlock();
    bool worked = false;
    Status status = Guarded([&] {
      const std::lock_guard<std::mutex> compact(compact_lock_);
      return CompactStep(/*all=*/false, &worked);
    });
    hold.lock();
    error_ = std::move(status.message);
    // After an error, the next append tries again.
    work_ = work_ || worked;
  }
}

Status RunStore::Compact(bool all) noexcept {
  for (bool worked = true; worked; all = false) {
    DE_RETURN_IF_ERROR(Guarded([&] {
      const std::lock_guard<std::mutex> hold(compact_lock_);
      return CompactStep(all, &worked);
    }));
  }
  return Status::Ok();
}

void RunStore::PauseCompaction() noexcept {
  {
    const std::lock_guard<std::mutex> hold(wake_lock_);
    ++paused_;
  }
  const std::lock_guard<std::mutex> wait(compact_lock_);
}

void RunStore::ResumeCompaction() noexcept {
  {
    const std::lock_guard<std::mutex> hold(wake_lock_);
    --paused_;
    work_ = true;
  }
  wake_.notify_all();
}

bool RunStore::SweepIsDue(const RunVersion& version) noexcept {
  const uint64_t bytes = version.upper_bytes();
  if (bytes < kLeastSweep && version.upper.size() < kFanout) return false;
  uint64_t replaced = 0, rows = 0;
  for (const RunRef& run : version.upper) replaced += run.replaced;
  for (const RunRef& run : version.last) rows += run.file->rows();
  return static_cast<double>(replaced) > kReplacedShare * static_cast<double>(rows) ||
         static_cast<double>(bytes) > kUpperShare * static_cast<double>(version.last_bytes());
}

Status RunStore::CompactStep(bool all, bool* worked) {
  *worked = false;
  Version version;
  {
    const std::lock_guard<std::mutex> hold(write_lock_);
    version = State();
    if (seen_clears_ != clears_) sweep_.reset();
    seen_clears_ = clears_;
  }
  const std::vector<RunRef>& upper = version->upper;
  if (sweep_ == nullptr && !upper.empty() && (all || SweepIsDue(*version))) {
    sweep_ = std::make_unique<Sweep>();
    sweep_->upper = upper;
  }
  // The runs of the sweep are the oldest ones.
  const size_t free = upper.size() - (sweep_ == nullptr ? 0 : sweep_->upper.size());
  for (size_t begin = 0; begin < free;) {
    size_t end = begin;
    uint64_t bytes = 0;
    while (end < free && upper[end].level == upper[begin].level) {
      bytes += upper[end++].file->file_bytes();
    }
    if (end - begin >= kFanout && bytes < kMostRunBytes) {
      *worked = true;
      return MergeLevel(version, begin, end);
    }
    begin = end;
  }
  *worked = sweep_ != nullptr;
  return *worked ? SweepRange(version) : Status::Ok();
}

/// Merges upper runs [begin, end) of a level into one of the next level.
Status RunStore::MergeLevel(const Version& version, size_t begin, size_t end) {
  const auto at = [](auto& runs, size_t i) {
    return runs.begin() + static_cast<std::ptrdiff_t>(i);
  };
  const std::vector<RunRef> runs(at(version->upper, begin), at(version->upper, end));
  const bool oldest = end == version->upper.size() && version->last.empty();
  NewParts made;
  DE_RETURN_IF_ERROR(MergeInto(runs, MergedLayout(runs.front()), 0, ~uint64_t{0},
                               /*tombstones=*/!oldest, ~uint64_t{0}, &made.parts));
  const std::lock_guard<std::mutex> hold(write_lock_);
  if (clears_ != seen_clears_) return Status::Ok();
  RunVersion next = *State();
  const size_t newer = next.upper.size() - version->upper.size();  // appended meanwhile
  const uint32_t level = runs.front().level + 1;
  uint64_t replaced = 0;
  for (const RunRef& run : runs) replaced += run.replaced;
  next.upper.erase(at(next.upper, newer + begin), at(next.upper, newer + end));
  for (const std::shared_ptr<RunFile>& part : made.parts) {
    next.upper.insert(at(next.upper, newer + begin), next.Ref(part, level, next.drops.size(),
                                                              std::min(replaced, part->entries())));
  }
  DE_RETURN_IF_ERROR(Install(std::move(next)));
  made.Keep();
  for (const RunRef& run : runs) run.file->MakeObsolete();
  return Status::Ok();
}

/// Merges the next range of the sweep into the last level.
Status RunStore::SweepRange(const Version& version) {
  const uint64_t begin = sweep_->next_hash;
  const uint64_t upper_bytes = BytesOf(sweep_->upper);
  const uint64_t target =
      std::max(options_.part_bytes, (version->last_bytes() + upper_bytes) / kMostParts);
  // The files of the last level that the range has, and the first one behind it.
  const std::vector<RunRef>& last = version->last;
  const auto from = std::find_if(last.begin(), last.end(),
                                 [&](const RunRef& run) { return run.file->hash_last() >= begin; });
  auto to = from;
  for (uint64_t bytes = 0; to != last.end() && bytes < target; ++to) {
    bytes += to->file->file_bytes();
  }
  uint64_t end = to == last.end() ? ~uint64_t{0} : to->file->hash_begin() - 1;
  if (from == last.end()) {
    const double width = static_cast<double>(target) / static_cast<double>(upper_bytes) * kHashes;
    if (width < static_cast<double>(~begin)) end = begin + static_cast<uint64_t>(width);
  }
  std::vector<RunRef> runs = sweep_->upper;
  runs.insert(runs.end(), from, to);
  NewParts made;
  DE_RETURN_IF_ERROR(MergeInto(runs, MergedLayout(runs.front()), begin, end, /*tombstones=*/false,
                               target, &made.parts));

  const std::lock_guard<std::mutex> hold(write_lock_);
  if (clears_ != seen_clears_) return Status::Ok();
  RunVersion next = *State();
  const auto place = next.last.erase(next.last.begin() + (from - last.begin()),
                                     next.last.begin() + (to - last.begin()));
  std::vector<RunRef> added;
  for (const std::shared_ptr<RunFile>& part : made.parts) {
    added.push_back(next.Ref(part, 0, next.drops.size(), 0));
  }
  next.last.insert(place, added.begin(), added.end());
  const bool finished = end == ~uint64_t{0};
  if (finished) next.upper.resize(next.upper.size() - sweep_->upper.size());
  DE_RETURN_IF_ERROR(Install(std::move(next)));
  made.Keep();
  for (auto run = from; run != to; ++run) run->file->MakeObsolete();
  sweep_->next_hash = end + 1;
  if (!finished) return Status::Ok();
  for (const RunRef& run : sweep_->upper) run.file->MakeObsolete();
  sweep_.reset();
  return Status::Ok();
}

/// Merges the rows of `runs`, newest first, with hashes from `begin` to `last` into new files of
/// about `part_bytes`.
Status RunStore::MergeInto(const std::vector<RunRef>& runs, const RowLayout& layout, uint64_t begin,
                           uint64_t last, bool tombstones, uint64_t part_bytes,
                           std::vector<std::shared_ptr<RunFile>>* parts) {
  RunMerge merge(layout, kMergeWindow);
  for (const RunRef& run : runs) DE_RETURN_IF_ERROR(merge.Add(run, begin));
  std::unique_ptr<RunWriter> writer;
  std::vector<char> row(layout.stride());
  const auto finish = [&](uint64_t hash_last) -> Status {
    std::shared_ptr<RunFile> part;
    DE_RETURN_IF_ERROR(writer->Finish(hash_last, &part));
    compacted_bytes_ += part->file_bytes();
    parts->push_back(std::move(part));
    writer.reset();
    return Status::Ok();
  };
  for (;;) {
    MergedKey key;
    bool done = false;
    DE_RETURN_IF_ERROR(merge.Next(last, &key, &done));
    if (done) break;
    if (key.row == nullptr && !tombstones) continue;
    if (writer != nullptr && writer->bytes() >= part_bytes && key.hash != writer->last_hash()) {
      begin = writer->last_hash() + 1;
      DE_RETURN_IF_ERROR(finish(begin - 1));
    }
    if (writer == nullptr) {
      uint64_t number = 0;
      {
        const std::lock_guard<std::mutex> hold(write_lock_);
        number = next_number_++;
      }
      DE_RETURN_IF_ERROR(RunWriter::Create(PathOf(RunFileName(number)), number, layout, begin,
                                           WriterOptions(), &writer));
    }
    const char* bytes = key.row;
    if (bytes != nullptr && !key.converter->identity()) {
      key.converter->Convert(bytes, row.data());
      bytes = row.data();
    }
    DE_RETURN_IF_ERROR(writer->Add(key.word, bytes, key.text));
  }
  if (writer != nullptr) DE_RETURN_IF_ERROR(finish(last));
  ++compactions_;
  return Status::Ok();
}

}  // namespace de::engine
