#include "de_core/cc/engine/snapshot/snapshot_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

RowLayout FileLayout(const SnapshotHeader& header, DType stored) {
  const RowLayout& layout = header.layout;
  RowLayout file(layout.key_type(), stored, layout.dim());
  if (stored == DType::kInt8 && layout.value_dtype() != DType::kInt8) {
    file.Append(kScaleOwner, {{std::string(kScaleName), DType::kFloat32, 1, 1.0}});
  }
  for (const RowSlot& slot : layout.slots()) {
    if (header.values_only && slot.owner != kScaleOwner) continue;
    file.Append(slot.owner, {slot.spec});
  }
  return file;
}

/// Returns the number of index lines for `count` rows. The lines are fuller than in a table in
/// memory, which must grow. By default 17 of 20 entries are used: then a file with 16 floats per
/// row takes 1.099 times the bytes of its keys and floats. With `sparse`, 7 of 10 entries are used,
/// which makes searches shorter. `sparse` suits files of wide rows, whose index is relatively
/// small, and files made for serving.
constexpr uint32_t LinesFor(uint32_t count, bool sparse) noexcept {
  const uint64_t entries = sparse ? 350 : 425;  // entries used per hundred lines
  return static_cast<uint32_t>((uint64_t{count} * 100 + entries - 1) / entries);
}

Status BadSection(const SnapshotSection& section, const std::string& why) {
  return Status::InvalidArgument(why + ". Received: a section of " + std::to_string(section.count) +
                                 " rows, hashes " + std::to_string(section.hash_begin) + " to " +
                                 std::to_string(section.hash_last));
}

/// Appends strings to the string area of a section.
class StringArea {
 public:
  explicit StringArea(char* area) : area_(area) {}

  /// Stores the text and writes a reference to it at `ref`.
  void Put(std::string_view text, char* ref) noexcept {
    const SnapshotStringRef where{offset_, static_cast<uint32_t>(text.size())};
    if (!text.empty()) std::memcpy(area_ + offset_, text.data(), text.size());
    std::memcpy(ref, &where, sizeof(where));
    offset_ += where.size;
  }

 private:
  char* area_;
  uint32_t offset_ = 0;
};

}  // namespace

SnapshotWriter::SnapshotWriter(ByteSink* sink, const SnapshotHeader& header)
    : sink_(sink), header_(header), source_(header.layout) {}

Status SnapshotWriter::Create(ByteSink* sink, const SnapshotHeader& header,
                              std::optional<DType> store_as,
                              std::unique_ptr<SnapshotWriter>* writer) noexcept {
  return Guarded([&] {
    std::unique_ptr<SnapshotWriter> created(new SnapshotWriter(sink, header));
    DE_RETURN_IF_ERROR(created->Start(store_as));
    *writer = std::move(created);
    return Status::Ok();
  });
}

Status SnapshotWriter::Append(const SnapshotSection& section) noexcept {
  if (section.count + section.tombstones == 0 && status_.ok() && !finished_) return Status::Ok();
  Status status = Encode(section, &encoded_);
  return status.ok() ? Append(&encoded_) : Remember(std::move(status));
}

Status SnapshotWriter::Encode(const SnapshotSection& section,
                              EncodedSection* encoded) const noexcept {
  return Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckSection(section));
    SectionRecord& record = encoded->record;
    record = {};
    record.hash_begin = section.hash_begin;
    record.hash_last = section.hash_last;
    record.count = static_cast<uint32_t>(section.count);
    record.tombstones = static_cast<uint32_t>(section.tombstones);
    record.lines = LinesFor(record.count + record.tombstones,
                            header_.layout.stride() >= 128 || header_.converted.has_value());
    record.string_bytes = StringBytes(section);
    encoded->error = {};
    const BlockShape shape = ShapeOf(record, header_.layout.stride(), source_.key_type());
    encoded->bytes.resize(shape.bytes);
    EncodeIndex(section, record.lines, encoded->bytes.data() + shape.lines);
    EncodeRows(section, shape, encoded);
    return Status::Ok();
  });
}

Status SnapshotWriter::Append(EncodedSection* encoded) noexcept {
  return Remember(Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(status_);
    if (finished_) return Status::FailedPrecondition("the snapshot is already finished");
    SectionRecord& record = encoded->record;
    if (record.count + record.tombstones == 0) return Status::Ok();
    if (!sections_.empty() && record.hash_begin <= sections_.back().hash_last) {
      return Status::InvalidArgument(
          "sections must come in ascending order of their hashes. Received: a section of hashes " +
          std::to_string(record.hash_begin) + " to " + std::to_string(record.hash_last));
    }
    record.offset = offset_;
    const BlockRecord block = MakeBlockRecord(sections_.size(), record, header_.layout.stride());
    std::vector<char>& bytes = encoded->bytes;
    std::memcpy(bytes.data(), &block, sizeof(block));
    const size_t checked = bytes.size() - sizeof(uint32_t);
    record.crc = Crc32c(bytes.data(), checked);
    std::memcpy(bytes.data() + checked, &record.crc, sizeof(record.crc));
    DE_RETURN_IF_ERROR(Emit(bytes.data(), bytes.size()));
    footer_.contents_crc = Crc32cExtend(footer_.contents_crc, &record.crc, sizeof(record.crc));
    footer_.row_count += record.count;
    footer_.tombstone_count += record.tombstones;
    footer_.string_bytes += record.string_bytes;
    error_.Add(encoded->error);
    sections_.push_back(record);
    return Status::Ok();
  }));
}

Status SnapshotWriter::Finish() noexcept {
  return Remember(Guarded([&] {
    DE_RETURN_IF_ERROR(status_);
    if (finished_) return Status::FailedPrecondition("the snapshot is already finished");
    finished_ = true;
    footer_.directory_offset = offset_;
    footer_.section_count = sections_.size();
    const uint64_t records = sections_.size() * sizeof(SectionRecord);
    std::vector<char> bytes(DirectoryBytes(sections_.size()));
    if (records > 0) std::memcpy(bytes.data(), sections_.data(), records);
    const size_t checked = bytes.size() - sizeof(uint32_t);
    const uint32_t crc = Crc32c(bytes.data(), checked);
    std::memcpy(bytes.data() + checked, &crc, sizeof(crc));
    DE_RETURN_IF_ERROR(Emit(bytes.data(), bytes.size()));
    footer_.contents_crc = Crc32cExtend(footer_.contents_crc, &crc, sizeof(crc));
    footer_.file_bytes = offset_ + sizeof(FooterRecord);
    SealFooter(&footer_);
    return Emit(&footer_, sizeof(footer_));
  }));
}

Status SnapshotWriter::Remember(Status status) {
  // Copying the message can run out of memory too; then status_ becomes that error.
  if (status_.ok() && !status.ok()) status_ = Guarded([&] { return status; });
  return status;
}

Status SnapshotWriter::Start(std::optional<DType> store_as) {
  if (header_.layout.dim() == 0 || header_.layout.dim() > kMaxDim) {
    return Status::InvalidArgument("dim must be from 1 to " + std::to_string(kMaxDim) +
                                   ". Received: dim=" + std::to_string(header_.layout.dim()));
  }
  const DType stored = store_as.value_or(source_.value_dtype());
  if (stored != source_.value_dtype()) {
    if (!IsFloating(source_.value_dtype()) || (!IsFloating(stored) && stored != DType::kInt8)) {
      return Status::InvalidArgument(
          "floating-point values can be stored as another floating-point dtype or as int8. "
          "Received: " +
          std::string(NameOf(source_.value_dtype())) + " values to be stored as " +
          std::string(NameOf(stored)));
    }
    header_.converted = header_.reads_as();
  }
  header_.layout = FileLayout(header_, stored);
  DE_RETURN_IF_ERROR(RowConverter::Create(source_, header_.layout, true, &converter_));
  std::string bytes;
  std::array<uint32_t, 2> checksums;
  DE_RETURN_IF_ERROR(EncodeHeader(header_, &bytes, &checksums));
  std::memcpy(footer_.id, header_.id.data(), sizeof(footer_.id));
  footer_.contents_crc = Crc32c(checksums.data(), sizeof(checksums));
  return Emit(bytes.data(), bytes.size());
}

Status SnapshotWriter::CheckSection(const SnapshotSection& section) const {
  if (section.hash_begin > section.hash_last) {
    return BadSection(section, "a section's range of hashes must not be empty");
  }
  if (section.count + section.tombstones > kMaxSectionRows) {
    return BadSection(section, "a section must have at most 2^30 rows; pass smaller sections");
  }
  if (section.tombstones > 0 && header_.kind == SnapshotKind::kBase) {
    return BadSection(section, "a base has no tombstones");
  }
  const bool string_keys = source_.key_type() == KeyType::kString;
  const bool string_values = source_.value_dtype() == DType::kString;
  const auto missing = [&](const std::string_view* strings, bool wanted) {
    return (strings != nullptr) != wanted;
  };
  if ((section.count > 0 &&
       (section.words == nullptr || section.rows == nullptr || missing(section.keys, string_keys) ||
        missing(section.values, string_values))) ||
      (section.tombstones > 0 &&
       (section.tombstone_words == nullptr || missing(section.tombstone_keys, string_keys)))) {
    return BadSection(section,
                      "a section must hold words, rows, and the strings of a table with strings");
  }
  const auto check_keys = [&](const uint64_t* words, const std::string_view* keys, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t hash = Mix64(words[i]);
      if (hash < section.hash_begin || hash > section.hash_last) {
        return BadSection(section, "row " + std::to_string(i) + " hashes outside its section");
      }
      if (string_keys && HashBytes(keys[i]) != words[i]) {
        return BadSection(section,
                          "row " + std::to_string(i) + " does not have the word of its key");
      }
    }
    return Status::Ok();
  };
  DE_RETURN_IF_ERROR(check_keys(section.words, section.keys, section.count));
  DE_RETURN_IF_ERROR(
      check_keys(section.tombstone_words, section.tombstone_keys, section.tombstones));
  if (StringBytes(section) > kMaxSectionStrings) {
    return BadSection(section,
                      "a section must have less than 4 GiB of strings; pass smaller sections");
  }
  return Status::Ok();
}

uint64_t SnapshotWriter::StringBytes(const SnapshotSection& section) const {
  uint64_t bytes = 0;
  const auto add = [&](const std::string_view* strings, size_t count) {
    for (size_t i = 0; strings != nullptr && i < count; ++i) bytes += strings[i].size();
  };
  add(section.keys, section.count);
  add(section.values, section.count * source_.dim());
  add(section.tombstone_keys, section.tombstones);
  return bytes;
}

void SnapshotWriter::EncodeIndex(const SnapshotSection& section, uint32_t lines, char* out) const {
  std::vector<IndexLine> index(lines);  // build the index here, because `out` may not be aligned
  LineIndex all(index.data(), lines);
  const auto count = static_cast<uint32_t>(section.count);
  const uint32_t entries = count + static_cast<uint32_t>(section.tombstones);
  const auto word_of = [&](uint32_t entry) {
    return entry < count ? section.words[entry] : section.tombstone_words[entry - count];
  };
  // First insert the keys whose home line has room. Overflowing keys then never take a slot in
  // another key's home line, so a quarter fewer keys are away from home.
  std::vector<uint32_t> sent_on;
  for (uint32_t entry = 0; entry < entries; ++entry) {
    const uint64_t word = word_of(entry);
    if (index[all.Home(Mix64(word))].used == kFullLine) {
      sent_on.push_back(entry);
    } else {
      all.Insert(word, Mix64(word), entry);
    }
  }
  for (const uint32_t entry : sent_on) {
    const uint64_t word = word_of(entry);
    all.Insert(word, Mix64(word), entry);
  }
  if (!index.empty()) std::memcpy(out, index.data(), index.size() * sizeof(IndexLine));
}

void SnapshotWriter::EncodeRows(const SnapshotSection& section, const BlockShape& shape,
                                EncodedSection* encoded) const {
  const RowLayout& layout = header_.layout;
  const size_t stride = layout.stride();
  char* const block = encoded->bytes.data();
  StringArea strings(block + shape.strings);
  if (converter_.identity()) {
    if (section.count > 0) std::memcpy(block + shape.rows, section.rows, section.count * stride);
  } else {
    // Zero everything, including the padding between a row's parts.
    std::memset(block + shape.rows, 0, section.count * stride);
    const bool lossy = layout.value_dtype() != source_.value_dtype();
    for (size_t i = 0; i < section.count; ++i) {
      const char* from = section.rows + i * source_.stride();
      char* to = block + shape.rows + i * stride;
      converter_.Convert(from, to);
      if (lossy) converter_.Measure(from, to, &encoded->error);
    }
  }
  for (size_t i = 0; i < section.count; ++i) {
    char* row = block + shape.rows + i * stride;
    if (section.keys == nullptr && section.values == nullptr) break;
    if (section.keys != nullptr) strings.Put(section.keys[i], row + layout.key_offset());
    for (size_t j = 0; section.values != nullptr && j < layout.dim(); ++j) {
      strings.Put(section.values[i * layout.dim() + j], row + j * sizeof(SnapshotStringRef));
    }
  }
  for (size_t i = 0; section.tombstone_keys != nullptr && i < section.tombstones; ++i) {
    strings.Put(section.tombstone_keys[i],
                block + shape.tombstones + i * sizeof(SnapshotStringRef));
  }
  const uint64_t end = shape.strings + encoded->record.string_bytes;
  std::memset(block + end, 0, shape.bytes - end);
}

Status SnapshotWriter::Emit(const void* data, size_t size) {
  offset_ += size;
  return sink_->Append(data, size);
}

}  // namespace de::engine
