// Frees the space of rows on disk that were replaced or erased.
#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/tier/disk_places.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr uint64_t kCleanedBytes = uint64_t{1} << 20;  // bytes that are cleaned at once
// Most bytes that are cleaned per written byte. Gaps of 32 % of a segment need 3.2.
constexpr double kMostPace = 4;

}  // namespace

/// Chooses the segment to clean, if gaps take too much of the files.
bool DiskRows::ChooseCleaned() noexcept {
  uint64_t disk = disk_bytes_.load(std::memory_order_relaxed), live = live_bytes_;
  // So files take 1.47 times the records.
  const auto is_within = [&](uint64_t segments) {
    return disk <= live + live / 32 * 15 + segments * options_.segment_bytes;
  };
  if (is_within(1)) return false;
  double least = 1;
  for (uint32_t number = 0; number < segments_.size(); ++number) {
    const SegmentFile* const segment = segments_[number].get();
    if (segment == nullptr || number == active_) continue;
    if (segment->is_damaged && segment->live_bytes > 0) {  // stays, and its gaps too
      disk -= segment->end();
      live -= segment->live_bytes;
      continue;
    }
    const double part = static_cast<double>(segment->live_bytes) /
                        static_cast<double>(std::max<uint64_t>(segment->end(), 1));
    if (part >= least) continue;
    least = part;
    cleaning_.segment = number;
  }
  cleaning_.is_active = least < 1 && !is_within(1);
  // As many bytes become free as are written. More if there are too many, such as after an erasure.
  cleaning_.pace =
      is_within(3) ? std::min(kMostPace, 1 / std::max(1 - least, 1 / kMostPace)) : kMostPace;
  cleaning_.next = cleaning_.staged = 0;
  return cleaning_.is_active;
}

/// Copies rows of the cleaned segment after `written` bytes were written.
Status DiskRows::StageCleaning(uint64_t written) {
  if (!cleaning_.is_active && !ChooseCleaned()) return Status::Ok();
  const SegmentFile& segment = *segments_[cleaning_.segment];
  if (segment.live_bytes == 0) return Status::Ok();  // Commit removes it
  cleaning_.due =
      std::min(cleaning_.due + static_cast<uint64_t>(static_cast<double>(written) * cleaning_.pace),
               std::max(2 * options_.segment_bytes, segment.end()));
  while (cleaning_.is_active && cleaning_.staged < segment.end() &&
         cleaning_.due >= std::min(kCleanedBytes, segment.end() - cleaning_.staged)) {
    const uint64_t begin = cleaning_.staged;
    DE_RETURN_IF_ERROR(CleanPart(kCleanedBytes));
    // A record may be greater than the part.
    if (cleaning_.is_active && cleaning_.staged == begin) {
      DE_RETURN_IF_ERROR(CleanPart(kMaxRecordBytes + kBlockBytes));
    }
    cleaning_.due -= std::min(cleaning_.due, cleaning_.staged - begin);
  }
  return Status::Ok();
}

/// Writes the live rows of the next part of the cleaned segment again.
Status DiskRows::CleanPart(uint64_t most) {
  SegmentFile& segment = *segments_[cleaning_.segment];
  const std::shared_ptr<const RowLayout> from = segment.layout;
  const uint64_t begin = RoundDown(cleaning_.staged, kBlockBytes);
  const uint64_t bytes = std::min(segment.end() - begin, most);
  const auto buffer = buffers_.Lend();
  buffer->Reserve(bytes);
  BlockRead read{segment.descriptor(), begin, bytes, nullptr, 0};
  disk_->ReadEach(&read, 1, {buffer->data(), bytes, 1}, nullptr, [](size_t) {});
  reads_.fetch_add(1, std::memory_order_relaxed);
  const auto damaged = [&] {
    segment.is_damaged = true;
    cleaning_.is_active = false;
    return Status::Ok();
  };
  if (read.error != 0) return damaged();
  const bool has_texts = from->key_type() == KeyType::kString;
  std::vector<DecodedRow> rows;
  std::vector<int64_t> places;
  KeyList keys;
  uint64_t at = cleaning_.staged - begin;
  while (at < bytes) {
    uint32_t record_bytes;  // lies in one block with the record's beginning
    std::memcpy(&record_bytes, read.to + at + offsetof(RowRecord, bytes), sizeof(record_bytes));
    if (record_bytes == 0) {  // the rest of the block is empty, or lost: EndCleaning notices
      at = RoundDown(at, kBlockBytes) + kBlockBytes;
      continue;
    }
    if (record_bytes > bytes - at) {
      if (begin + bytes == segment.end() || record_bytes > kMaxRecordBytes) return damaged();
      break;
    }
    DecodedRow row;
    if (!DecodeRow(read.to + at, bytes - at, *from, segment.MarkOf(begin + at), &row)) {
      return damaged();
    }
    const auto number = static_cast<int64_t>(row.word);
    keys.Add(has_texts ? Keys{nullptr, &row.key, 1} : Keys{&number, nullptr, 1}, 0);
    rows.push_back(row);
    places.push_back(Place{cleaning_.segment, begin + at, row.bytes}.Packed());
    at += row.bytes;
  }
  Places newest;
  DE_RETURN_IF_ERROR(index_->Find(keys.keys(), nullptr, &newest));
  StagedRows& staged = staged_.emplace_back();
  const Status status = Guarded([&]() -> Status {
    RowBatch& live = staged.cleaned;
    staged.rows = &live;
    Converters converters(*layout_);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!newest.found[i] || newest.packed[i] != places[i]) continue;
      DE_RETURN_IF_ERROR(
          converters.Convert(*from, rows[i].row, live.Add(rows[i].word, layout_->stride())));
      if (has_texts) live.AddText(rows[i].key);
      staged.from.push_back(places[i]);
    }
    live.Finish(*layout_);
    return WriteRows(live, &staged.places);
  });
  std::vector<char>().swap(staged.cleaned.rows);
  if (!status.ok() || staged.from.empty()) staged_.pop_back();
  DE_RETURN_IF_ERROR(status);
  cleaning_.staged = begin + at;
  return Status::Ok();
}

/// Gives those cleaned rows their new places that are still where they were.
Status DiskRows::CommitCleaned(const StagedRows& staged) {
  const Keys all = KeysOf(*staged.rows);
  Places newest;
  DE_RETURN_IF_ERROR(index_->Find(all, nullptr, &newest));
  KeyList keys;
  std::vector<int64_t> places;
  for (size_t i = 0; i < all.size; ++i) {
    if (!newest.found[i] || newest.packed[i] != staged.from[i]) continue;
    keys.Add(all, i);
    places.push_back(staged.places[i]);
  }
  return places.empty() ? Status::Ok() : CommitRows(keys.keys(), places);
}

/// Removes the cleaned segment if all of its rows have moved. Then chooses others, as long as they
/// have no rows.
Status DiskRows::EndCleaning() {
  while (cleaning_.is_active || ChooseCleaned()) {
    SegmentFile& segment = *segments_[cleaning_.segment];
    if (segment.live_bytes > 0) {
      if (cleaning_.next < segment.end()) break;
      // The cleaner has seen all of the file, but not all rows: they are lost, or were never there.
      uint64_t live = 0, last = 0;
      std::vector<DiskIndex::Entry> entries;
      for (ExportCursor cursor; !cursor.done;) {
        DE_RETURN_IF_ERROR(index_->Export(&cursor, &entries, &last));
        for (const DiskIndex::Entry& entry : entries) {
          const Place place = Place::Of(entry.place);
          if (place.segment == cleaning_.segment) live += place.bytes;
        }
      }
      live_bytes_ -= segment.live_bytes - live;
      segment.live_bytes = live;
      segment.is_damaged = live > 0;
    }
    if (segment.live_bytes == 0) {
      spare_.reserve(spare_.size() + 1);
      disk_bytes_.fetch_sub(segment.end(), std::memory_order_relaxed);
      spare_bytes_.fetch_add(segment.end(), std::memory_order_relaxed);
      spare_.push_back(std::move(segments_[cleaning_.segment]));
    }
    cleaning_.is_active = false;
  }
  return Status::Ok();
}

}  // namespace de::engine
