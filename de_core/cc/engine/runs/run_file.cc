#include "de_core/cc/engine/runs/run_file.h"

#include <unistd.h>

#include <algorithm>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::engine {
namespace {

constexpr size_t kOpenWindow = size_t{1} << 20;

/// Reads the directory of a run.
Status ReadDirectory(const LocalFile& file, RowLayout* layout, RunIndex* index) {
  std::unique_ptr<SnapshotReader> reader;
  DE_RETURN_IF_ERROR(SnapshotReader::Open(&file, SnapshotVerify::kHeader, &reader));
  const std::vector<SectionRecord>& sections = reader->sections();
  if (sections.empty()) return Status::DataLoss("a run must have rows");
  *layout = reader->header().layout;
  index->begins.reserve(sections.size());
  index->offsets.reserve(sections.size() + 1);
  for (const SectionRecord& section : sections) {
    if (section.offset / 64 > 0xffffffffU) return Status::DataLoss("a run must be below 256 GiB");
    index->begins.push_back(section.hash_begin);
    index->offsets.push_back(static_cast<uint32_t>(section.offset / 64));
  }
  const SectionRecord& last = sections.back();
  const uint64_t end = last.offset + ShapeOf(last, layout->stride(), layout->key_type()).bytes;
  if (end / 64 > 0xffffffffU) return Status::DataLoss("a run must be below 256 GiB");
  index->offsets.push_back(static_cast<uint32_t>(end / 64));
  index->hash_last = last.hash_last;
  index->rows = reader->rows();
  index->tombstones = reader->tombstones();
  return Status::Ok();
}

/// Checks all blocks of a run and adds its keys to the filter.
Status ReadBlocks(const RunFile& run, RunFilter* filter) {
  BlockStream stream(&run, 0, kOpenWindow);
  BlockView view;
  std::vector<std::pair<uint64_t, uint32_t>> order;
  std::vector<uint64_t> words;
  for (;;) {
    bool done = false;
    DE_RETURN_IF_ERROR(stream.Next(&view, &done));
    if (done) return Status::Ok();
    const Status listed = view.List(&order, &words);
    if (!listed.ok()) return run.Corrupt(listed.message);
    for (const auto& [hash, entry] : order) filter->Add(FilterHash(hash));
  }
}

}  // namespace

RunFile::~RunFile() {
  if (obsolete_.load(std::memory_order_relaxed)) unlink(path().c_str());
}

Status RunFile::Open(const std::string& path, uint64_t number, bool direct, uint32_t filter_bits,
                     std::shared_ptr<RunFile>* run) {
  std::unique_ptr<LocalFile> file;
  DE_RETURN_IF_ERROR(LocalFile::Open(path, /*direct=*/false, &file));
  RowLayout layout(KeyType::kInt64, DType::kFloat32, 1);
  RunIndex index;
  Status status = ReadDirectory(*file, &layout, &index);
  if (!status.ok()) {
    status.message = "the file " + path + " cannot be used: " + status.message;
    return status;
  }
  DE_RETURN_IF_ERROR(LocalFile::Open(path, direct, &file));
  RunFilter filter(index.rows + index.tombstones, filter_bits);
  const RunFile opened(std::move(file), number, layout, index);
  DE_RETURN_IF_ERROR(ReadBlocks(opened, &filter));
  index.filter = std::move(filter);
  DE_RETURN_IF_ERROR(LocalFile::Open(path, direct, &file));
  *run = std::make_shared<RunFile>(std::move(file), number, std::move(layout), std::move(index));
  return Status::Ok();
}

size_t RunFile::BlockOf(uint64_t hash) const noexcept {
  const std::vector<uint64_t>& begins = index_.begins;
  // Hashes are uniform, so the block is near its share of the range.
  const uint64_t width = index_.hash_last - begins.front();
  size_t low = 0, high = begins.size();  // begins[low] <= hash < begins[high]
  if (width != ~uint64_t{0} && width > 0) {
    const double part = static_cast<double>(hash - begins.front()) / static_cast<double>(width);
    const auto guess = std::min(static_cast<size_t>(part * static_cast<double>(high)), high - 1);
    size_t step = 4;
    if (begins[guess] <= hash) {
      low = guess;
      while (low + step < high && begins[low + step] <= hash) {
        low += step;
        step *= 2;
      }
      high = std::min(high, low + step);
    } else {
      high = guess;
      while (high > step && begins[high - step] > hash) {
        high -= step;
        step *= 2;
      }
      low = high > step ? high - step : 0;
    }
  }
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (begins[middle] <= hash ? low : high) = middle;
  }
  return low;
}

Status RunFile::View(size_t block, const char* bytes, BlockView* view) const {
  Status status = view->Open(bytes, block_bytes(block), block, index_.begins[block], layout_);
  if (!status.ok()) return Corrupt(status.message);
  return status;
}

Status BlockStream::Next(BlockView* view, bool* done) {
  *done = next_ == run_->blocks();
  if (*done) return Status::Ok();
  const uint64_t offset = run_->block_offset(next_);
  const uint64_t end = offset + run_->block_bytes(next_);
  if (offset < begin_ || end > end_) {
    const uint64_t align = std::max<uint64_t>(run_->file().align(), 64);
    begin_ = offset / align * align;
    const uint64_t last = run_->block_offset(run_->blocks());
    const uint64_t wanted = std::max(end, std::min(begin_ + window_, last));
    const uint64_t size = (wanted - begin_ + align - 1) / align * align;
    end_ = begin_;
    buffer_.Reserve(size);
    DE_RETURN_IF_ERROR(run_->file().ReadAligned(begin_, size, wanted - begin_, buffer_.data()));
    end_ = wanted;
  }
  return run_->View(next_++, buffer_.data() + (offset - begin_), view);
}

}  // namespace de::engine
