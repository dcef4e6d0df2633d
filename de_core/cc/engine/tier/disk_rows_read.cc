// Reads rows from the files of DiskRows.
#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/tier/disk_places.h"

namespace de::engine {
namespace {

constexpr size_t kMostPerRead = size_t{128} << 10;
constexpr size_t kMostRead = size_t{4} << 20;  // bytes of the reads that are in the disk's queue

}  // namespace

/// Consecutive blocks of a file that are read at once, and the records in them.
struct DiskRows::Unit {
  const LocatedRows::File* file;
  uint64_t begin;
  uint64_t end;
  size_t first;  ///< its records are those that are numbered `first` to `last` - 1 by place
  size_t last;
};

/// Keeps the files of rows, whose places are set.
void DiskRows::Pin(LocatedRows* rows) const {
  for (const int64_t packed : rows->places) {
    const uint32_t number = Place::Of(packed).segment;
    LocatedRows::File& file = rows->files[number];
    if (file.segment == nullptr) file = {segments_[number], segments_[number]->layout};
  }
}

template <typename IsRowOf, typename Visit>
Status DiskRows::ReadRows(const LocatedRows& rows, Executor* executor, const IsRowOf& is_row_of,
                          const Visit& visit) const {
  const std::vector<int64_t>& places = rows.places;
  std::vector<uint32_t> order(places.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  const auto unsigned_of = [&](uint32_t i) { return static_cast<uint64_t>(places[i]); };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return unsigned_of(a) < unsigned_of(b); });
  std::vector<Unit> units;
  size_t longest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Place place = Place::Of(places[order[i]]);
    const LocatedRows::File* const file = &rows.files.at(place.segment);
    const uint64_t begin = RoundDown(place.offset, kBlockBytes);
    const uint64_t end = RoundUpTo(place.offset + place.bytes, kBlockBytes);
    if (!units.empty() && units.back().file == file && begin <= units.back().end &&
        end - units.back().begin <= kMostPerRead) {
      units.back().end = std::max(units.back().end, end);
      units.back().last = i + 1;
    } else {
      units.push_back({file, begin, end, i, i + 1});
    }
    longest = std::max<size_t>(longest, units.back().end - units.back().begin);
  }
  if (units.empty()) return Status::Ok();
  std::vector<BlockRead> reads;
  reads.reserve(units.size());
  for (const Unit& unit : units) {
    reads.push_back(
        {unit.file->segment->descriptor(), unit.begin, unit.end - unit.begin, nullptr, 0});
  }
  const auto visit_unit = [&](const Unit& unit, const BlockRead& read) -> Status {
    const SegmentFile& segment = *unit.file->segment;
    if (read.error != 0) {
      return Status::Internal("rows must be readable from the disk. Received: " + segment.path() +
                              ", offset " + std::to_string(read.offset) + ": " +
                              std::strerror(read.error));
    }
    for (size_t record = unit.first; record < unit.last; ++record) {
      const Place place = Place::Of(places[order[record]]);
      DecodedRow row;
      if (!DecodeRow(read.to + (place.offset - unit.begin), place.bytes, *unit.file->layout,
                     segment.MarkOf(place.offset), &row) ||
          !is_row_of(order[record], row)) {
        return Status::DataLoss(
            "a row on the disk must have its key and its checksum; restore the table from a "
            "checkpoint. Received: " +
            segment.path() + ", offset " + std::to_string(place.offset));
      }
      DE_RETURN_IF_ERROR(visit(order[record], row, *unit.file->layout));
    }
    return Status::Ok();
  };
  const auto buffer = buffers_.Lend();
  const size_t slots =
      std::min({units.size(), size_t{options_.depth}, std::max<size_t>(1, kMostRead / longest)});
  buffer->Reserve(slots * longest);
  reads_.fetch_add(reads.size(), std::memory_order_relaxed);
  Status status;
  disk_->ReadEach(reads.data(), reads.size(), {buffer->data(), longest, slots}, executor,
                  [&](size_t i) {
                    if (!status.ok()) return;
                    status = Guarded([&] { return visit_unit(units[i], reads[i]); });
                  });
  return status;
}

Status DiskRows::Locate(const Keys& keys, Executor* executor, LocatedRows* located) const {
  return Guarded([&]() -> Status {
    Places all;
    DE_RETURN_IF_ERROR(index_->Find(keys, executor, &all));
    LocatedRows rows;
    for (size_t i = 0; i < keys.size; ++i) {
      if (!all.found[i]) continue;
      rows.places.push_back(all.packed[i]);
      rows.positions.push_back(static_cast<uint32_t>(i));
    }
    Pin(&rows);
    *located = std::move(rows);
    return Status::Ok();
  });
}

Status DiskRows::Read(const Keys& keys, const LocatedRows& located, const RowLayout& layout,
                      Executor* executor, std::vector<char>* rows) const {
  return Guarded([&]() -> Status {
    const size_t stride = layout.stride();
    const size_t before = rows->size();
    rows->resize(before + located.places.size() * stride);
    char* const to = rows->data() + before;
    Converters converters(layout);
    return ReadRows(
        located, executor,
        [&](uint32_t i, const DecodedRow& row) {
          return keys.strings != nullptr ? row.key == keys.strings[i]
                                         : row.word == static_cast<uint64_t>(keys.ints[i]);
        },
        [&](uint32_t i, const DecodedRow& row, const RowLayout& from) {
          return converters.Convert(from, row.row, to + i * stride);
        });
  });
}

Status DiskRows::AreNewest(const Keys& keys, const LocatedRows& located, bool* newest) const {
  return Guarded([&]() -> Status {
    Places now;
    DE_RETURN_IF_ERROR(index_->Find(keys, nullptr, &now));
    for (size_t i = 0; i < keys.size; ++i) {
      const uint32_t number = Place::Of(located.places[i]).segment;
      // A later segment may have the number of a removed one.
      newest[i] = now.found[i] && now.packed[i] == located.places[i] &&
                  segments_[number] == located.files.at(number).segment;
    }
    return Status::Ok();
  });
}

Status DiskRows::LocateRange(uint64_t begin, uint64_t last, size_t most,
                             LocatedRows* located) const {
  return Guarded([&]() -> Status {
    using Entry = DiskIndex::Entry;
    const auto hash_of = [](const Entry& entry) { return Mix64(entry.word); };
    std::vector<Entry> entries, part;
    uint64_t covered = begin;
    for (ExportCursor cursor{begin, false}; !cursor.done && entries.size() < most;) {
      DE_RETURN_IF_ERROR(index_->Export(&cursor, &part, &covered));
      for (const Entry& entry : part) {
        if (hash_of(entry) <= last) entries.push_back(entry);
      }
      if (covered >= last) break;
    }
    std::sort(entries.begin(), entries.end(),
              [&](const Entry& a, const Entry& b) { return hash_of(a) < hash_of(b); });
    covered = std::min(covered, last);
    if (entries.size() > most && most > 0) {
      size_t cut = most;  // keys with equal hashes stay together
      while (cut < entries.size() && entries[cut].word == entries[cut - 1].word) ++cut;
      if (cut < entries.size()) covered = hash_of(entries[cut]) - 1;
      entries.resize(cut);
    }
    LocatedRows rows;
    for (const Entry& entry : entries) {
      rows.places.push_back(entry.place);
      rows.words.push_back(entry.word);
    }
    Pin(&rows);
    rows.hash_begin = begin;
    rows.hash_last = covered;
    *located = std::move(rows);
    return Status::Ok();
  });
}

Status DiskRows::ReadRange(const LocatedRows& located, const RowLayout& layout,
                           RowBatch* batch) const {
  return Guarded([&]() -> Status {
    const size_t count = located.places.size(), stride = layout.stride();
    batch->Clear();
    batch->hash_begin = located.hash_begin;
    batch->hash_last = located.hash_last;
    // String keys come with the records, so rows are put in order after they are read.
    std::vector<std::string> texts(layout.key_type() == KeyType::kString ? count : 0);
    std::vector<char> rows(count * stride);
    Converters converters(layout);
    DE_RETURN_IF_ERROR(ReadRows(
        located, nullptr,
        [&](uint32_t i, const DecodedRow& row) { return row.word == located.words[i]; },
        [&](uint32_t i, const DecodedRow& row, const RowLayout& from) {
          if (!texts.empty()) texts[i] = row.key;
          return converters.Convert(from, row.row, rows.data() + i * stride);
        }));
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(batch->Add(located.words[i], stride), rows.data() + i * stride, stride);
      if (!texts.empty()) batch->AddText(texts[i]);
    }
    batch->Finish(layout);
    return Status::Ok();
  });
}

}  // namespace de::engine
