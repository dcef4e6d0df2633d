// Sample tables for snapshots, and modifications of snapshot bytes for the tests and the fuzz
// target.
#ifndef DE_CORE_TESTING_SNAPSHOT_FIXTURE_H_
#define DE_CORE_TESTING_SNAPSHOT_FIXTURE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/engine/snapshot/snapshot_writer.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine::testing {

/// One key in both types: an int64, and a string of 0 to 40 bytes, which may contain NULs.
struct SampleKey {
  int64_t number = 0;
  std::string text;
};

/// Random rows, sorted as a table in memory passes them to the writer.
class SampleTable {
 public:
  SampleTable(RowLayout layout, size_t rows, uint64_t seed = 1) : layout_(std::move(layout)) {
    std::mt19937_64 random(seed);
    std::vector<SampleKey> keys(rows);
    for (size_t i = 0; i < rows; ++i) {
      keys[i].number = static_cast<int64_t>(random());
      if (i < 4) keys[i].number = std::array<int64_t, 4>{0, -1, INT64_MIN, INT64_MAX}[i];
      keys[i].text = std::to_string(i) + ':' + std::string(i % 37, static_cast<char>(i % 251));
      if (i == 0) keys[i].text.clear();
    }
    SetKeys(std::move(keys));
    rows_.resize(rows * layout_.stride());
    for (char& byte : rows_) byte = static_cast<char>(random());
    if (layout_.value_dtype() == DType::kString) {
      for (size_t i = 0; i < rows * layout_.dim(); ++i) {
        values_.push_back(std::string(random() % 20, static_cast<char>('a' + i % 26)));
      }
    }
  }

  void SetKeys(std::vector<SampleKey> keys) {
    keys_ = std::move(keys);
    std::sort(keys_.begin(), keys_.end(), [&](const SampleKey& a, const SampleKey& b) {
      return Mix64(WordOf(a)) < Mix64(WordOf(b));
    });
  }

  uint64_t WordOf(const SampleKey& key) const {
    return layout_.key_type() == KeyType::kString ? HashBytes(key.text)
                                                  : static_cast<uint64_t>(key.number);
  }

  const RowLayout& layout() const { return layout_; }
  const std::vector<SampleKey>& keys() const { return keys_; }
  size_t size() const { return keys_.size(); }
  std::string_view row(size_t i) const {
    return std::string_view(rows_).substr(i * layout_.stride(), layout_.stride());
  }
  const std::string& value(size_t i, size_t j) const { return values_[i * layout_.dim() + j]; }

  /// True if a delta has a tombstone, instead of a row, for key i.
  static bool IsGone(size_t i) { return i % 3 == 0; }

  /// Writes the table in 2^bits sections. A delta contains two thirds of its rows.
  Status Write(ByteSink* sink, SnapshotHeader header, uint32_t bits,
               std::optional<DType> store_as = std::nullopt) const {
    header.layout = layout_;
    const bool delta = header.kind == SnapshotKind::kDelta;
    std::unique_ptr<SnapshotWriter> writer;
    DE_RETURN_IF_ERROR(SnapshotWriter::Create(sink, header, store_as, &writer));
    size_t next = 0;
    for (uint64_t prefix = 0; prefix < (uint64_t{1} << bits); ++prefix) {
      SnapshotSection section;
      section.hash_begin = bits == 0 ? 0 : prefix << (64 - bits);
      section.hash_last = section.hash_begin | (bits == 0 ? ~uint64_t{0} : ~uint64_t{0} >> bits);
      std::vector<uint64_t> words, gone;
      std::vector<std::string_view> keys, values, gone_keys;
      std::string rows;
      for (; next < size() && Mix64(WordOf(keys_[next])) <= section.hash_last; ++next) {
        if (delta && IsGone(next)) {
          gone.push_back(WordOf(keys_[next]));
          gone_keys.push_back(keys_[next].text);
          continue;
        }
        rows.append(row(next));
        words.push_back(WordOf(keys_[next]));
        keys.push_back(keys_[next].text);
        for (size_t j = 0; !values_.empty() && j < layout_.dim(); ++j) {
          values.push_back(value(next, j));
        }
      }
      section.count = words.size();
      section.words = words.data();
      section.rows = rows.data();
      section.tombstones = gone.size();
      section.tombstone_words = gone.data();
      if (layout_.key_type() == KeyType::kString) section.tombstone_keys = gone_keys.data();
      if (layout_.key_type() == KeyType::kString) section.keys = keys.data();
      if (layout_.value_dtype() == DType::kString) section.values = values.data();
      DE_RETURN_IF_ERROR(writer->Append(section));
    }
    return writer->Finish();
  }

  std::string Bytes(const SnapshotHeader& header, uint32_t bits,
                    std::optional<DType> store_as = std::nullopt) const {
    StringSink sink;
    const Status status = Write(&sink, header, bits, store_as);
    return status.ok() ? sink.bytes() : "not written: " + status.message;
  }

 private:
  RowLayout layout_;
  std::vector<SampleKey> keys_;
  std::string rows_;
  std::vector<std::string> values_;
};

/// Returns a header with a value in every field.
inline SnapshotHeader SampleHeader() {
  SnapshotHeader header;
  for (size_t i = 0; i < header.id.size(); ++i) header.id[i] = static_cast<uint8_t>(i + 1);
  header.created_micros = 1700000000123456;
  header.initializer.kind = InitializerOptions::Kind::kUniform;
  header.initializer.a = -0.5;
  header.initializer.b = 0.5;
  header.initializer.seed = 42;
  header.metadata = {{"oov", "initial"}, {"table", "users"}};
  return header;
}

/// Returns the header of a delta to the file with header `parent`.
inline SnapshotHeader SampleDeltaHeader(const SnapshotHeader& parent) {
  SnapshotHeader header = parent;
  header.kind = SnapshotKind::kDelta;
  header.parent = parent.id;
  header.sequence = parent.sequence + 1;
  ++header.id[0];
  return header;
}

/// Bytes aligned to 64, in a block of exactly their size, so that a sanitizer detects the first
/// byte read past the end.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::string_view bytes)
      : size_(bytes.size()),
        data_(static_cast<char*>(::operator new(bytes.size(), std::align_val_t{64}))) {
    if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
  }
  ~AlignedBytes() { ::operator delete(data_, std::align_val_t{64}); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  char* data_;
};

/// Opens a reader of bytes in memory.
inline Status Open(std::string_view bytes, std::unique_ptr<SnapshotReader>* reader) {
  return SnapshotReader::Open(bytes.data(), bytes.size(), reader);
}

/// Opens a chain of files in memory.
inline Status OpenChain(const std::vector<std::string_view>& files,
                        std::unique_ptr<FrozenChain>* chain) {
  return Guarded([&]() -> Status {
    std::vector<std::unique_ptr<SnapshotReader>> readers(files.size());
    for (size_t i = 0; i < files.size(); ++i) DE_RETURN_IF_ERROR(Open(files[i], &readers[i]));
    return FrozenChain::Open(std::move(readers), chain);
  });
}

/// Opens a read-only table on a file in memory.
inline Status OpenFrozen(std::string_view bytes, std::unique_ptr<FrozenTable>* table) {
  std::unique_ptr<SnapshotReader> reader;
  DE_RETURN_IF_ERROR(Open(bytes, &reader));
  const SnapshotHeader& header = reader->header();
  return FrozenTable::Open(std::move(reader), header, table);
}

/// Reads and checks all sections.
inline Status ReadAll(const SnapshotReader& reader) {
  SectionBuffer buffer;
  for (size_t i = 0; i < reader.sections().size(); ++i) {
    DE_RETURN_IF_ERROR(reader.ReadSection(i, &buffer));
  }
  return Status::Ok();
}

/// Opens a reader of bytes in memory, and reads all sections.
inline Status OpenAndRead(std::string_view bytes, std::unique_ptr<SnapshotReader>* reader) {
  DE_RETURN_IF_ERROR(Open(bytes, reader));
  return ReadAll(**reader);
}

/// A source whose bytes are not in memory, like a remote file.
class ReadOnlySource final : public ByteSource {
 public:
  explicit ReadOnlySource(std::string_view bytes) : span_(bytes.data(), bytes.size()) {}
  uint64_t size() const noexcept override { return span_.size(); }
  Status Read(uint64_t offset, size_t size, void* out) const override {
    return span_.Read(offset, size, out);
  }

 private:
  SpanSource span_;
};

/// Recomputes every checksum of damaged bytes, so that a reader gets past the checksums to its
/// later checks. Stops where the damage makes it impossible to find the next checksum.
inline void Reseal(std::string* bytes) {
  const auto put_crc = [&](size_t begin, size_t end) {
    const uint32_t crc = Crc32c(bytes->data() + begin, end - begin);
    std::memcpy(bytes->data() + end, &crc, sizeof(crc));
    return crc;
  };
  if (bytes->size() < sizeof(HeaderRecord) + 64 + sizeof(FooterRecord)) return;
  const uint64_t body = bytes->size() - sizeof(FooterRecord);
  std::vector<uint32_t> contents = {put_crc(0, sizeof(HeaderRecord) - 4)};
  HeaderRecord header;
  FooterRecord footer;
  std::memcpy(&header, bytes->data(), sizeof(header));
  std::memcpy(&footer, bytes->data() + body, sizeof(footer));
  if (header.header_bytes < 192 || header.header_bytes > body) return;
  contents.push_back(put_crc(sizeof(HeaderRecord), header.header_bytes - 4));
  if (footer.directory_offset > body || footer.section_count > body / sizeof(SectionRecord)) return;
  if (DirectoryBytes(footer.section_count) > body - footer.directory_offset) return;
  for (uint64_t i = 0; i < footer.section_count; ++i) {
    char* at = bytes->data() + footer.directory_offset + i * sizeof(SectionRecord);
    SectionRecord section;
    std::memcpy(&section, at, sizeof(section));
    if (section.string_bytes > body || section.offset > body || section.tombstones > body) return;
    const BlockShape shape =
        ShapeOf(section, header.row_stride, static_cast<KeyType>(header.key_type));
    if (shape.bytes > body - section.offset) return;
    section.crc = put_crc(section.offset, section.offset + shape.crc);
    std::memcpy(at, &section, sizeof(section));
    contents.push_back(section.crc);
  }
  const uint64_t directory_crc =
      footer.directory_offset + DirectoryBytes(footer.section_count) - sizeof(uint32_t);
  contents.push_back(put_crc(footer.directory_offset, directory_crc));
  footer.contents_crc = Crc32c(contents.data(), contents.size() * sizeof(uint32_t));
  footer.crc = Crc32c(&footer, offsetof(FooterRecord, crc));
  std::memcpy(bytes->data() + body, &footer, sizeof(footer));
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_SNAPSHOT_FIXTURE_H_
