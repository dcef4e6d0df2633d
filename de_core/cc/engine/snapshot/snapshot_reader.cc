#include "de_core/cc/engine/snapshot/snapshot_reader.h"

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

/// Returns bytes [offset, offset + size) of the source: in place, or copied into `buffer`.
Status Fetch(const ByteSource& source, uint64_t offset, uint64_t size, std::vector<char>* buffer,
             const char** bytes) {
  if (source.data() != nullptr) {
    *bytes = source.data() + offset;
    return Status::Ok();
  }
  buffer->resize(size);
  *bytes = buffer->data();
  return source.Read(offset, size, buffer->data());
}

/// For each filter bit, the first and the last of the added lines without this bit: where a search
/// for a key with this bit stops. Stored as the line's number plus 1, or 0 if there is no such
/// line.
struct OpenLines {
  uint32_t first[16] = {};
  uint32_t last[16] = {};

  void Add(const IndexLine& line, uint32_t number) noexcept {
    const uint32_t passed = Passed(line);
    for (uint32_t bit = 0; bit < 16; ++bit) {
      const bool open = (passed & (1U << bit)) == 0;
      last[bit] = open ? number + 1 : last[bit];
      first[bit] = open && first[bit] == 0 ? number + 1 : first[bit];
    }
  }
};

Status Malformed(const char* why) { return Status::DataLoss(std::string("is malformed: ") + why); }

}  // namespace

Status SnapshotReader::Open(std::unique_ptr<const ByteSource> source,
                            std::unique_ptr<SnapshotReader>* reader) noexcept {
  return Guarded([&] {
    std::unique_ptr<SnapshotReader> opened(new SnapshotReader(std::move(source)));
    DE_RETURN_IF_ERROR(opened->Start());
    *reader = std::move(opened);
    return Status::Ok();
  });
}

Status SnapshotReader::Open(const char* data, size_t size,
                            std::unique_ptr<SnapshotReader>* reader) noexcept {
  return Guarded([&] { return Open(std::make_unique<SpanSource>(data, size), reader); });
}

Status SnapshotReader::Start() {
  const uint64_t size = source_->size();
  std::vector<char> buffer;
  const char* bytes = nullptr;
  DE_RETURN_IF_ERROR(
      Fetch(*source_, 0, std::min<uint64_t>(size, sizeof(HeaderRecord)), &buffer, &bytes));
  HeaderRecord record;
  DE_RETURN_IF_ERROR(DecodeHeaderRecord(bytes, size, &record));
  DE_RETURN_IF_ERROR(Fetch(*source_, 0, record.header_bytes, &buffer, &bytes));
  std::array<uint32_t, 2> checksums;
  DE_RETURN_IF_ERROR(DecodeHeader(bytes, record, &header_, &checksums));

  const uint64_t tail = std::min<uint64_t>(size, sizeof(FooterRecord));
  DE_RETURN_IF_ERROR(Fetch(*source_, size - tail, tail, &buffer, &bytes));
  DE_RETURN_IF_ERROR(DecodeFooter(bytes, size, record, &footer_));
  DE_RETURN_IF_ERROR(Fetch(*source_, footer_.directory_offset,
                           DirectoryBytes(footer_.section_count), &buffer, &bytes));
  return DecodeDirectory(bytes, record.header_bytes, footer_, header_, checksums, &sections_);
}

template <typename Reading>
Status SnapshotReader::InSection(size_t number, const Reading& read) const noexcept {
  return Guarded([&] {
    if (number >= sections_.size()) {
      return Status::InvalidArgument("the snapshot has " + std::to_string(sections_.size()) +
                                     " sections. Received: section=" + std::to_string(number));
    }
    Status status = read();
    if (!status.ok()) {
      status.message = SectionName(number, sections_[number].offset) + " " + status.message;
    }
    return status;
  });
}

Status SnapshotReader::ReadSection(size_t number, SectionBuffer* buffer) const noexcept {
  return InSection(number, [&]() -> Status {
    const SectionRecord& section = sections_[number];
    const BlockShape shape = ShapeOf(section, header_.layout.stride(), header_.layout.key_type());
    const char* block = nullptr;
    DE_RETURN_IF_ERROR(Check(number, buffer, &block));
    DE_RETURN_IF_ERROR(ReadIndex(section, block + shape.lines, buffer));
    DE_RETURN_IF_ERROR(ReadStrings(section, shape, block, buffer));
    DE_RETURN_IF_ERROR(CheckUnique(section, block + shape.lines, *buffer));

    const bool string_keys = header_.layout.key_type() == KeyType::kString;
    const bool string_values = header_.layout.value_dtype() == DType::kString;
    buffer->section = {section.hash_begin,
                       section.hash_last,
                       section.count,
                       buffer->words.data(),
                       block + shape.rows,
                       string_keys ? buffer->keys.data() : nullptr,
                       string_values ? buffer->values.data() : nullptr,
                       section.tombstones,
                       buffer->words.data() + section.count,
                       string_keys ? buffer->keys.data() + section.count : nullptr};
    return Status::Ok();
  });
}

Status SnapshotReader::CheckSection(size_t number, SectionBuffer* buffer) const noexcept {
  const char* block = nullptr;
  return InSection(number, [&] { return Check(number, buffer, &block); });
}

/// Fetches a section, and checks its checksum and its own record.
Status SnapshotReader::Check(size_t number, SectionBuffer* buffer, const char** block) const {
  const SectionRecord& section = sections_[number];
  const size_t stride = header_.layout.stride();
  const BlockShape shape = ShapeOf(section, stride, header_.layout.key_type());
  DE_RETURN_IF_ERROR(Fetch(*source_, section.offset, shape.bytes, &buffer->block, block));

  uint32_t stored;
  std::memcpy(&stored, *block + shape.crc, sizeof(stored));
  const uint32_t computed = Crc32c(*block, shape.crc);
  if (computed != stored || stored != section.crc) {
    return Status::DataLoss(
        "is corrupt: its checksum must be the stored one. Received: checksum=" + Hex32(computed) +
        ", stored=" + Hex32(stored) + ", in the directory=" + Hex32(section.crc));
  }
  if (!IsBlockOf(*block, number, section, stride)) {
    return Malformed("its own record is not that of the directory");
  }
  return Status::Ok();
}

Status SnapshotReader::ReadIndex(const SectionRecord& section, const char* lines,
                                 SectionBuffer* buffer) const {
  const uint32_t size = section.lines;
  const auto load = [&](uint32_t at) {  // copy the line, because the source need not be aligned
    IndexLine line;
    std::memcpy(&line, lines + uint64_t{at} * sizeof(IndexLine), sizeof(line));
    return line;
  };
  // A search for a key stops after a line that lacks the key's filter bit. So an entry is reachable
  // if every line from its home line to the line before its own has the bit.
  OpenLines all;
  for (uint32_t at = 0; at < size; ++at) all.Add(load(at), at);
  OpenLines before;
  const auto reachable = [&](uint64_t hash, uint32_t at) {
    const uint32_t home = ReduceLow32(hash, size);
    const uint32_t bit = LowestBit(PassBit(hash));
    if (home <= at) return before.last[bit] <= home;
    return all.last[bit] <= home && (all.first[bit] == 0 || all.first[bit] > at);
  };

  const uint32_t all_rows = section.count + section.tombstones;
  std::vector<bool> seen(all_rows);
  buffer->words.resize(all_rows);
  uint32_t entries = 0;
  for (uint32_t at = 0; at < size; ++at) {
    const IndexLine line = load(at);
    if ((line.used & ~kFullLine) != 0) return Malformed("an index line has too many entries");
    for (uint32_t mask = line.used; mask != 0; mask &= mask - 1) {
      const uint32_t entry = LowestBit(mask);
      const uint64_t word = line.words[entry];
      const uint32_t row = line.rows[entry];
      const uint64_t hash = Mix64(word);
      if (row >= all_rows) return Malformed("an index entry names a row that does not exist");
      if (seen[row]) return Malformed("two index entries name the same row");
      if (hash < section.hash_begin || hash > section.hash_last) {
        return Malformed("a key hashes outside its section");
      }
      if (!reachable(hash, at)) {
        return Malformed("an index entry is where no search finds it");
      }
      seen[row] = true;
      buffer->words[row] = word;
      ++entries;
    }
    before.Add(line, at);
  }
  return entries == all_rows ? Status::Ok() : Malformed("a row is missing from the index");
}

/// Checks that no key is in the section twice: the search for each entry's key must end at this
/// entry. If a key is there twice, the search for its second entry ends at the first.
Status SnapshotReader::CheckUnique(const SectionRecord& section, const char* lines,
                                   const SectionBuffer& buffer) const {
  const uint32_t size = section.lines;
  const bool string_keys = header_.layout.key_type() == KeyType::kString;
  const auto same_key = [&](uint32_t a, uint32_t b) {
    return !string_keys || buffer.keys[a] == buffer.keys[b];
  };
  const auto twice = [] { return Malformed("a key is there twice"); };
  const auto rows = static_cast<uint32_t>(buffer.words.size());
  // most lines to visit; only a crafted file needs more, and is checked by sorting
  uint64_t budget = uint64_t{16} * rows + size;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint64_t word = buffer.words[row];
    uint32_t at = ReduceLow32(Mix64(word), size);
    for (uint32_t found = kNoRow; found == kNoRow; at = at + 1 == size ? 0 : at + 1) {
      IndexLine line;
      std::memcpy(&line, lines + uint64_t{at} * sizeof(IndexLine), sizeof(line));
      for (uint32_t mask = MatchWord(line, word); mask != 0; mask &= mask - 1) {
        const uint32_t other = line.rows[LowestBit(mask)];
        if (!same_key(row, other)) continue;
        found = other;
        break;
      }
      if (found != kNoRow && found != row) return twice();
      if (budget-- == 0) break;
    }
    if (budget == ~uint64_t{0}) break;
  }
  if (budget != ~uint64_t{0}) return Status::Ok();
  std::vector<uint32_t> order(rows);
  for (uint32_t row = 0; row < rows; ++row) order[row] = row;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (buffer.words[a] != buffer.words[b]) return buffer.words[a] < buffer.words[b];
    return string_keys && buffer.keys[a] < buffer.keys[b];
  });
  for (uint32_t i = 1; i < rows; ++i) {
    if (buffer.words[order[i - 1]] == buffer.words[order[i]] && same_key(order[i - 1], order[i])) {
      return twice();
    }
  }
  return Status::Ok();
}

Status SnapshotReader::ReadStrings(const SectionRecord& section, const BlockShape& shape,
                                   const char* block, SectionBuffer* buffer) const {
  const RowLayout& layout = header_.layout;
  const bool string_keys = layout.key_type() == KeyType::kString;
  const size_t per_row = layout.value_dtype() == DType::kString ? layout.dim() : 0;
  buffer->keys.resize(string_keys ? buffer->words.size() : 0);
  buffer->values.resize(section.count * per_row);
  const char* const strings = block + shape.strings;
  uint64_t total = 0;
  const auto text = [&](const char* at, std::string_view* view) {
    SnapshotStringRef ref;
    std::memcpy(&ref, at, sizeof(ref));
    // count shared bytes each time: sharing would let a small file make a huge table
    total += ref.size;
    if (total > section.string_bytes) return Malformed("its strings are longer than their area");
    if (ref.offset > section.string_bytes || ref.size > section.string_bytes - ref.offset) {
      return Malformed("a string lies outside its string area");
    }
    *view = std::string_view(strings + ref.offset, ref.size);
    return Status::Ok();
  };
  const auto key = [&](size_t row, const char* at) {
    DE_RETURN_IF_ERROR(text(at, &buffer->keys[row]));
    if (HashBytes(buffer->keys[row]) == buffer->words[row]) return Status::Ok();
    return Malformed("a key is not the one its index entry is of");
  };
  for (size_t i = 0; (string_keys || per_row > 0) && i < section.count; ++i) {
    const char* row = block + shape.rows + i * layout.stride();
    if (string_keys) DE_RETURN_IF_ERROR(key(i, row + layout.key_offset()));
    for (size_t j = 0; j < per_row; ++j) {
      DE_RETURN_IF_ERROR(
          text(row + j * sizeof(SnapshotStringRef), &buffer->values[i * per_row + j]));
    }
  }
  for (size_t i = 0; string_keys && i < section.tombstones; ++i) {
    DE_RETURN_IF_ERROR(
        key(section.count + i, block + shape.tombstones + i * sizeof(SnapshotStringRef)));
  }
  return Status::Ok();
}

}  // namespace de::engine
