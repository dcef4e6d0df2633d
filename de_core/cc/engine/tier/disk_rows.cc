#include "de_core/cc/engine/tier/disk_rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/tier/disk_places.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr size_t kMostWritten = size_t{1} << 20;  // bytes per write
constexpr size_t kSpareFiles = 1;
constexpr char kPrefix[] = "rows-";
// An owner of slots that no table has.
constexpr char kDropped[] = "\x01 dropped";

/// True if the rows of both layouts have the same bytes.
bool AreAlike(const RowLayout& a, const RowLayout& b) {
  const auto same = [](const RowSlot& x, const RowSlot& y) {
    return x.owner == y.owner && x.offset == y.offset && x.spec.name == y.spec.name &&
           x.spec.width == y.spec.width && x.spec.dtype == y.spec.dtype;
  };
  return a.stride() == b.stride() &&
         std::equal(a.slots().begin(), a.slots().end(), b.slots().begin(), b.slots().end(), same);
}

// The standard library's functions for folders need a newer libstdc++ than TensorFlow's wheels do.

/// Creates a folder and its parents. Returns 0 or the number of the error.
int MakeFolder(const std::string& path) {
  int error = 0;
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    error = mkdir(path.substr(0, end).c_str(), 0777) == 0 || errno == EEXIST ? 0 : errno;
  }
  return error;
}

/// Removes the files of rows in a folder. Returns 0 or the number of the error.
int RemoveFiles(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return errno;
  int error = 0;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(opened.get());
    if (entry == nullptr) return errno != 0 ? errno : error;
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) != 0) continue;
    if (unlink((folder + "/" + name).c_str()) != 0) error = errno;
  }
}

}  // namespace

Status DiskRows::Create(const DiskOptions& options, KeyType key_type,
                        std::unique_ptr<ColdRows>* rows) {
  return Guarded([&]() -> Status {
    if (options.segment_bytes < kBlockBytes || options.segment_bytes > Place::kMostOffset / 2) {
      return Status::InvalidArgument("segment_bytes must be 4096 to 2^30. Received: " +
                                     std::to_string(options.segment_bytes));
    }
    const auto failed = [&](int error) {
      return Status::InvalidArgument(
          "the directory of a tier must be a directory that this process can write to. Received: " +
          options.directory + ": " + std::strerror(error));
    };
    const int not_made = MakeFolder(options.directory);
    if (not_made != 0) return failed(not_made);
    const std::string path = options.directory + "/lock";
    const int lock_file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_file < 0) return failed(errno);
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
    made->segments_.reserve(Place::kMostSegments);  // the system backs memory at the first use
    const int not_removed = RemoveFiles(options.directory);
    return not_removed == 0 ? Status::Ok() : failed(not_removed);
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

TierStats DiskRows::Stats() const {
  const TableStats index = index_->Stats();
  TierStats stats;
  stats.disk_bytes =
      disk_bytes_.load(std::memory_order_relaxed) + spare_bytes_.load(std::memory_order_relaxed);
  stats.reads = reads_.load(std::memory_order_relaxed);
  stats.filter_bytes = index.index_bytes + index.row_bytes + index.string_bytes + index.free_bytes;
  return stats;
}

/// Makes `active_` a segment for rows of `layout`, which is not full.
Status DiskRows::PrepareSegment(const RowLayout& layout) {
  const SegmentFile* const active = active_ < segments_.size() ? segments_[active_].get() : nullptr;
  const bool fits = layout_ != nullptr && AreAlike(*layout_, layout);
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
    const std::string name = kPrefix + std::to_string(next_name_);
    DE_RETURN_IF_ERROR(SegmentFile::Create(options_.directory + "/" + name, layout_, &made));
    ++next_name_;
  }
  segments_[number] = std::move(made);
  active_ = number;
  reserved_ = 0;
  return Status::Ok();
}

Status DiskRows::FindPlaces(const Keys& keys, Executor* executor, Places* places) const {
  places->packed.resize(keys.size);
  places->found = std::make_unique<bool[]>(keys.size);
  return index_->Find(keys, {reinterpret_cast<char*>(places->packed.data()), nullptr},
                      places->found.get(), executor);
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
  Status written = writer_.Wait();
  if (written.ok()) return status;
  uint64_t bytes = 0;  // without the appends that failed
  for (const auto& segment : segments_) bytes += segment == nullptr ? 0 : segment->end();
  disk_bytes_.store(bytes, std::memory_order_relaxed);
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
    const size_t wrote = EncodeRows(rows, first, kMostWritten, writer_.Next(), &bytes);
    uint64_t begin = reserved_;
    writer_.Append(segments_[active_], bytes);
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
    reserved_ = active_ < segments_.size() && segments_[active_] ? segments_[active_]->end() : 0;
    DE_RETURN_IF_ERROR(FinishWrites(Guarded([&] { return WriteRows(rows, &staged.places); })));
    // The rows are written. If cleaning fails, a later call tries again.
    const size_t own = staged_.size();
    const uint64_t cleaned = clean_staged_;
    (void)Guarded([&] { return StageCleaning(written_bytes_ - before); });
    if (!FinishWrites(Status::Ok()).ok()) {
      while (staged_.size() > own) staged_.pop_back();
      clean_staged_ = cleaned;
    }
    return Status::Ok();
  });
}

Status DiskRows::CommitRows(const Keys& keys, const std::vector<int64_t>& places) {
  Places old;
  DE_RETURN_IF_ERROR(FindPlaces(keys, nullptr, &old));
  // Counts first: if memory is exhausted, a segment may count too many bytes, but never too few.
  for (const int64_t packed : places) {
    const Place place = Place::Of(packed);
    segments_[place.segment]->live_bytes += place.bytes;
    live_bytes_ += place.bytes;
  }
  DE_RETURN_IF_ERROR(index_->InsertOrAssign(
      keys, {reinterpret_cast<const char*>(places.data()), nullptr}, nullptr));
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
    clean_next_ = clean_staged_;
    while (is_cleaning_ || ChooseCleaned()) {
      const SegmentFile& segment = *segments_[cleaned_];
      if (clean_next_ < segment.end() && segment.live_bytes > 0) break;
      RemoveSegment(cleaned_);
      is_cleaning_ = false;
    }
    return Status::Ok();
  });
}

void DiskRows::Discard() noexcept {
  staged_.clear();
  clean_staged_ = clean_next_;
}

Status DiskRows::Erase(const Keys& keys) {
  return Guarded([&]() -> Status {
    Places places;
    DE_RETURN_IF_ERROR(FindPlaces(keys, nullptr, &places));
    DE_RETURN_IF_ERROR(index_->Erase(keys, nullptr));
    Forget(places);
    return Status::Ok();
  });
}

Status DiskRows::Clear() {
  return Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(index_->Clear());
    staged_.clear();
    segments_.clear();
    DropSpares(0);
    live_bytes_ = 0;
    disk_bytes_ = 0;
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
