#include "de_core/cc/engine/tier/disk_rows.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr size_t kMostWritten = size_t{4} << 20;  // bytes per write
constexpr size_t kMostPerRead = size_t{128} << 10;
constexpr size_t kMostRead = size_t{4} << 20;        // bytes that one call reads at once
constexpr uint64_t kCleanedBytes = size_t{1} << 20;  // bytes that are cleaned at once
// While gaps take a third of the files, so many bytes are cleaned for each appended byte.
constexpr uint64_t kCleanedPerAppended = 3;
constexpr char kPrefix[] = "rows-";
// An owner of slots that no table has.
constexpr char kDropped[] = "\x01 dropped";

constexpr uint64_t RoundDown(uint64_t bytes, uint64_t to) noexcept { return bytes / to * to; }
constexpr uint64_t RoundUp(uint64_t bytes, uint64_t to) noexcept {
  return (bytes + to - 1) / to * to;
}

/// True if the rows of both layouts have the same bytes.
bool AreAlike(const RowLayout& a, const RowLayout& b) {
  const auto same = [](const RowSlot& x, const RowSlot& y) {
    return x.owner == y.owner && x.offset == y.offset && x.spec.name == y.spec.name &&
           x.spec.width == y.spec.width && x.spec.dtype == y.spec.dtype;
  };
  return a.stride() == b.stride() &&
         std::equal(a.slots().begin(), a.slots().end(), b.slots().begin(), b.slots().end(), same);
}

}  // namespace

/// Where a record is, in 64 bits: the value of a key in the index.
struct DiskRows::Place {
  static constexpr uint32_t kMostSegments = 1U << 17;
  static constexpr uint64_t kMostOffset = uint64_t{8} << 28;

  uint32_t segment;
  uint64_t offset;
  size_t bytes;  ///< size of the record in the file

  static Place Of(int64_t packed) noexcept {
    const auto bits = static_cast<uint64_t>(packed);
    return {static_cast<uint32_t>(bits >> 47), (bits >> 19 & ((1U << 28) - 1)) * 8,
            (bits & ((1U << 19) - 1)) * 8 + 8};
  }
  int64_t Packed() const noexcept {
    return static_cast<int64_t>(uint64_t{segment} << 47 | offset / 8 << 19 | (bytes / 8 - 1));
  }
};

/// Converters from the layouts of segments to one layout.
class DiskRows::Converters {
 public:
  explicit Converters(const RowLayout& to) : to_(to) {}
  Status Convert(const RowLayout& from, const char* row, char* out) {
    auto found = made_.find(&from);
    if (found == made_.end()) {
      RowConverter converter;
      DE_RETURN_IF_ERROR(RowConverter::Create(from, to_, /*slots=*/true, &converter));
      found = made_.emplace(&from, std::move(converter)).first;
    }
    found->second.Convert(row, out);
    return Status::Ok();
  }

 private:
  const RowLayout& to_;
  std::map<const RowLayout*, RowConverter> made_;
};

/// Lends a buffer to a call.
class DiskRows::BufferLease {
 public:
  explicit BufferLease(const DiskRows& rows) : rows_(rows) {
    const std::lock_guard<std::mutex> guard(rows.buffers_mutex_);
    if (rows.buffers_.empty()) return;
    buffer_ = std::move(rows.buffers_.back());
    rows.buffers_.pop_back();
  }
  ~BufferLease() {
    const std::lock_guard<std::mutex> guard(rows_.buffers_mutex_);
    try {
      rows_.buffers_.push_back(std::move(buffer_));
    } catch (const std::bad_alloc&) {
      buffer_ = BlockBuffer();
    }
  }
  BufferLease(const BufferLease&) = delete;
  BufferLease& operator=(const BufferLease&) = delete;
  BlockBuffer& operator*() noexcept { return buffer_; }

 private:
  const DiskRows& rows_;
  BlockBuffer buffer_;
};

/// Consecutive blocks of a file that are read at once, and the records in them.
struct DiskRows::Unit {
  uint32_t segment;
  uint64_t begin;
  uint64_t end;
  size_t first;  ///< its records are those that are numbered `first` to `last` - 1 by place
  size_t last;
};

Status DiskRows::Create(const DiskOptions& options, KeyType key_type,
                        std::unique_ptr<ColdRows>* rows) {
  return Guarded([&]() -> Status {
    namespace fs = std::filesystem;
    if (options.segment_bytes < kBlockBytes || options.segment_bytes > Place::kMostOffset / 2) {
      return Status::InvalidArgument("segment_bytes must be 4096 to 2^30. Received: " +
                                     std::to_string(options.segment_bytes));
    }
    const auto failed = [&](const std::string& why) {
      return Status::InvalidArgument(
          "the directory of a tier must be a directory that this process can write to. Received: " +
          options.directory + ": " + why);
    };
    std::error_code error;
    fs::create_directories(options.directory, error);
    if (error) return failed(error.message());
    const std::string path = options.directory + "/lock";
    const int lock_file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_file < 0) return failed(std::strerror(errno));
    if (flock(lock_file, LOCK_EX | LOCK_NB) != 0) {
      close(lock_file);
      return Status::FailedPrecondition(
          "one table at a time must use the directory of a tier; give each table, and each "
          "process, a directory of its own. Received: " +
          options.directory + ", which is in use");
    }
    std::unique_ptr<Table> index;
    TableOptions index_options;
    index_options.key_type = key_type;
    index_options.value_dtype = DType::kInt64;
    Status status = Table::Create(std::move(index_options), &index);
    if (!status.ok()) {
      close(lock_file);
      return status;
    }
    auto* const made = new DiskRows(options, lock_file, std::move(index));
    rows->reset(made);
    for (const auto& entry : fs::directory_iterator(options.directory, error)) {
      if (entry.path().filename().string().rfind(kPrefix, 0) == 0) fs::remove(entry.path(), error);
    }
    return error ? failed(error.message()) : Status::Ok();
  });
}

DiskRows::DiskRows(DiskOptions options, int lock_file, std::unique_ptr<Table> index)
    : options_(std::move(options)),
      lock_file_(lock_file),
      index_(std::move(index)),
      reader_(options_.depth, options_.use_ring) {}

DiskRows::~DiskRows() {
  segments_.clear();
  close(lock_file_);
}

uint64_t DiskRows::live_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment == nullptr ? 0 : segment->live_bytes;
  return bytes;
}

uint64_t DiskRows::disk_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment == nullptr ? 0 : segment->end();
  return bytes;
}

TierStats DiskRows::Stats() const {
  const TableStats index = index_->Stats();
  TierStats stats;
  stats.disk_bytes = disk_bytes();
  stats.reads = reads_.load(std::memory_order_relaxed);
  stats.filter_bytes = index.index_bytes + index.row_bytes + index.string_bytes + index.free_bytes;
  return stats;
}

// ------------------------------------------------------------------------------------- writing

/// Makes `active_` a segment for rows of `layout`, which is not full.
Status DiskRows::PrepareSegment(const RowLayout& layout) {
  const SegmentFile* const active = active_ < segments_.size() ? segments_[active_].get() : nullptr;
  const bool fits = layout_ != nullptr && AreAlike(*layout_, layout);
  if (fits && active != nullptr && active->layout == layout_ &&
      active->end() < options_.segment_bytes) {
    return Status::Ok();
  }
  uint32_t number = 0;
  while (number < segments_.size() && segments_[number] != nullptr) ++number;
  if (number == Place::kMostSegments) {
    return Status::ResourceExhausted("a tier must have at most " +
                                     std::to_string(Place::kMostSegments) +
                                     " files. Use more tables. Received: " + options_.directory);
  }
  if (number == segments_.size()) segments_.emplace_back();
  if (!fits) layout_ = std::make_shared<const RowLayout>(layout);
  const std::string name = kPrefix + std::to_string(next_name_);
  DE_RETURN_IF_ERROR(
      SegmentFile::Create(options_.directory + "/" + name, layout_, &segments_[number]));
  ++next_name_;
  active_ = number;
  return Status::Ok();
}

void DiskRows::Forget(const int64_t* places, const bool* found, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    if (!found[i]) continue;
    const Place place = Place::Of(places[i]);
    segments_[place.segment]->live_bytes -= place.bytes;
  }
}

/// Writes rows without cleaning.
Status DiskRows::Write(const RowBatch& rows) {
  const size_t count = rows.size();
  std::vector<int64_t> places(count), old_places(count);
  for (size_t row = 0; row < count; ++row) {
    if (RecordBytes(rows, row) > kMaxRecordBytes) {
      return Status::InvalidArgument(
          "a row with its slots and key must have at most 4 MiB to be moved to a disk. Received: " +
          std::to_string(RecordBytes(rows, row)) + " bytes");
    }
  }
  for (size_t first = 0; first < count;) {
    DE_RETURN_IF_ERROR(PrepareSegment(rows.layout));
    SegmentFile& segment = *segments_[active_];
    size_t bytes = 0;
    const size_t wrote = EncodeRows(rows, first, kMostWritten, &write_buffer_, &begins_, &bytes);
    const uint64_t begin = segment.end();
    DE_RETURN_IF_ERROR(segment.Append(write_buffer_, bytes));
    written_bytes_ += bytes;
    for (size_t i = 0; i < wrote; ++i) {
      places[first + i] = Place{active_, begin + begins_[i], RecordBytes(rows, first + i)}.Packed();
    }
    first += wrote;
  }
  const Keys keys = KeysOf(rows);
  const auto found = std::make_unique<bool[]>(count);
  const auto data = reinterpret_cast<char*>(old_places.data());
  DE_RETURN_IF_ERROR(index_->Find(keys, {data, nullptr}, found.get(), nullptr));
  DE_RETURN_IF_ERROR(
      index_->InsertOrAssign(keys, {reinterpret_cast<char*>(places.data()), nullptr}, nullptr));
  Forget(old_places.data(), found.get(), count);
  for (const int64_t packed : places) {
    const Place place = Place::Of(packed);
    segments_[place.segment]->live_bytes += place.bytes;
  }
  return Status::Ok();
}

Status DiskRows::Append(const RowBatch& rows) {
  return Guarded([&]() -> Status {
    const uint64_t before = written_bytes_;
    DE_RETURN_IF_ERROR(Write(rows));
    // The rows are stored. If cleaning fails, the next call tries again.
    (void)Clean((written_bytes_ - before) * kCleanedPerAppended);
    return Status::Ok();
  });
}

Status DiskRows::Erase(const Keys& keys) {
  return Guarded([&]() -> Status {
    std::vector<int64_t> places(keys.size);
    const auto found = std::make_unique<bool[]>(keys.size);
    const auto data = reinterpret_cast<char*>(places.data());
    DE_RETURN_IF_ERROR(index_->Find(keys, {data, nullptr}, found.get(), nullptr));
    DE_RETURN_IF_ERROR(index_->Erase(keys, nullptr));
    Forget(places.data(), found.get(), keys.size);
    return Status::Ok();
  });
}

Status DiskRows::Clear() {
  return Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(index_->Clear());
    segments_.clear();
    layout_.reset();
    active_ = 0;
    is_cleaning_ = false;
    return Status::Ok();
  });
}

void DiskRows::DropSlots(const std::string& owner) {
  std::map<const RowLayout*, std::shared_ptr<const RowLayout>> without;
  for (const auto& segment : segments_) {
    if (segment == nullptr || !segment->layout->HasOwner(owner)) continue;
    const RowLayout& old = *segment->layout;
    std::shared_ptr<const RowLayout>& made = without[&old];
    if (made != nullptr) continue;
    // The bytes stay in the rows, under a name that no table asks for.
    auto masked = std::make_shared<RowLayout>(old.key_type(), old.value_dtype(), old.dim());
    for (const RowSlot& slot : old.slots()) {
      masked->Append(slot.owner == owner ? kDropped : slot.owner, {slot.spec});
    }
    made = std::move(masked);
  }
  for (const auto& segment : segments_) {
    if (segment == nullptr) continue;
    const auto found = without.find(segment->layout.get());
    if (found != without.end()) segment->layout = found->second;
  }
  const auto found = without.find(layout_.get());
  if (found != without.end()) layout_ = found->second;
}

// ------------------------------------------------------------------------------------- reading

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
    const uint64_t end = RoundUp(place.offset + place.bytes, kBlockBytes);
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
    std::vector<int64_t> places(keys.size);
    const auto is_found = std::make_unique<bool[]>(keys.size);
    const auto data = reinterpret_cast<char*>(places.data());
    DE_RETURN_IF_ERROR(index_->Find(keys, {data, nullptr}, is_found.get(), executor));
    found->positions.clear();
    found->rows.clear();
    for (size_t i = 0; i < keys.size; ++i) {
      if (!is_found[i]) continue;
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

// ------------------------------------------------------------------------------------- cleaning

/// Chooses the segment to clean, if gaps take too much of the files.
bool DiskRows::ChooseCleaned() noexcept {
  const uint64_t live = live_bytes();
  if (disk_bytes() <= live + live / 2 + 2 * options_.segment_bytes) return false;
  double best = 1;
  for (uint32_t number = 0; number < segments_.size(); ++number) {
    const SegmentFile* const segment = segments_[number].get();
    if (segment == nullptr || number == active_ || segment->is_damaged) continue;
    const double part =
        static_cast<double>(segment->live_bytes) / static_cast<double>(segment->end());
    if (part >= best) continue;
    best = part;
    cleaned_ = number;
    is_cleaning_ = true;
  }
  clean_next_ = 0;
  return is_cleaning_;
}

Status DiskRows::Clean(uint64_t budget) {
  while (is_cleaning_ || ChooseCleaned()) {
    if (segments_[cleaned_]->live_bytes == 0 || clean_next_ >= segments_[cleaned_]->end()) {
      segments_[cleaned_].reset();
      is_cleaning_ = false;
      continue;
    }
    if (budget == 0) return Status::Ok();
    const uint64_t begin = clean_next_;
    DE_RETURN_IF_ERROR(CleanPart(kCleanedBytes));
    // A record may be greater than the part.
    if (is_cleaning_ && clean_next_ == begin) {
      DE_RETURN_IF_ERROR(CleanPart(kMaxRecordBytes + kBlockBytes));
    }
    budget -= std::min(budget, clean_next_ - begin);
  }
  return Status::Ok();
}

/// Writes the live rows of the next part of the cleaned segment again.
Status DiskRows::CleanPart(uint64_t most) {
  SegmentFile& segment = *segments_[cleaned_];
  const std::shared_ptr<const RowLayout> from = segment.layout;
  const uint64_t begin = RoundDown(clean_next_, kBlockBytes);
  const uint64_t bytes = std::min(segment.end() - begin, most);
  BufferLease buffer(*this);
  (*buffer).Reserve(bytes);
  BlockRead read{segment.descriptor(), begin, bytes, (*buffer).data(), 0};
  reader_.Read(&read, 1, nullptr);
  reads_.fetch_add(1, std::memory_order_relaxed);
  const auto damaged = [&] {
    segment.is_damaged = true;
    is_cleaning_ = false;
    return Status::Ok();
  };
  if (read.error != 0) return damaged();
  const bool has_texts = from->key_type() == KeyType::kString;
  RowBatch all;
  RowBatchBuilder builder(*layout_, &all);
  Converters converters(*layout_);
  std::vector<int64_t> places;
  uint64_t at = clean_next_ - begin;
  while (at + sizeof(RowRecord) <= bytes) {
    RowRecord record;
    std::memcpy(&record, read.to + at, sizeof(record));
    if (record.bytes == 0) {  // the rest of the block is empty
      at = RoundDown(at, kBlockBytes) + kBlockBytes;
      continue;
    }
    if (record.bytes > bytes - at) {
      if (begin + bytes == segment.end() || record.bytes > kMaxRecordBytes) return damaged();
      break;
    }
    DecodedRow row;
    if (!DecodeRow(read.to + at, bytes - at, *from, &row)) return damaged();
    DE_RETURN_IF_ERROR(converters.Convert(*from, row.row, builder.Add(row.word)));
    if (has_texts) builder.AddText(row.key);
    places.push_back(Place{cleaned_, begin + at, row.bytes}.Packed());
    at += row.bytes;
    if (at % kBlockBytes + sizeof(RowRecord) > kBlockBytes) at = RoundUp(at, kBlockBytes);
  }
  builder.Finish();
  std::vector<int64_t> newest(all.size());
  const auto found = std::make_unique<bool[]>(all.size());
  const auto data = reinterpret_cast<char*>(newest.data());
  DE_RETURN_IF_ERROR(index_->Find(KeysOf(all), {data, nullptr}, found.get(), nullptr));
  RowBatch live;
  RowBatchBuilder kept(*layout_, &live);
  const size_t stride = layout_->stride();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!found[i] || newest[i] != places[i]) continue;
    std::memcpy(kept.Add(all.words[i]), all.rows.data() + i * stride, stride);
    if (has_texts) kept.AddText(all.keys[i]);
  }
  kept.Finish();
  if (live.size() > 0) DE_RETURN_IF_ERROR(Write(live));
  clean_next_ = begin + at;
  return Status::Ok();
}

}  // namespace de::engine
