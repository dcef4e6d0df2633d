#include "de_core/cc/engine/runs/run_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

constexpr char kManifest[] = "MANIFEST";
constexpr char kLock[] = "LOCK";

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Returns the positions of keys in the order of their hashes.
std::vector<uint32_t> HashOrder(const uint64_t* words, size_t count,
                                const std::string_view* texts) {
  std::vector<uint32_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint32_t>(i);
  const auto before = [&](uint32_t a, uint32_t b) {
    const uint64_t left = Mix64(words[a]), right = Mix64(words[b]);
    if (left != right) return left < right;
    return texts != nullptr && texts[a] < texts[b];
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::sort(order.begin(), order.end(), before);
  }
  return order;
}

bool SameKey(const uint64_t* words, const std::string_view* texts, uint32_t a, uint32_t b) {
  return words[a] == words[b] && (texts == nullptr || texts[a] == texts[b]);
}

}  // namespace

Status RunStore::Open(RunStoreOptions options, std::unique_ptr<RunStore>* store) noexcept {
  return Guarded([&]() -> Status {
    std::unique_ptr<RunStore> opened(new RunStore(std::move(options)));
    DE_RETURN_IF_ERROR(opened->Load());
    if (opened->options_.background) {
      RunStore* const self = opened.get();
      self->work_ = true;
      self->thread_ = std::thread([self] { self->CompactInBackground(); });
    }
    *store = std::move(opened);
    return Status::Ok();
  });
}

RunStore::~RunStore() {
  {
    const std::lock_guard<std::mutex> hold(wake_lock_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (directory_lock_ >= 0) close(directory_lock_);
}

Status RunStore::Load() {
  const std::string lock = PathOf(kLock);
  directory_lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (directory_lock_ < 0) return FileError(lock, "create", errno);
  if (flock(directory_lock_, LOCK_EX | LOCK_NB) != 0) {
    return Status::FailedPrecondition("the directory " + options_.directory +
                                      " is used by another store: choose another directory");
  }
  std::string text;
  const Status read = ReadFile(PathOf(kManifest), &text);
  if (!read.ok() && read.code != Code::kNotFound) return read;
  if (read.ok()) {
    Manifest manifest;
    const Status decoded = DecodeManifest(text, &manifest);
    if (!decoded.ok()) {
      return Status::DataLoss("the file " + PathOf(kManifest) +
                              " cannot be used: " + decoded.message);
    }
    DE_RETURN_IF_ERROR(LoadRuns(manifest));
  }
  return RemoveStrays();
}

Status RunStore::LoadRuns(const Manifest& manifest) {
  RunVersion version;
  version.drops = manifest.drops;
  for (const ManifestRun& named : manifest.runs) {
    std::shared_ptr<RunFile> run;
    DE_RETURN_IF_ERROR(RunFile::Open(PathOf(RunFileName(named.number)), named.number,
                                     options_.direct, options_.filter_bits, &run));
    const uint64_t entries = run->entries();
    (named.is_last ? version.last : version.upper)
        .push_back(version.Ref(std::move(run), named.level, named.drops, entries));
  }
  next_number_ = manifest.next_number;
  version_ = std::make_shared<const RunVersion>(std::move(version));
  return Status::Ok();
}

/// Removes runs that the manifest does not name.
Status RunStore::RemoveStrays() {
  std::set<std::string> named;
  for (const std::vector<RunRef>* runs : {&version_->upper, &version_->last}) {
    for (const RunRef& run : *runs) named.insert(RunFileName(run.file->number()));
  }
  std::vector<std::string> names;
  DE_RETURN_IF_ERROR(ListFiles(options_.directory, &names));
  for (const std::string& name : names) {
    const bool stray = EndsWith(name, ".tmp") || (EndsWith(name, ".run") && named.count(name) == 0);
    if (stray) unlink(PathOf(name).c_str());
  }
  return Status::Ok();
}

Status RunStore::CheckLayout(const RowLayout& layout) const {
  if (layout.value_dtype() == DType::kString) {
    return Status::InvalidArgument(
        "rows on disk must have numbers as values: use a table in memory");
  }
  const Version version = State();
  if (version->runs() == 0) return Status::Ok();
  const RowLayout& other = (version->upper.empty() ? version->last : version->upper).front().layout;
  if (other.key_type() == layout.key_type() && other.value_dtype() == layout.value_dtype() &&
      other.dim() == layout.dim()) {
    return Status::Ok();
  }
  return Status::InvalidArgument("all rows in " + options_.directory +
                                 " must have the same key type, dtype and dim. Received: " +
                                 std::string(NameOf(layout.key_type())) + " keys, " +
                                 std::string(NameOf(layout.value_dtype())) +
                                 ", dim=" + std::to_string(layout.dim()));
}

Status RunStore::Append(const RowBatch& rows) noexcept {
  return Guarded([&]() -> Status {
    if (rows.size() == 0) return Status::Ok();
    DE_RETURN_IF_ERROR(CheckLayout(rows.layout));
    const bool strings = rows.layout.key_type() == KeyType::kString;
    const std::string_view* const texts = strings ? rows.keys.data() : nullptr;
    const std::vector<uint32_t> order = HashOrder(rows.words.data(), rows.size(), texts);
    const std::lock_guard<std::mutex> hold(write_lock_);
    const Version version = State();
    uint64_t replaced = 0;
    const uint64_t number = next_number_++;
    std::unique_ptr<RunWriter> writer;
    DE_RETURN_IF_ERROR(RunWriter::Create(PathOf(RunFileName(number)), number, rows.layout, 0,
                                         WriterOptions(), &writer));
    const size_t stride = rows.layout.stride();
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t at = order[i];
      if (i > 0 && SameKey(rows.words.data(), texts, order[i - 1], at)) {
        return Status::InvalidArgument("the keys of rows that are appended must not repeat");
      }
      DE_RETURN_IF_ERROR(writer->Add(rows.words[at], rows.rows.data() + at * stride,
                                     strings ? &texts[at] : nullptr));
      const uint64_t hash = Mix64(rows.words[at]);
      const RunRef* const last = version->LastOf(hash);
      if (last != nullptr && last->file->filter().MayContain(FilterHash(hash))) ++replaced;
    }
    std::shared_ptr<RunFile> run;
    DE_RETURN_IF_ERROR(writer->Finish(~uint64_t{0}, &run));
    return AddRun(std::move(run), version->drops.size(), replaced);
  });
}

Status RunStore::Erase(const Keys& keys, KeyType key_type) noexcept {
  return Guarded([&]() -> Status {
    const Version version = State();
    if (keys.size == 0 || version->runs() == 0) return Status::Ok();
    const bool strings = key_type == KeyType::kString;
    std::vector<uint64_t> words(keys.size);
    for (size_t i = 0; i < keys.size; ++i) {
      words[i] = strings ? HashBytes(keys.strings[i]) : static_cast<uint64_t>(keys.ints[i]);
    }
    const std::string_view* const texts = strings ? keys.strings : nullptr;
    const std::vector<uint32_t> order = HashOrder(words.data(), keys.size, texts);
    const RunRef& newest = (version->upper.empty() ? version->last : version->upper).front();
    const std::lock_guard<std::mutex> hold(write_lock_);
    const uint64_t number = next_number_++;
    std::unique_ptr<RunWriter> writer;
    DE_RETURN_IF_ERROR(RunWriter::Create(PathOf(RunFileName(number)), number, newest.file->layout(),
                                         0, WriterOptions(), &writer));
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t at = order[i];
      if (i > 0 && SameKey(words.data(), texts, order[i - 1], at)) continue;
      DE_RETURN_IF_ERROR(writer->Add(words[at], nullptr, strings ? &texts[at] : nullptr));
    }
    std::shared_ptr<RunFile> run;
    DE_RETURN_IF_ERROR(writer->Finish(~uint64_t{0}, &run));
    return AddRun(std::move(run), newest.drops, order.size());
  });
}

/// Makes a run the newest. Requires write_lock_.
Status RunStore::AddRun(std::shared_ptr<RunFile> run, size_t drops, uint64_t replaced) {
  const uint64_t bytes = run->file_bytes();
  RunVersion next = *State();
  std::shared_ptr<RunFile> added = run;
  Status status = Guarded([&]() -> Status {
    next.upper.insert(next.upper.begin(), next.Ref(std::move(run), 0, drops, replaced));
    return Install(std::move(next));
  });
  if (!status.ok()) {
    added->MakeObsolete();
    return status;
  }
  appended_bytes_ += bytes;
  {
    const std::lock_guard<std::mutex> hold(wake_lock_);
    work_ = true;
  }
  wake_.notify_all();
  return Status::Ok();
}

Status RunStore::Install(RunVersion next) {
  const std::string text = EncodeManifest(next, next_number_);
  Version shared = std::make_shared<const RunVersion>(std::move(next));
  if (options_.sync) DE_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  DE_RETURN_IF_ERROR(ReplaceFile(PathOf(kManifest), text, options_.sync));
  // The manifest is replaced, so an error here must not undo the change.
  if (options_.sync) (void)SyncDirectory(options_.directory);
  const std::lock_guard<std::mutex> hold(version_lock_);
  version_.swap(shared);
  return Status::Ok();
}

Status RunStore::Clear() noexcept {
  return Guarded([&]() -> Status {
    const std::lock_guard<std::mutex> hold(write_lock_);
    const Version before = State();
    RunVersion next;
    next.drops = before->drops;
    DE_RETURN_IF_ERROR(Install(std::move(next)));
    ++clears_;
    for (const std::vector<RunRef>* runs : {&before->upper, &before->last}) {
      for (const RunRef& run : *runs) run.file->MakeObsolete();
    }
    return Status::Ok();
  });
}

Status RunStore::DropSlots(const std::string& owner) noexcept {
  return Guarded([&]() -> Status {
    const std::lock_guard<std::mutex> hold(write_lock_);
    const Version before = State();
    if (before->runs() == 0) return Status::Ok();
    RunVersion next = *before;
    next.drops.push_back(owner);
    for (std::vector<RunRef>* runs : {&next.upper, &next.last}) {
      for (RunRef& run : *runs) run = next.Ref(run.file, run.level, run.drops, run.replaced);
    }
    DE_RETURN_IF_ERROR(Install(std::move(next)));
    ++clears_;
    return Status::Ok();
  });
}

RunStoreStats RunStore::Stats() const {
  RunStoreStats stats;
  const Version version = State();
  for (const std::vector<RunRef>* runs : {&version->upper, &version->last}) {
    for (const RunRef& run : *runs) {
      ++stats.runs;
      stats.entries += run.file->entries();
      stats.disk_bytes += run.file->file_bytes();
      stats.memory_bytes += run.file->memory_bytes();
    }
  }
  stats.reads = reads_;
  stats.read_bytes = read_bytes_;
  stats.false_positives = false_positives_;
  stats.appended_bytes = appended_bytes_;
  stats.compacted_bytes = compacted_bytes_;
  stats.compactions = compactions_;
  stats.io_uring = used_io_uring_;
  const std::lock_guard<std::mutex> hold(wake_lock_);
  stats.error = error_;
  return stats;
}

}  // namespace de::engine
