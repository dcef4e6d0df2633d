#include "de_core/cc/engine/runs/run_writer.h"

#include <cstring>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/snapshot/snapshot_index.h"

namespace de::engine {

Status RunWriter::Create(const std::string& path, uint64_t number, const RowLayout& layout,
                         uint64_t hash_begin, const RunWriterOptions& options,
                         std::unique_ptr<RunWriter>* writer) {
  std::unique_ptr<RunWriter> created(new RunWriter(path, number, layout, hash_begin, options));
  DE_RETURN_IF_ERROR(LocalSink::Create(path, options.direct, &created->sink_));
  SnapshotHeader header(layout);
  header.kind = SnapshotKind::kDelta;
  header.sequence = number;
  std::memcpy(header.id.data(), &number, sizeof(number));
  header.parent[sizeof(number)] = 1;  // no file has this id
  DE_RETURN_IF_ERROR(SnapshotWriter::Create(created->sink_.get(), header, &created->writer_));
  *writer = std::move(created);
  return Status::Ok();
}

/// Returns the size of the next block if more keys were added.
uint64_t RunWriter::BlockBytes(size_t more_rows, size_t more_tombstones, size_t more_text) const {
  SectionRecord section{};
  section.count = static_cast<uint32_t>(rows_.words.size() + more_rows);
  section.tombstones = static_cast<uint32_t>(gone_.words.size() + more_tombstones);
  section.lines = LinesFor(section.count + section.tombstones, layout_.stride() >= 128);
  section.string_bytes = texts_.size() + more_text;
  return ShapeOf(section, layout_.stride(), layout_.key_type()).bytes;
}

Status RunWriter::Add(uint64_t word, const char* row, const std::string_view* text) {
  const uint64_t hash = Mix64(word);
  const bool first = rows_.words.empty() && gone_.words.empty();
  if (hash < begin_ || (!filter_hashes_.empty() && hash < last_hash_)) {
    return Status::InvalidArgument("the rows of a run must ascend by the hashes of their keys");
  }
  const size_t length = text == nullptr ? 0 : text->size();
  const bool is_row = row != nullptr;
  // Keys with equal hashes must be in one block.
  if (!first && hash != last_hash_ &&
      BlockBytes(is_row ? 1 : 0, is_row ? 0 : 1, length) > kRunBlockBytes) {
    DE_RETURN_IF_ERROR(WriteBlock(last_hash_));
  }
  filter_hashes_.push_back(FilterHash(hash));
  Group& group = is_row ? rows_ : gone_;
  group.words.push_back(word);
  if (text != nullptr) {
    group.texts.push_back({texts_.size(), length});
    texts_.append(*text);
  }
  if (is_row) bytes_.insert(bytes_.end(), row, row + layout_.stride());
  last_hash_ = hash;
  return Status::Ok();
}

const std::string_view* RunWriter::ViewsOf(Group* group) const {
  if (layout_.key_type() != KeyType::kString) return nullptr;
  group->views.clear();
  for (const Text& text : group->texts) {
    group->views.emplace_back(texts_.data() + text.offset, text.size);
  }
  return group->views.data();
}

/// Writes the collected keys as a block whose range ends at `hash_last`.
Status RunWriter::WriteBlock(uint64_t hash_last) {
  SnapshotSection section;
  section.hash_begin = begin_;
  section.hash_last = hash_last;
  section.count = rows_.words.size();
  section.words = rows_.words.data();
  section.rows = bytes_.data();
  section.keys = ViewsOf(&rows_);
  section.tombstones = gone_.words.size();
  section.tombstone_words = gone_.words.data();
  section.tombstone_keys = ViewsOf(&gone_);
  const uint64_t offset = writer_->bytes() / 64;
  DE_RETURN_IF_ERROR(writer_->Append(section));
  if (writer_->bytes() / 64 > 0xffffffffU) {
    return Status::InvalidArgument("the file " + path_ + " must be below 256 GiB");
  }
  index_.begins.push_back(begin_);
  index_.offsets.push_back(static_cast<uint32_t>(offset));
  begin_ = hash_last + 1;
  for (Group* group : {&rows_, &gone_}) {
    group->words.clear();
    group->texts.clear();
  }
  bytes_.clear();
  texts_.clear();
  return Status::Ok();
}

Status RunWriter::Finish(uint64_t hash_last, std::shared_ptr<RunFile>* run) {
  DE_RETURN_IF_ERROR(WriteBlock(hash_last));
  index_.offsets.push_back(static_cast<uint32_t>(writer_->bytes() / 64));
  DE_RETURN_IF_ERROR(writer_->Finish());
  index_.hash_last = hash_last;
  index_.rows = writer_->rows();
  index_.tombstones = writer_->tombstones();
  index_.filter = RunFilter(filter_hashes_.size(), options_.filter_bits);
  for (const uint64_t hash : filter_hashes_) index_.filter.Add(hash);
  index_.begins.shrink_to_fit();
  index_.offsets.shrink_to_fit();
  DE_RETURN_IF_ERROR(sink_->Finish(options_.sync));
  std::unique_ptr<LocalFile> file;
  DE_RETURN_IF_ERROR(LocalFile::Open(path_, options_.direct, &file));
  *run = std::make_shared<RunFile>(std::move(file), number_, layout_, std::move(index_));
  return Status::Ok();
}

}  // namespace de::engine
