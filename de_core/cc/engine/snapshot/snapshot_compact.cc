#include "de_core/cc/engine/snapshot/snapshot_compact.h"

#include <algorithm>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

namespace de::engine {
namespace {

/// Reads one file in the order of its keys' hashes.
class Stream {
 public:
  Status Start(const SnapshotReader* file, const RowLayout& target) {
    file_ = file;
    DE_RETURN_IF_ERROR(
        RowConverter::Create(file->header().layout, target, /*slots=*/true, &converter_));
    return Load();
  }

  bool done() const noexcept { return next_ > file_->sections().size(); }
  /// The last hash that the current section covers.
  uint64_t hash_last() const noexcept { return buffer_.section.hash_last; }

  /// Calls visit(hash, entry) for the entries up to `last`, in order, and advances past them.
  template <typename Visit>
  void Take(uint64_t last, const Visit& visit) {
    for (; at_ < order_.size() && order_[at_].first <= last; ++at_) {
      visit(order_[at_].first, order_[at_].second);
    }
  }

  /// Loads the next section if the current one ends at `last`.
  Status Advance(uint64_t last) { return hash_last() > last ? Status::Ok() : Load(); }

  uint64_t word(uint32_t entry) const noexcept { return buffer_.words[entry]; }
  std::string_view key(uint32_t entry) const noexcept { return buffer_.keys[entry]; }
  bool is_row(uint32_t entry) const noexcept { return entry < buffer_.section.count; }
  const std::string_view* values(uint32_t entry, size_t dim) const noexcept {
    return buffer_.section.values + entry * dim;
  }
  void Convert(uint32_t entry, char* row) const noexcept {
    converter_.Convert(buffer_.section.rows + entry * file_->header().layout.stride(), row);
  }

 private:
  Status Load() {
    order_.clear();
    at_ = 0;
    if (next_++ >= file_->sections().size()) return Status::Ok();
    DE_RETURN_IF_ERROR(file_->ReadSection(next_ - 1, &buffer_));
    for (uint32_t i = 0; i < buffer_.words.size(); ++i) {
      order_.emplace_back(Mix64(buffer_.words[i]), i);
    }
    std::sort(order_.begin(), order_.end());
    return Status::Ok();
  }

  const SnapshotReader* file_ = nullptr;
  RowConverter converter_;
  SectionBuffer buffer_;
  std::vector<std::pair<uint64_t, uint32_t>> order_;  ///< (hash, entry)
  size_t at_ = 0;
  size_t next_ = 0;  ///< number of the section after the current one
};

class Compactor {
 public:
  /// With `tombstones`, the result keeps them, because it hides rows of earlier files.
  Compactor(const RowLayout& layout, bool tombstones, SnapshotWriter* writer)
      : layout_(layout), tombstones_(tombstones), writer_(writer) {}

  Status Start(const std::vector<const SnapshotReader*>& files) {
    streams_.resize(files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      DE_RETURN_IF_ERROR(streams_[i].Start(files[i], layout_));
    }
    return Status::Ok();
  }

  /// Writes sections one at a time. Each ends at the smallest last hash of the input files' current
  /// sections.
  Status Run() {
    for (uint64_t begin = 0;;) {
      uint64_t last = ~uint64_t{0};
      bool done = true;
      for (const Stream& stream : streams_) {
        if (stream.done()) continue;
        done = false;
        last = std::min(last, stream.hash_last());
      }
      if (done) return Status::Ok();
      Merge(last);
      DE_RETURN_IF_ERROR(Emit(begin, last));
      for (Stream& stream : streams_) {
        if (!stream.done()) DE_RETURN_IF_ERROR(stream.Advance(last));
      }
      begin = last + 1;
    }
  }

 private:
  struct Item {
    uint64_t hash;
    uint32_t age;  ///< number of files that are newer than the entry's file
    uint32_t entry;
  };

  const Stream& StreamOf(const Item& item) const {
    return streams_[streams_.size() - 1 - item.age];
  }

  /// Collects in items_, from hashes up to `last`, the entry of each key from the newest file that
  /// has the key.
  void Merge(uint64_t last) {
    items_.clear();
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i].done()) continue;
      const auto age = static_cast<uint32_t>(streams_.size() - 1 - i);
      streams_[i].Take(
          last, [&](uint64_t hash, uint32_t entry) { items_.push_back({hash, age, entry}); });
    }
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return a.hash != b.hash ? a.hash < b.hash : a.age < b.age;
    });
    const bool strings = layout_.key_type() == KeyType::kString;
    size_t kept = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      bool known = false;
      for (size_t j = kept; j > 0 && items_[j - 1].hash == items_[i].hash && !known; --j) {
        known = !strings || StreamOf(items_[j - 1]).key(items_[j - 1].entry) ==
                                StreamOf(items_[i]).key(items_[i].entry);
      }
      if (!known) items_[kept++] = items_[i];
    }
    items_.resize(kept);
  }

  Status Emit(uint64_t begin, uint64_t last) {
    rows_.Clear();
    gone_.clear();
    gone_keys_.clear();
    const bool string_keys = layout_.key_type() == KeyType::kString;
    const size_t texts = layout_.value_dtype() == DType::kString ? layout_.dim() : 0;
    for (const Item& item : items_) {
      const Stream& stream = StreamOf(item);
      if (!stream.is_row(item.entry)) {
        if (tombstones_) gone_.push_back(stream.word(item.entry));
        if (tombstones_ && string_keys) gone_keys_.push_back(stream.key(item.entry));
        continue;
      }
      stream.Convert(item.entry, rows_.Add(stream.word(item.entry), layout_.stride()));
      if (string_keys) rows_.AddText(stream.key(item.entry));
      for (size_t i = 0; i < texts; ++i) rows_.AddText(stream.values(item.entry, texts)[i]);
    }
    rows_.Finish(layout_);
    SnapshotSection section = SectionOf(rows_, begin, last);
    section.tombstones = gone_.size();
    section.tombstone_words = gone_.data();
    if (string_keys) section.tombstone_keys = gone_keys_.data();
    return writer_->Append(section);
  }

  RowLayout layout_;
  const bool tombstones_;
  SnapshotWriter* writer_;
  std::vector<Stream> streams_;  ///< oldest first
  std::vector<Item> items_;
  RowBatch rows_;
  std::vector<uint64_t> gone_;
  std::vector<std::string_view> gone_keys_;
};

}  // namespace

Status CompactSnapshots(const std::vector<const SnapshotReader*>& files, ByteSink* sink,
                        CompactReport* report) {
  return Guarded([&]() -> Status {
    std::vector<ChainSpan> chains;
    DE_RETURN_IF_ERROR(CheckChains(files, &chains, /*part=*/true));
    if (chains.size() != 1) {
      return Status::FailedPrecondition("a compaction needs files of one chain. Received: chains=" +
                                        std::to_string(chains.size()));
    }
    const SnapshotHeader& first = files.front()->header();
    SnapshotHeader header = files.back()->header();
    header.kind = first.kind;
    header.parent = first.parent;
    header.replaces =
        first.kind == SnapshotKind::kDelta && files[chains[0].from]->header().replaces;
    std::unique_ptr<SnapshotWriter> writer;
    DE_RETURN_IF_ERROR(SnapshotWriter::Create(sink, header, &writer));
    const bool hides = header.kind == SnapshotKind::kDelta && !header.replaces;
    Compactor compactor(header.layout, hides, writer.get());
    DE_RETURN_IF_ERROR(compactor.Start(
        {files.begin() + static_cast<std::ptrdiff_t>(chains[0].from), files.end()}));
    DE_RETURN_IF_ERROR(compactor.Run());
    DE_RETURN_IF_ERROR(writer->Finish());
    report->rows = writer->rows();
    report->tombstones = writer->tombstones();
    report->bytes = writer->bytes();
    return Status::Ok();
  });
}

}  // namespace de::engine
