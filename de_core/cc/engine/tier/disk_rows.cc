#include "de_core/cc/engine/tier/disk_rows.h"

#include <map>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/tier/disk_places.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr size_t kMostWritten = size_t{1} << 20;  // bytes per write
constexpr size_t kSpareFiles = 1;
// An owner of slots that no table has.
constexpr char kDropped[] = "\x01 dropped";

}  // namespace

Status DiskRows::Create(const DiskOptions& options, KeyType key_type,
                        std::unique_ptr<DiskRows>* rows) {
  return Guarded([&]() -> Status {
    std::shared_ptr<Disk> disk;
    DE_RETURN_IF_ERROR(FolderDisk::Open(options.directory, options.depth, options.use_ring, &disk));
    return Create(options, std::move(disk), key_type, rows);
  });
}

Status DiskRows::Create(const DiskOptions& options, std::shared_ptr<Disk> disk, KeyType key_type,
                        std::unique_ptr<DiskRows>* rows) {
  return Guarded([&]() -> Status {
    if (options.segment_bytes < kBlockBytes || options.segment_bytes > Place::kMostOffset / 2) {
      return Status::InvalidArgument("segment_bytes must be 4096 to 2^30. Received: " +
                                     std::to_string(options.segment_bytes));
    }
    std::unique_ptr<DiskIndex> index;
    DE_RETURN_IF_ERROR(DiskIndex::Create(key_type, &index));
    std::unique_ptr<DiskRows> made(new DiskRows(options, std::move(disk), std::move(index)));
    made->segments_.reserve(Place::kMostSegments);  // the system backs memory at the first use
    *rows = std::move(made);
    return Status::Ok();
  });
}

DiskRows::DiskRows(DiskOptions options, std::shared_ptr<Disk> disk,
                   std::unique_ptr<DiskIndex> index)
    : options_(std::move(options)),
      disk_(std::move(disk)),
      index_(std::move(index)),
      writer_(std::make_unique<SegmentWriter>(options_.own_thread)) {}

DiskRows::~DiskRows() {
  // The writer's thread runs in the parent only. To destroy what it waits for would wait for it.
  if (fork_.forked()) (void)writer_.release();
}

TierStats DiskRows::Stats() const {
  TierStats stats;
  stats.disk_bytes =
      disk_bytes_.load(std::memory_order_relaxed) + spare_bytes_.load(std::memory_order_relaxed);
  stats.reads = reads_.load(std::memory_order_relaxed);
  stats.filter_bytes = index_->bytes();
  return stats;
}

/// Makes `active_` a segment for rows of `layout`, which is not full.
Status DiskRows::PrepareSegment(const RowLayout& layout) {
  const SegmentFile* const active = active_ < segments_.size() ? segments_[active_].get() : nullptr;
  const bool fits = layout_ != nullptr && layout_->IsLike(layout);
  if (fits && active != nullptr && active->layout == layout_ &&
      reserved_ < options_.segment_bytes) {
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
  std::unique_ptr<SegmentFile> made = TakeSpare();
  if (made == nullptr) {
    std::string path = options_.directory + "/" + kRowFiles + std::to_string(next_name_);
    DE_RETURN_IF_ERROR(SegmentFile::Create(disk_, std::move(path), layout_, &made));
    ++next_name_;
  }
  segments_[number] = std::move(made);
  active_ = number;
  reserved_ = 0;
  return Status::Ok();
}

void DiskRows::Forget(const Places& places) noexcept {
  for (size_t i = 0; i < places.packed.size(); ++i) {
    if (!places.found[i]) continue;
    const Place place = Place::Of(places.packed[i]);
    segments_[place.segment]->live_bytes -= place.bytes;
    live_bytes_ -= place.bytes;
  }
}

/// Returns an empty file for rows of `layout_`, if a spare file has no reader any more.
std::unique_ptr<SegmentFile> DiskRows::TakeSpare() {
  for (auto at = spare_.begin(); at != spare_.end(); ++at) {
    if (at->use_count() > 1) continue;
    std::shared_ptr<SegmentFile>(*at).reset();  // the count's release comes after the last reader's
    std::unique_ptr<SegmentFile> made = SegmentFile::Reuse(at->get(), layout_);
    spare_bytes_.fetch_sub((*at)->end(), std::memory_order_relaxed);
    spare_.erase(at);
    return made;
  }
  return nullptr;
}

/// Removes spare files except the last `kept`. The first ones may have a reader for long.
void DiskRows::DropSpares(size_t kept) {
  while (spare_.size() > kept) {
    spare_bytes_.fetch_sub(spare_.front()->end(), std::memory_order_relaxed);
    spare_.erase(spare_.begin());
  }
}

/// Waits until all rows are written. Returns `status`, or why they were not written.
Status DiskRows::FinishWrites(Status status) {
  Status written = writer_->Wait();
  if (written.ok()) return status;
  // A part of a failed append may be in its file. So no other rows are written to the same places.
  uint64_t bytes = 0;
  for (uint32_t number = 0; number < segments_.size(); ++number) {
    if (segments_[number] == nullptr) continue;
    bytes += segments_[number]->end();
    const bool is_cleaned = cleaning_.is_active && cleaning_.segment == number;
    if (segments_[number]->end() == 0 && !is_cleaned) segments_[number].reset();
  }
  disk_bytes_.store(bytes, std::memory_order_relaxed);
  reserved_ = options_.segment_bytes;
  return status.ok() ? written : status;
}

/// Appends rows to the files. `places` receives where they are, once `writer_` has finished.
Status DiskRows::WriteRows(const RowBatch& rows, std::vector<int64_t>* places) {
  const size_t count = rows.size();
  places->resize(count);
  for (size_t row = 0; row < count; ++row) {
    if (RecordBytes(rows, row) > kMaxRecordBytes) {
      return Status::InvalidArgument(
          "a row with its slots and key must have at most 4 MiB to be moved to a disk. Received: " +
          std::to_string(RecordBytes(rows, row)) + " bytes");
    }
  }
  for (size_t first = 0; first < count;) {
    DE_RETURN_IF_ERROR(PrepareSegment(rows.layout));
    size_t bytes = 0;
    uint64_t begin = reserved_;
    const uint64_t mark = segments_[active_]->MarkOf(begin);
    const size_t wrote = EncodeRows(rows, first, kMostWritten, mark, writer_->Next(), &bytes);
    writer_->Append(segments_[active_], bytes);
    reserved_ += bytes;
    written_bytes_ += bytes;
    disk_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    for (size_t i = 0; i < wrote; ++i) {
      const size_t size = RecordBytes(rows, first + i);
      (*places)[first + i] = Place{active_, begin, size}.Packed();
      begin += size;
    }
    first += wrote;
  }
  return Status::Ok();
}

Status DiskRows::Stage(const RowBatch& rows) {
  return Guarded([&]() -> Status {
    DropSpares(kSpareFiles);
    const uint64_t before = written_bytes_;
    StagedRows& staged = staged_.emplace_back();
    staged.rows = &rows;
    const Status written = FinishWrites(Guarded([&] { return WriteRows(rows, &staged.places); }));
    if (!written.ok()) staged_.pop_back();
    DE_RETURN_IF_ERROR(written);
    // The rows are written. If cleaning fails, a later call tries again.
    const size_t own = staged_.size();
    const Cleaning cleaning = cleaning_;
    (void)Guarded([&] { return StageCleaning(written_bytes_ - before); });
    if (!FinishWrites(Status::Ok()).ok()) {
      while (staged_.size() > own) staged_.pop_back();
      cleaning_ = cleaning;
    }
    return Status::Ok();
  });
}

Status DiskRows::CommitRows(const Keys& keys, const std::vector<int64_t>& places) {
  Places old;
  DE_RETURN_IF_ERROR(index_->Find(keys, nullptr, &old));
  // Counts first: if memory is exhausted, a segment may count too many bytes, but never too few.
  for (const int64_t packed : places) {
    const Place place = Place::Of(packed);
    segments_[place.segment]->live_bytes += place.bytes;
    live_bytes_ += place.bytes;
  }
  DE_RETURN_IF_ERROR(index_->Assign(keys, places));
  Forget(old);
  return Status::Ok();
}

Status DiskRows::Commit() {
  return Guarded([&]() -> Status {
    for (const StagedRows& staged : staged_) {
      DE_RETURN_IF_ERROR(staged.from.empty() ? CommitRows(KeysOf(*staged.rows), staged.places)
                                             : CommitCleaned(staged));
    }
    staged_.clear();
    cleaning_.next = cleaning_.staged;
    return EndCleaning();
  });
}

void DiskRows::Discard() noexcept {
  staged_.clear();
  cleaning_.staged = cleaning_.next;
}

Status DiskRows::Erase(const Keys& keys) {
  return Guarded([&]() -> Status {
    Places places;
    DE_RETURN_IF_ERROR(index_->Find(keys, nullptr, &places));
    DE_RETURN_IF_ERROR(index_->Erase(keys));
    Forget(places);
    return Status::Ok();
  });
}

Status DiskRows::Clear(const std::function<Status()>& others) {
  return Guarded([&]() -> Status {
    std::unique_ptr<DiskIndex> empty;
    DE_RETURN_IF_ERROR(DiskIndex::Create(index_->key_type(), &empty));
    DE_RETURN_IF_ERROR(others());
    index_ = std::move(empty);
    staged_.clear();
    segments_.clear();
    DropSpares(0);
    live_bytes_ = 0;
    disk_bytes_ = 0;
    layout_.reset();
    active_ = 0;
    cleaning_ = Cleaning();
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
    // The bytes stay in the rows, under a name that no table uses.
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

}  // namespace de::engine
