// Reads rows from the files of DiskRows.
#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/tier/disk_places.h"

namespace de::engine {
namespace {

constexpr size_t kMostPerRead = size_t{128} << 10;
constexpr size_t kMostRead = size_t{4} << 20;  // bytes that one call reads at once

}  // namespace

/// Consecutive blocks of a file that are read at once, and the records in them.
struct DiskRows::Unit {
  uint32_t segment;
  uint64_t begin;
  uint64_t end;
  size_t first;  ///< its records are those that are numbered `first` to `last` - 1 by place
  size_t last;
};

template <typename Visit>
Status DiskRows::ReadRows(const std::vector<int64_t>& places, Executor* executor,
                          const Visit& visit) const {
  std::vector<uint32_t> order(places.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  const auto unsigned_of = [&](uint32_t i) { return static_cast<uint64_t>(places[i]); };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return unsigned_of(a) < unsigned_of(b); });
  std::vector<Unit> units;
  for (size_t i = 0; i < order.size(); ++i) {
    const Place place = Place::Of(places[order[i]]);
    const uint64_t begin = RoundDown(place.offset, kBlockBytes);
    const uint64_t end = RoundUpTo(place.offset + place.bytes, kBlockBytes);
    if (!units.empty() && units.back().segment == place.segment && begin <= units.back().end &&
        end - units.back().begin <= kMostPerRead) {
      units.back().end = std::max(units.back().end, end);
      units.back().last = i + 1;
    } else {
      units.push_back({place.segment, begin, end, i, i + 1});
    }
  }
  BufferLease buffer(*this);
  std::vector<BlockRead> reads;
  for (size_t next = 0; next < units.size();) {
    size_t bytes = 0, last = next;
    for (; last < units.size(); ++last) {
      const size_t more = units[last].end - units[last].begin;
      if (last > next && bytes + more > kMostRead) break;
      bytes += more;
    }
    (*buffer).Reserve(bytes);
    reads.clear();
    char* to = (*buffer).data();
    for (size_t i = next; i < last; ++i) {
      const size_t size = units[i].end - units[i].begin;
      reads.push_back({segments_[units[i].segment]->descriptor(), units[i].begin, size, to, 0});
      to += size;
    }
    reader_.Read(reads.data(), reads.size(), executor);
    reads_.fetch_add(reads.size(), std::memory_order_relaxed);
    for (size_t i = next; i < last; ++i) {
      const Unit& unit = units[i];
      const BlockRead& read = reads[i - next];
      const SegmentFile& segment = *segments_[unit.segment];
      if (read.error != 0) {
        return Status::Internal("rows must be readable from the disk. Received: " + segment.path() +
                                ", offset " + std::to_string(read.offset) + ": " +
                                std::strerror(read.error));
      }
      for (size_t record = unit.first; record < unit.last; ++record) {
        const Place place = Place::Of(places[order[record]]);
        DecodedRow row;
        if (!DecodeRow(read.to + (place.offset - unit.begin), place.bytes, *segment.layout, &row)) {
          return Status::DataLoss(
              "a row on the disk must have its checksum; restore the table from a checkpoint. "
              "Received: " +
              segment.path() + ", offset " + std::to_string(place.offset));
        }
        DE_RETURN_IF_ERROR(visit(order[record], row, *segment.layout));
      }
    }
    next = last;
  }
  return Status::Ok();
}

Status DiskRows::Find(const Keys& keys, const RowLayout& layout, bool with_rows, Executor* executor,
                      FoundRows* found) const {
  return Guarded([&]() -> Status {
    Places all;
    DE_RETURN_IF_ERROR(FindPlaces(keys, executor, &all));
    std::vector<int64_t>& places = all.packed;
    found->positions.clear();
    found->rows.clear();
    for (size_t i = 0; i < keys.size; ++i) {
      if (!all.found[i]) continue;
      places[found->positions.size()] = places[i];
      found->positions.push_back(static_cast<uint32_t>(i));
    }
    if (!with_rows) return Status::Ok();
    places.resize(found->positions.size());
    found->rows.resize(places.size() * layout.stride());
    Converters converters(layout);
    return ReadRows(
        places, executor, [&](uint32_t i, const DecodedRow& row, const RowLayout& from) {
          return converters.Convert(from, row.row, found->rows.data() + i * layout.stride());
        });
  });
}

Status DiskRows::Scan(uint64_t begin, uint64_t last, size_t most, const RowLayout& layout,
                      RowBatch* batch) const {
  return Guarded([&]() -> Status {
    struct Entry {
      uint64_t hash;
      int64_t place;
      uint64_t word;
    };
    std::vector<Entry> entries;
    RowBatch indexed;
    uint64_t covered = begin;
    for (ExportCursor cursor{begin, false}; !cursor.done && entries.size() < most;) {
      DE_RETURN_IF_ERROR(index_->ExportBatch(&cursor, &indexed));
      for (size_t i = 0; i < indexed.size(); ++i) {
        const uint64_t hash = Mix64(indexed.words[i]);
        if (hash > last) continue;
        int64_t place = 0;
        std::memcpy(&place, indexed.rows.data() + i * indexed.layout.stride(), sizeof(place));
        entries.push_back({hash, place, indexed.words[i]});
      }
      covered = indexed.hash_last;
      if (covered >= last) break;
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.hash < b.hash; });
    covered = std::min(covered, last);
    if (entries.size() > most && most > 0) {
      size_t cut = most;  // keys with equal hashes stay together
      while (cut < entries.size() && entries[cut].hash == entries[cut - 1].hash) ++cut;
      if (cut < entries.size()) covered = entries[cut].hash - 1;
      entries.resize(cut);
    }
    std::vector<int64_t> places;
    places.reserve(entries.size());
    for (const Entry& entry : entries) places.push_back(entry.place);
    RowBatchBuilder builder(layout, batch);
    batch->hash_begin = begin;
    batch->hash_last = covered;
    // String keys come with the records, so rows are put in order after they are read.
    std::vector<std::string> texts(layout.key_type() == KeyType::kString ? places.size() : 0);
    std::vector<char> rows(places.size() * layout.stride());
    Converters converters(layout);
    DE_RETURN_IF_ERROR(
        ReadRows(places, nullptr, [&](uint32_t i, const DecodedRow& row, const RowLayout& from) {
          if (!texts.empty()) texts[i] = row.key;
          return converters.Convert(from, row.row, rows.data() + i * layout.stride());
        }));
    for (size_t i = 0; i < places.size(); ++i) {
      char* const to = builder.Add(entries[i].word);
      std::memcpy(to, rows.data() + i * layout.stride(), layout.stride());
      if (!texts.empty()) builder.AddText(texts[i]);
    }
    builder.Finish();
    return Status::Ok();
  });
}

}  // namespace de::engine
