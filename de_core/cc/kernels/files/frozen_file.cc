#include "de_core/cc/kernels/files/frozen_file.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "de_core/cc/engine/base/container_limits.h"
#include "de_core/cc/engine/memory/page_memory.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/kernels/files/chain_file.h"
#include "de_core/cc/kernels/files/env_stream.h"
#include "tensorflow/core/platform/logging.h"

namespace de::kernels {
namespace {

// With fewer keys per thread, waking a thread takes longer than it saves.
constexpr size_t kKeysPerFind = 4096;

// Keys whose pages are requested together. More would be evicted before they are read.
constexpr size_t kKeysPerReadAhead = 4096;
// Reading ahead pays if one of so many keys reads the disk.
constexpr uint64_t kKeysPerDiskRead = 64;

// Behind bytes that are read in sequence, the system reads ahead up to the disk's read_ahead_kb, in
// small pages. Distance at which huge pages are read before it: more than read_ahead_kb usually is.
constexpr uint64_t kBytesAheadOfCheck = uint64_t{16} << 20;

// All files that this process maps to serve them.
std::atomic<uint64_t> total_mapped_bytes{0};

uint64_t MemoryBytes() {
  const auto bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * ::getpagesize();
  return static_cast<uint64_t>(std::min(bytes, engine::MemoryLimit()));
}

/// Returns how many pages the calling thread has read from disks so far.
uint64_t PagesRead() {
#ifdef RUSAGE_THREAD
  rusage usage{};
  (void)::getrusage(RUSAGE_THREAD, &usage);
  // Linux counts blocks of 512 bytes. Some systems count only page faults.
  return static_cast<uint64_t>(std::max(usage.ru_majflt, usage.ru_inblock / 8));
#else
  return 0;
#endif
}

/// Requests huge pages. On file systems with large folios, the rest of the file is then read in
/// pieces of 2 MiB, and a lookup needs one TLB entry instead of two. It is a hint: failures are
/// harmless.
void AskForHugePages(tensorflow::ReadOnlyMemoryRegion* region) {
#ifdef MADV_HUGEPAGE
  (void)::madvise(const_cast<void*>(region->data()), region->length(), MADV_HUGEPAGE);
#endif
}

/// Makes a page fault read one page. Otherwise the system reads up to the disk's read_ahead_kb,
/// often MiB, and evicts as many other rows from memory.
void AskForSinglePages(tensorflow::ReadOnlyMemoryRegion* region) {
#ifdef MADV_RANDOM
  (void)::madvise(const_cast<void*>(region->data()), region->length(), MADV_RANDOM);
#endif
}

/// Reads bytes `begin` to `end` of a mapped file into memory. It is a hint: failures are harmless.
void ReadNow(tensorflow::ReadOnlyMemoryRegion& region, uint64_t begin, uint64_t end) {
#ifdef __linux__
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, missing in older headers
  begin -= begin % ::getpagesize();
  (void)::madvise(const_cast<char*>(static_cast<const char*>(region.data())) + begin, end - begin,
                  kPopulateRead);
#endif
}

/// Returns whether files are verified before they answer.
absl::Status VerifiesFirst(bool* is_first) {
  const char* const given = std::getenv("DE_VERIFY");
  const absl::string_view verify = given == nullptr ? "" : given;
  *is_first = verify != "background";
  if (!*is_first || verify.empty() || verify == "full") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("The environment variable DE_VERIFY must be \"full\" or \"background\". "
                   "Received: DE_VERIFY=\"",
                   verify, "\". Unset it to verify files before they answer."));
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

absl::Status FrozenFile::Open(tensorflow::Env* env, const std::vector<std::string>& paths,
                              engine::Executor* executor, std::shared_ptr<const FrozenFile>* file) {
  bool is_first = true;
  TF_RETURN_IF_ERROR(VerifiesFirst(&is_first));
  auto opened = std::make_shared<FrozenFile>();
  std::vector<ServedFile> served;
  for (const std::string& path : paths) TF_RETURN_IF_ERROR(AppendServedFiles(env, path, &served));
  TF_RETURN_IF_ERROR(opened->Map(env, served));
  TF_RETURN_IF_ERROR(opened->OpenTable(served));
  if (is_first) TF_RETURN_IF_ERROR(opened->Verify(executor));
  TF_RETURN_IF_ERROR(opened->CheckLength());
  CheckInBackground(opened);
  *file = std::move(opened);
  return absl::OkStatus();
}

absl::Status FrozenFile::Map(tensorflow::Env* env, const std::vector<ServedFile>& served) {
  for (const ServedFile& each : served) {
    const std::string& path = paths_.emplace_back(each.path);
    std::unique_ptr<tensorflow::ReadOnlyMemoryRegion>& region = regions_.emplace_back();
    const std::optional<FileIdentity> before = VerifiedFiles::IdentityOf(path);
    const absl::Status mapped = env->NewReadOnlyMemoryRegionFromFile(path, &region);
    if (!mapped.ok()) {
      return absl::Status(mapped.code(),
                          absl::StrCat(path, ": cannot be mapped: ", mapped.message()));
    }
    const bool same = before == VerifiedFiles::IdentityOf(path);
    identities_.push_back(same ? before : std::nullopt);
    TF_RETURN_IF_ERROR(
        InFile(path, engine::MappedRange::Watch(static_cast<const char*>(region->data()),
                                                region->length(), &ranges_.emplace_back())));
  }
  return absl::OkStatus();
}

absl::Status FrozenFile::OpenTable(const std::vector<ServedFile>& served) {
  Advise();  // before the first read, which would read around it otherwise
  std::vector<std::unique_ptr<engine::SnapshotReader>> files;
  for (size_t i = 0; i < served.size(); ++i) {
    const auto& [path, id] = served[i];
    std::unique_ptr<engine::SnapshotReader>& reader = files.emplace_back();
    TF_RETURN_IF_ERROR(
        InFile(path, engine::SnapshotReader::Open(static_cast<const char*>(regions_[i]->data()),
                                                  regions_[i]->length(), &reader)));
    if (id.has_value() && reader->header().id != *id) {
      return absl::DataLossError(
          absl::StrCat(path, ": the file must have the id that the chain file names, ",
                       engine::HexOf(*id), ". Received: id=", engine::HexOf(reader->header().id)));
    }
  }
  return InFile(absl::StrJoin(paths_, ", "), engine::FrozenChain::Open(std::move(files), &table_));
}

absl::Status FrozenFile::Verify(engine::Executor* executor) {
  for (size_t number = 0; number <= table_->deltas(); ++number) {
    const std::optional<FileIdentity>& identity = identities_[RegionOf(number)];
    if (!identity.has_value() || !VerifiedFiles::Has(*identity)) {
      TF_RETURN_IF_ERROR(InFile(path(number), CheckNow(number, executor)));
      read_bytes_ += reader(number).file_bytes();
    }
    if (identity.has_value()) verified_.Add(*identity);
  }
  FoundIntact();
  return absl::OkStatus();
}

/// Returns DataLoss if a file was cut short. Call it after the last read of the mappings.
absl::Status FrozenFile::CheckLength() const {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i]->intact()) continue;
    FoundDamaged(paths_[i], engine::Status::DataLoss(
                                "was cut short or overwritten while this process maps it"));
  }
  return damage();
}

FrozenFile::~FrozenFile() { total_mapped_bytes -= mapped_bytes_; }

/// Tells the system how the files will be read: from memory, or, if they or all served files
/// together are too large for it, from the disk.
void FrozenFile::Advise() {
  for (const auto& region : regions_) mapped_bytes_ += region->length();
  const uint64_t total = total_mapped_bytes += mapped_bytes_;
  const uint64_t memory = MemoryBytes();
  exceeds_memory_ = mapped_bytes_ > memory / 4 || total > memory / 2;
  for (size_t i = 0; i < regions_.size(); ++i) {
    tensorflow::ReadOnlyMemoryRegion* const region = regions_[i].get();
    if (exceeds_memory_) {
      AskForSinglePages(region);
    } else {
      AskForHugePages(region);
    }
    // Deltas bypass the page cache when they are written. Without this, the first lookups in a new
    // version would wait for the disk.
    if (i > 0 && region->length() <= memory / 4) ReadNow(*region, 0, region->length());
  }
}

void FrozenFile::ReadAhead(size_t file, uint64_t begin, uint64_t end) const {
  if (exceeds_memory_) return;
  tensorflow::ReadOnlyMemoryRegion& region = *regions_[RegionOf(file)];
  end = std::min(end + kBytesAheadOfCheck, region.length());
  constexpr uint64_t kHugePage = engine::PageMemory::kHugePage;
  for (begin -= begin % kHugePage; begin < end; begin += kHugePage) {
    ReadNow(region, begin, begin + 1);
  }
}

std::vector<std::string> FrozenFile::names() const {
  std::vector<std::string> names;
  for (const std::string& path : paths_) names.push_back(BaseName(path));
  return names;
}

absl::Status FrozenFile::Answer(engine::Status status) const {
  if (status.ok() || status.code == engine::Code::kNotFound) return ToAbsl(std::move(status));
  return InFile(absl::StrJoin(names(), ", "), std::move(status));
}

void FrozenFile::Checked(uint64_t bytes) noexcept {
  if (health() == Health::kUnchecked) checked_bytes_ += bytes;
}

void FrozenFile::FoundIntact() noexcept {
  Health unchecked = Health::kUnchecked;
  checked_bytes_ = file_bytes();
  health_.compare_exchange_strong(unchecked, Health::kIntact);
}

void FrozenFile::FoundDamaged(const std::string& path, const engine::Status& why) const noexcept {
  const std::lock_guard<std::mutex> guard(damage_mutex_);
  if (health() == Health::kDamaged) return;
  verified_.Distrust();
  // The thread that checks files calls this and handles no exceptions. If there is no memory for
  // the text, it stays empty.
  (void)GuardedKernel([&] {
    const std::string name = BaseName(path);
    damage_ = absl::StrCat(name, ": ", absl::StrReplaceAll(why.message, {{path, name}}),
                           ". This version is refused: serve another one, or write it again");
    LOG(ERROR) << path << " is damaged. " << damage_;
    return absl::OkStatus();
  });
  health_.store(Health::kDamaged, std::memory_order_release);
}

absl::Status FrozenFile::damage() const {
  return health() == Health::kDamaged ? absl::DataLossError(damage_) : absl::OkStatus();
}

absl::Status FrozenFile::Find(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                              engine::Executor* executor) const {
  TF_RETURN_IF_ERROR(damage());
  absl::Status status = FindInParts(keys, out, found, executor);
  TF_RETURN_IF_ERROR(CheckLength());
  return status;
}

/// Looks up keys, many of them on all threads.
absl::Status FrozenFile::FindInParts(const engine::Keys& keys, engine::ValuesOut out, bool* found,
                                     engine::Executor* executor) const {
  const auto range = [&](size_t begin, size_t end) {
    return exceeds_memory_ ? FindRangeOnDisk(keys, begin, end, out, found)
                           : FindRange(keys, begin, end, out, found);
  };
  const size_t threads = executor == nullptr ? 1 : executor->threads();
  const size_t tasks = std::min(threads, keys.size / kKeysPerFind);
  if (tasks <= 1) return Answer(range(0, keys.size));
  std::vector<engine::Status> parts(tasks);
  executor->Run(tasks, [&](size_t task) {
    parts[task] = engine::Guarded(
        [&] { return range(keys.size * task / tasks, keys.size * (task + 1) / tasks); });
  });
  for (engine::Status& part :
       parts) {  // report the first one, so that the same batch always names the same key
    if (!part.ok()) return Answer(std::move(part));
  }
  return absl::OkStatus();
}

/// Looks up keys `begin` to `end` - 1 of a batch.
engine::Status FrozenFile::FindRange(const engine::Keys& keys, size_t begin, size_t end,
                                     engine::ValuesOut out, bool* found) const {
  const size_t row_bytes = table_->value_bytes();
  const size_t dim = table_->dim();
  const engine::Keys part = keys.Slice(begin, end - begin);
  bool* part_found = found == nullptr ? nullptr : found + begin;
  if (out.strings == nullptr) {
    const size_t stride = out.StrideOf(row_bytes);
    char* const data = out.data == nullptr ? nullptr : out.data + begin * stride;
    if (stride == row_bytes || data == nullptr) return table_->Find(part, {data}, part_found);
    // A file's rows are read packed.
    std::vector<char> rows(part.size * row_bytes);
    DE_RETURN_IF_ERROR(table_->Find(part, {rows.data()}, part_found));
    for (size_t i = 0; i < part.size; ++i) {
      engine::CopyBytes(data + i * stride, rows.data() + i * row_bytes, row_bytes);
    }
    return engine::Status::Ok();
  }
  std::vector<std::string_view> views(part.size * dim);
  DE_RETURN_IF_ERROR(table_->Find(part, {nullptr, views.data()}, part_found));
  for (size_t i = 0; i < views.size(); ++i) out.strings->Set(begin * dim + i, views[i]);
  return engine::Status::Ok();
}

/// Like FindRange, for files that may not stay in memory. If the lookups before read the disk,
/// first requests all pages that the keys need.
engine::Status FrozenFile::FindRangeOnDisk(const engine::Keys& keys, size_t begin, size_t end,
                                           engine::ValuesOut out, bool* found) const {
  for (; begin < end; begin += kKeysPerReadAhead) {
    const size_t count = std::min(kKeysPerReadAhead, end - begin);
    const uint64_t before = PagesRead();
    if (reads_disk_.load(std::memory_order_relaxed) && count > 1) {
      (void)table_->ReadAhead(keys.Slice(begin, count));  // without memory, Find reads page by page
    }
    DE_RETURN_IF_ERROR(FindRange(keys, begin, begin + count, out, found));
    reads_disk_.store((PagesRead() - before) * kKeysPerDiskRead >= count,
                      std::memory_order_relaxed);
  }
  return engine::Status::Ok();
}

absl::Status FrozenFile::Rows(int64_t* rows) const {
  uint64_t counted = 0;
  absl::Status status = Answer(table_->Size(&counted));
  TF_RETURN_IF_ERROR(CheckLength());
  TF_RETURN_IF_ERROR(status);
  *rows = static_cast<int64_t>(counted);
  return absl::OkStatus();
}

}  // namespace de::kernels
