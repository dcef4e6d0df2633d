#include "de_core/cc/engine/save/save_source.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {
namespace {

// Most changed rows of a shard that are listed. More changed rows are found by scanning their bits.
constexpr size_t kMostListed = size_t{1} << 20;
constexpr size_t kStringBytesPerHold = size_t{512} << 10;
constexpr size_t kAhead = 16;  // number of index lines or rows to prefetch ahead

}  // namespace

/// Locks a shard for reading. Remembers in `longest` the longest time that a lock was held, in
/// nanoseconds.
class SaveSource::Hold {
 public:
  Hold(const Shard& shard, std::atomic<uint64_t>* longest)
      : guard_(shard.lock), longest_(longest), begin_(std::chrono::steady_clock::now()) {}
  ~Hold() {
    guard_.unlock();
    const auto nanos = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                 std::chrono::steady_clock::now() - begin_)
                                                 .count());
    uint64_t seen = *longest_;
    while (seen < nanos && !longest_->compare_exchange_weak(seen, nanos)) {
    }
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::shared_lock<ShardLock> guard_;
  std::atomic<uint64_t>* longest_;
  std::chrono::steady_clock::time_point begin_;
};

std::unique_ptr<RowSource> Table::NewRowSource() { return std::make_unique<SaveSource>(this); }

void SaveSource::PlanChanges(uint32_t number) {
  const Shard& shard = *table_->shards_[number];
  DirtyKeys changed;
  {
    const Hold hold(shard, &hold_nanos_);
    if (shard.watch == nullptr || shard.watch->dirty == nullptr) {
      changed.everything = true;
    } else {
      changed = shard.watch->dirty->Since(selection_.since);
    }
  }
  everything_ = everything_ || changed.everything;
  if (everything_) return;
  // Lookups are not logged, so rows that were only looked up must be found by a scan.
  const bool by_bits =
      selection_.used_since > 0 || changed.by_bits || changed.words.size() > kMostListed;
  by_bits_[number] = by_bits;
  const size_t first = list_.size();
  std::vector<uint64_t> words;
  if (!by_bits) words = std::move(changed.words);
  words.insert(words.end(), changed.erased.begin(), changed.erased.end());
  for (const uint64_t word : words) list_.push_back({Mix64(word), word, nullptr});
  for (auto& [word, text] : changed.erased_texts) {
    list_.push_back({Mix64(word), word, &erased_texts_.emplace_back(std::move(text))});
  }
  std::sort(list_.begin() + static_cast<std::ptrdiff_t>(first), list_.end(),
            [](const Listed& a, const Listed& b) {
              if (a.hash != b.hash) return a.hash < b.hash;
              return a.erased_text == nullptr && b.erased_text != nullptr;
            });
  // Remove duplicates: a key may be listed several times, and as both changed and erased.
  list_.erase(std::unique(list_.begin() + static_cast<std::ptrdiff_t>(first), list_.end(),
                          [](const Listed& a, const Listed& b) {
                            return a.hash == b.hash && a.erased_text == nullptr &&
                                   b.erased_text == nullptr;
                          }),
              list_.end());
  if (by_bits) {
    PlanUniform(number);
  } else {
    PlanList(first);
  }
}

bool SaveSource::outdated() const noexcept {
  return relaid_ || (budget_ != nullptr && budget_->replaced);
}

Status SaveSource::Lost() const {
  if (outdated()) {
    return Status::FailedPrecondition(
        "the table must not be cleared or lose most of its rows, and no optimizer's slots may be "
        "added or dropped, during a save; save again");
  }
  return Status::ResourceExhausted(
      "the copies of rows that change during a consistent save must fit in memory; save while less "
      "is written, or without `consistent`. Received: copies of more than " +
      std::to_string(budget_->limit) + " bytes");
}

Status SaveSource::Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) {
  return Guarded([&] {
    rows->Reserve(2 * RowsAHold(), layout_.stride());
    const std::shared_lock<ShardLock> hold(table_->layout_lock_);
    if (table_->layout_.generation() != layout_.generation()) relaid_ = true;
    if (relaid_ || (budget_ != nullptr && budget_->lost())) return Lost();
    if (range->listed) {
      LookUp(range, rows, last, done);
    } else {
      Scan(range, rows, last, done);
    }
    if (relaid_) return Lost();
    if (budget_ == nullptr) return Status::Ok();
    // The rows just read are valid: the save was not lost when they were read. If it is lost from
    // here on, Collect of the next piece fails.
    if (budget_->lost()) return Lost();
    budget_->collected = *last == ~uint64_t{0} ? *last : *last + 1;
    budget_->memory.Prepare(most_held_);
    return Status::Ok();
  });
}

std::string_view SaveSource::KeyOf(const Entry& entry) const {
  if (entry.texts != nullptr) return entry.texts[0];
  return StringArena::Get(StringArena::LoadRef(entry.row + layout_.key_offset()));
}

bool SaveSource::IsSelected(const Entry& entry) const {
  if (selection_.keys == nullptr || layout_.key_type() != KeyType::kString) return true;
  return std::binary_search(selected_.begin(), selected_.end(), KeyOf(entry), std::less<>());
}

void SaveSource::TakeKept(const Entry& entry, SavedRows* rows) const {
  if (kept_.Keeps(entry.row)) {
    table_->CopyTo(entry.word, entry.row, entry.texts, &rows->batch_);
  } else if (selection_.changes_only && !everything_) {  // an earlier file may contain the key
    const bool string_keys = layout_.key_type() == KeyType::kString;
    TakeGone(entry.word, string_keys ? KeyOf(entry) : std::string_view(), rows);
  }
}

void SaveSource::TakeGone(uint64_t word, std::string_view text, SavedRows* rows) const {
  rows->AddGone(word, layout_.key_type() == KeyType::kString ? &text : nullptr);
}

uint64_t SaveSource::TakeAll(std::vector<Entry>* entries, uint64_t last, SavedRows* rows) const {
  // Strings may be long, so a few rows of strings can already have enough bytes. Sort the rows, to
  // stop between two hashes.
  const bool sorted =
      layout_.key_type() == KeyType::kString || layout_.value_dtype() == DType::kString;
  const size_t most = rows->bytes() + kStringBytesPerHold;
  if (sorted) {
    std::sort(entries->begin(), entries->end(),
              [](const Entry& a, const Entry& b) { return a.hash < b.hash; });
  }
  for (size_t i = 0; i < entries->size(); ++i) {
    const Entry& entry = (*entries)[i];
    if (i + kAhead < entries->size()) {
      PrefetchBytes((*entries)[i + kAhead].row, layout_.stride());
    }
    if (sorted && i > 0 && rows->bytes() >= most && entry.hash != (*entries)[i - 1].hash) {
      return (*entries)[i - 1].hash;
    }
    TakeKept(entry, rows);
  }
  return last;
}

/// Appends the rows of a word to `entries`: one row, or the rows of several string keys with this
/// word. Uses the copy of a row that changed since a consistent save began.
void SaveSource::Gather(const Shard& shard, uint64_t hash, uint64_t word,
                        std::vector<Entry>* entries) const {
  const BeforeImages* held =
      budget_ == nullptr || shard.watch == nullptr ? nullptr : shard.watch->held.get();
  shard.VisitWord(word, hash, [&](uint32_t row) {
    if (held != nullptr && held->IsTouched(row)) return;
    entries->push_back({hash, word, shard.Row(row), nullptr});
  });
  if (held == nullptr) return;
  held->ForEach(hash, hash, [&](uint64_t, const char* row, const std::string* texts) {
    entries->push_back({hash, word, row, texts});
  });
}

bool SaveSource::IsThere(const Shard& shard, const Listed& listed) const {
  std::vector<Entry> entries;
  Gather(shard, listed.hash, listed.word, &entries);
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
    return listed.erased_text == nullptr || KeyOf(entry) == *listed.erased_text;
  });
}

void SaveSource::TakeErased(const Shard& shard, uint64_t begin, uint64_t last,
                            std::vector<Listed> erased, SavedRows* rows) const {
  // A row may be erased, or move to a tier, after the plan was made and before its range is read.
  // Without its tombstone the delta would leave the row as an earlier file has it. A consistent
  // save has copies of such rows.
  const auto add = [&](uint64_t word, const std::string* text) {
    const uint64_t hash = Mix64(word);
    if (begin <= hash && hash <= last) erased.push_back({hash, word, text});
  };
  const DirtyRows* dirty = shard.watch == nullptr ? nullptr : shard.watch->dirty.get();
  if (budget_ == nullptr && dirty != nullptr && !dirty->VisitErased(selection_.current, add)) {
    relaid_ = true;
  }
  const auto text_of = [](const Listed& each) {
    return each.erased_text == nullptr ? std::string_view() : std::string_view(*each.erased_text);
  };
  std::sort(erased.begin(), erased.end(), [&](const Listed& a, const Listed& b) {
    return a.hash != b.hash ? a.hash < b.hash : text_of(a) < text_of(b);
  });
  for (size_t i = 0; i < erased.size(); ++i) {
    const bool repeated = i > 0 && erased[i].hash == erased[i - 1].hash &&
                          text_of(erased[i]) == text_of(erased[i - 1]);
    if (!repeated && !IsThere(shard, erased[i])) TakeGone(erased[i].word, text_of(erased[i]), rows);
  }
}

void SaveSource::Scan(Range* range, SavedRows* rows, uint64_t* last, bool* done) const {
  const uint32_t number = ShardOfHash(range->begin);
  const Shard& shard = *table_->shards_[number];
  const bool by_bits = by_bits_[number];
  std::vector<Entry>& entries = rows->entries_;
  entries.clear();
  std::vector<Entry>& others = rows->others_;
  others.clear();
  const uint64_t most = range->last - range->begin;
  const uint64_t end = range->begin + std::min(range->step, most);
  const Hold hold(shard, &hold_nanos_);
  const ChangeObserver* const watch = shard.watch.get();
  const BeforeImages* held = budget_ == nullptr || watch == nullptr ? nullptr : watch->held.get();
  const DirtyRows* dirty = by_bits && watch != nullptr ? watch->dirty.get() : nullptr;
  const auto visit = [&](uint64_t word, uint32_t row) {
    const uint64_t hash = Mix64(word);
    if (hash < range->begin || hash > end) return;
    if (held != nullptr && held->IsTouched(row)) return;
    if (dirty != nullptr && !dirty->IsDirty(row, selection_.since)) {
      if (selection_.used_since == 0) return;
      others.push_back({hash, word, shard.Row(row), nullptr});
      return;
    }
    entries.push_back({hash, word, shard.Row(row), nullptr});
  };
  *last = std::min(shard.VisitSegment(range->begin, visit), end);
  const RowPolicy& policy = table_->policy_;
  for (size_t i = 0; i < others.size(); ++i) {
    if (i + kAhead < others.size()) PrefetchFar(others[i + kAhead].row + policy.end() - 1);
    if (policy.UsedSince(others[i].row, selection_.used_since)) entries.push_back(others[i]);
  }
  // The table may have grown since the ranges were planned: take a smaller piece if there are too
  // many rows.
  const size_t parts = entries.size() / RowsAHold();
  if (parts > 1) *last = range->begin + (*last - range->begin) / parts;
  if (held != nullptr) {
    held->ForEach(range->begin, *last,
                  [&](uint64_t word, const char* row, const std::string* texts) {
                    entries.push_back({Mix64(word), word, row, texts});
                  });
  }
  // The piece may end within an index segment: drop the rows behind it.
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.hash > *last; }),
                entries.end());
  *last = TakeAll(&entries, *last, rows);
  if (by_bits) {
    std::vector<Listed> erased;
    for (; range->first < range->end && list_[range->first].hash <= *last; ++range->first) {
      erased.push_back(list_[range->first]);
    }
    TakeErased(shard, range->begin, *last, std::move(erased), rows);
  }
  *done = *last == range->last;
  range->begin = *last + 1;
}

void SaveSource::LookUp(Range* range, SavedRows* rows, uint64_t* last, bool* done) const {
  const Shard& shard = *table_->shards_[ShardOfHash(range->last)];
  size_t end = std::min(range->end, range->first + RowsAHold());
  while (end < range->end && list_[end].hash == list_[end - 1].hash) ++end;
  std::vector<Entry>& entries = rows->entries_;
  entries.clear();
  std::vector<Listed> erased;
  const Hold hold(shard, &hold_nanos_);
  for (size_t i = range->first; i < end; ++i) {
    if (i + kAhead < end) shard.PrefetchLine(list_[i + kAhead].hash);
    const Listed& listed = list_[i];
    const size_t before = entries.size();
    // An erased key may have a row again.
    const bool gathered = i > range->first && list_[i - 1].hash == listed.hash;
    if (!gathered) Gather(shard, listed.hash, listed.word, &entries);
    const bool is_gone = layout_.key_type() == KeyType::kInt64 && entries.size() == before;
    if (is_gone || listed.erased_text != nullptr) erased.push_back(listed);
  }
  if (selection_.keys != nullptr) {
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [&](const Entry& entry) { return !IsSelected(entry); }),
                  entries.end());
  }
  // Append all rows, even if they take many bytes: the piece covers their hashes.
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) PrefetchBytes(entries[i + kAhead].row, layout_.stride());
    TakeKept(entries[i], rows);
  }
  range->first = end;
  *done = end == range->end;
  *last = *done ? range->last : list_[end - 1].hash;
  if (selection_.changes_only) TakeErased(shard, range->begin, *last, std::move(erased), rows);
  range->begin = *last + 1;
}

void SaveSource::FreeCollected() noexcept {
  if (budget_ == nullptr) return;
  // Keep the last shard's copies until End: they mark that a consistent save is running.
  for (; let_go_ < ShardOfHash(budget_->collected); ++let_go_) LetGo(*table_->shards_[let_go_]);
}

/// Frees a shard's copies, which the save does not need any more.
void SaveSource::LetGo(Shard& shard) noexcept {
  std::unique_ptr<BeforeImages> held;  // freed after the lock is released
  std::unique_ptr<ChangeObserver> watch;
  const std::lock_guard<ShardLock> guard(shard.lock);
  if (shard.watch == nullptr) return;
  held = std::move(shard.watch->held);
  if (shard.watch->dirty == nullptr) watch = std::move(shard.watch);
}

void SaveSource::End() noexcept {
  for (; holding_ && let_go_ < kShards; ++let_go_) LetGo(*table_->shards_[let_go_]);
  holding_ = false;
  budget_.reset();
  if (replacing_.owns_lock()) replacing_.unlock();
}

}  // namespace de::engine
