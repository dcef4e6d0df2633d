// Reads the rows of a tiered table for a save. Hot and cold rows of a range of hashes are read at
// one moment, so a row that moves meanwhile is saved exactly once.
#include <algorithm>
#include <shared_mutex>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/save/kept_rows.h"
#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/tier/missing_keys.h"
#include "de_core/cc/engine/tier/tiered_table.h"

namespace de::engine {
namespace {

constexpr uint64_t kRowsPerRange = 8192;

}  // namespace

class TierSource final : public RowSource {
 public:
  /// `table` must outlive the source.
  explicit TierSource(TieredTable* table) : table_(table), hot_(table->hot_.get()) {}
  ~TierSource() override { End(); }

  /// FailedPrecondition with `held_bytes`: a tiered table cannot be saved as of one moment.
  Status Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed) override;
  const std::vector<Range>& ranges() const noexcept override { return ranges_; }
  Status Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) override;
  void FreeCollected() noexcept override {}
  bool urgent() const noexcept override { return false; }
  void End() noexcept override;

  const RowLayout& layout() const noexcept override { return hot_.layout(); }
  const InitializerOptions& initializer() const noexcept override { return hot_.initializer(); }
  bool everything() const noexcept override { return hot_.everything(); }
  bool outdated() const noexcept override { return outdated_ || hot_.outdated(); }
  double longest_hold_seconds() const noexcept override { return hot_.longest_hold_seconds(); }
  uint64_t held_peak() const noexcept override { return 0; }

 private:
  Status CollectAll(Range* range, SavedRows* rows, uint64_t* last, bool* done);
  Status CollectChanges(Range* range, SavedRows* rows, uint64_t* last, bool* done);
  void Add(uint64_t word, const char* row, const std::string_view* text, SavedRows* rows) const;

  TieredTable* table_;
  SaveSource hot_;  ///< for a delta, finds the changed keys
  SaveSelection selection_;
  KeptRows kept_;
  KeySet keys_;         ///< the keys of the selection
  RowBatch batch_;      ///< reused
  SavedRows hot_rows_;  ///< reused
  std::vector<Range> ranges_;
  std::unique_lock<std::mutex> replacing_;  ///< with `undisturbed`, the table's replacing_lock_
  bool outdated_ = false;
};

std::unique_ptr<RowSource> TieredTable::NewRowSource() {
  return std::make_unique<TierSource>(this);
}

Status TierSource::Begin(SaveSelection selection, uint64_t held_bytes, bool undisturbed) {
  return table_->Run([&]() -> Status {
    if (held_bytes > 0) {
      return Status::FailedPrecondition(
          "a table with a tier cannot be saved as of one moment; leave consistent=True out");
    }
    // Clear and new slots wait for this lock, before they take the table's other locks.
    if (undisturbed) replacing_ = std::unique_lock<std::mutex>(table_->replacing_lock_);
    selection_ = std::move(selection);
    if (selection_.keys != nullptr) {
      keys_.Add(*selection_.keys);
      keys_.Seal();
    }
    SaveSelection of_hot = selection_;
    of_hot.keys = nullptr;
    const std::shared_lock<ShardLock> hold(table_->lock_);
    DE_RETURN_IF_ERROR(hot_.Begin(std::move(of_hot), 0));
    DE_RETURN_IF_ERROR(kept_.Plan(hot_.layout(), selection_.keep));
    if (selection_.changes_only && !hot_.everything()) {
      ranges_ = hot_.ranges();
    } else {
      uint32_t bits = kShardBits;
      while ((table_->size() >> bits) > kRowsPerRange && bits < 32) ++bits;
      const uint64_t width = ~uint64_t{0} >> bits;
      for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) {
        const uint64_t begin = i << (64 - bits);
        ranges_.push_back({begin, begin + width, width, false, 0, 0});
      }
    }
    return Status::Ok();
  });
}

Status TierSource::Collect(Range* range, SavedRows* rows, uint64_t* last, bool* done) {
  return table_->Run([&]() -> Status {
    if (selection_.changes_only && !hot_.everything())
      return CollectChanges(range, rows, last, done);
    return CollectAll(range, rows, last, done);
  });
}

/// Appends the next rows of the range, hot and cold.
Status TierSource::CollectAll(Range* range, SavedRows* rows, uint64_t* last, bool* done) {
  DE_RETURN_IF_ERROR(table_->ReadPart(range->begin, &batch_));
  if (batch_.layout.generation() != layout().generation()) {
    outdated_ = true;
    return Status::FailedPrecondition(
        "the table must not be cleared, and no optimizer's slots may be added or dropped, during a "
        "save; save again");
  }
  const size_t stride = layout().stride();
  *last = std::min(batch_.hash_last, range->last);
  for (size_t i = 0; i < batch_.size(); ++i) {
    const char* const row = batch_.rows.data() + i * stride;
    const std::string_view* const text = batch_.keys.empty() ? nullptr : &batch_.keys[i];
    if (Mix64(batch_.words[i]) > *last || !kept_.Keeps(row)) continue;
    if (selection_.keys != nullptr && !keys_.Contains(batch_.words[i], text)) continue;
    Add(batch_.words[i], row, text, rows);
  }
  *done = *last == range->last;
  range->begin = *last + 1;
  return Status::Ok();
}

/// Appends the changed rows of the range. The hot table reports keys whose rows became cold as
/// erased, so looks the erased keys up among the cold rows.
Status TierSource::CollectChanges(Range* range, SavedRows* rows, uint64_t* last, bool* done) {
  const uint64_t begin = range->begin;
  hot_rows_.Clear();
  std::shared_lock<ShardLock> hold(table_->lock_);
  DE_RETURN_IF_ERROR(hot_.Collect(range, &hot_rows_, last, done));
  const SnapshotSection hot = hot_rows_.section(layout(), begin, *last);
  const size_t stride = layout().stride();
  for (size_t i = 0; i < hot.count; ++i) {
    Add(hot.words[i], hot.rows + i * stride, hot.keys == nullptr ? nullptr : hot.keys + i, rows);
  }
  const Keys gone = Keys::Of(hot.tombstone_words, hot.tombstone_keys, hot.tombstones);
  const std::unique_ptr<bool[]> is_hot = std::make_unique<bool[]>(gone.size);
  DE_RETURN_IF_ERROR(table_->hot_->Find(gone, {}, is_hot.get(), nullptr));
  const MissingKeys absent(gone, is_hot.get());
  std::vector<const char*> row_of(absent.empty() ? 0 : absent.keys().size);
  std::vector<char> cold;
  if (!absent.empty()) {
    LocatedRows located;
    DE_RETURN_IF_ERROR(table_->cold_->Locate(absent.keys(), nullptr, &located));
    hold.unlock();
    KeyList keys;
    for (const uint32_t position : located.positions) keys.Add(absent.keys(), position);
    DE_RETURN_IF_ERROR(table_->cold_->Read(keys.keys(), located, layout(), nullptr, &cold));
    for (size_t i = 0; i < located.positions.size(); ++i) {
      row_of[located.positions[i]] = cold.data() + i * stride;
    }
  }
  const auto text_of = [&](size_t i) {
    return gone.strings == nullptr ? nullptr : gone.strings + i;
  };
  for (size_t i = 0; i < gone.size; ++i) {
    if (is_hot[i]) rows->AddGone(hot.tombstone_words[i], text_of(i));  // a rule excludes the row
  }
  std::vector<bool> added(row_of.size());
  absent.ForEach([&](uint32_t i, uint32_t number) {
    if (added[number]) return;
    added[number] = true;
    if (row_of[number] != nullptr && kept_.Keeps(row_of[number])) {
      Add(hot.tombstone_words[i], row_of[number], text_of(i), rows);
    } else {
      rows->AddGone(hot.tombstone_words[i], text_of(i));
    }
  });
  return Status::Ok();
}

void TierSource::Add(uint64_t word, const char* row, const std::string_view* text,
                     SavedRows* rows) const {
  CopyBytes(rows->AddRow(word, layout().stride()), row, layout().stride());
  if (text != nullptr) rows->AddText(*text);
}

void TierSource::End() noexcept {
  hot_.End();
  if (replacing_.owns_lock()) replacing_.unlock();
}

}  // namespace de::engine
