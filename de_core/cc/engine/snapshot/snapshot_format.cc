#include "de_core/cc/engine/snapshot/snapshot_format.h"

#include <cstddef>
#include <cstring>

#include "de_core/cc/engine/base/crc32c.h"

namespace de::engine {
namespace {

constexpr uint8_t kEndMagic[8] = {'D', 'E', 'S', '-', 'E', 'N', 'D', '\n'};
constexpr uint32_t kBlockMagic = 0x4b4c4244;  // "DBLK" in the file

Status Malformed(const std::string& what, const char* why) {
  return Status::DataLoss(what + " is malformed: " + why);
}

}  // namespace

std::string SectionName(uint64_t number, uint64_t offset) {
  return "section " + std::to_string(number) + " at offset " + std::to_string(offset);
}

BlockRecord MakeBlockRecord(uint64_t number, const SectionRecord& section, size_t stride) {
  BlockRecord block{};
  block.magic = kBlockMagic;
  block.number = static_cast<uint32_t>(number);
  block.hash_begin = section.hash_begin;
  block.hash_last = section.hash_last;
  block.count = section.count;
  block.lines = section.lines;
  block.string_bytes = section.string_bytes;
  block.tombstones = section.tombstones;
  block.row_stride = static_cast<uint32_t>(stride);
  return block;
}

bool IsBlockOf(const char* bytes, uint64_t number, const SectionRecord& section, size_t stride) {
  const BlockRecord expected = MakeBlockRecord(number, section, stride);
  return std::memcmp(bytes, &expected, offsetof(BlockRecord, reserved)) == 0;
}

void SealFooter(FooterRecord* footer) {
  std::memcpy(footer->magic, kEndMagic, sizeof(kEndMagic));
  footer->crc = Crc32c(footer, offsetof(FooterRecord, crc));
}

Status DecodeFooter(const char* tail, uint64_t file_bytes, const HeaderRecord& header,
                    FooterRecord* footer) {
  const std::string received = " Received: file size=" + std::to_string(file_bytes);
  if (file_bytes < LeastFileBytes(header.header_bytes)) {
    return Status::DataLoss("the snapshot is truncated after its header." + received);
  }
  std::memcpy(footer, tail, sizeof(FooterRecord));
  if (std::memcmp(footer->magic, kEndMagic, sizeof(kEndMagic)) != 0) {
    return Status::DataLoss(
        "the snapshot is truncated, or its end was overwritten: its last 8 bytes must be the end "
        "mark." +
        received);
  }
  DE_RETURN_IF_ERROR(CheckChecksum("the snapshot's footer",
                                   Crc32c(tail, offsetof(FooterRecord, crc)), footer->crc));
  if (footer->file_bytes != file_bytes) {
    return Status::DataLoss("the snapshot must be as long as its footer says, " +
                            std::to_string(footer->file_bytes) + " bytes." + received);
  }
  if (std::memcmp(footer->id, header.id, sizeof(header.id)) != 0) {
    return Malformed("the snapshot", "header and footer are of different snapshots");
  }
  const uint64_t body = file_bytes - sizeof(FooterRecord);
  if (footer->section_count > body / sizeof(SectionRecord) ||
      footer->directory_offset < header.header_bytes || footer->directory_offset > body ||
      body - footer->directory_offset != DirectoryBytes(footer->section_count)) {
    return Malformed("the snapshot's footer", "its directory does not end where the footer begins");
  }
  return Status::Ok();
}

Status DecodeDirectory(const char* bytes, uint64_t header_bytes, const FooterRecord& footer,
                       const SnapshotHeader& header,
                       const std::array<uint32_t, 2>& header_checksums,
                       std::vector<SectionRecord>* sections) {
  const RowLayout& layout = header.layout;
  const std::string what = "the snapshot's section directory";
  const uint64_t checked = DirectoryBytes(footer.section_count) - sizeof(uint32_t);
  uint32_t stored;
  std::memcpy(&stored, bytes + checked, sizeof(stored));
  DE_RETURN_IF_ERROR(CheckChecksum(what + " at offset " + std::to_string(footer.directory_offset),
                                   Crc32c(bytes, checked), stored));
  sections->resize(footer.section_count);
  if (!sections->empty()) {
    std::memcpy(sections->data(), bytes, sections->size() * sizeof(SectionRecord));
  }
  const bool has_strings =
      layout.key_type() == KeyType::kString || layout.value_dtype() == DType::kString;
  uint32_t contents = Crc32c(header_checksums.data(), sizeof(header_checksums));
  uint64_t offset = header_bytes;
  uint64_t rows = 0;
  uint64_t tombstones = 0;
  uint64_t string_bytes = 0;
  for (size_t i = 0; i < sections->size(); ++i) {
    const SectionRecord& section = (*sections)[i];
    const auto malformed = [&](const char* why) {
      return Malformed(SectionName(i, section.offset), why);
    };
    if (section.offset != offset) return malformed("it must begin where the one before ends");
    if (section.hash_begin > section.hash_last ||
        (i > 0 && section.hash_begin <= (*sections)[i - 1].hash_last)) {
      return malformed("its range of hashes must follow that of the one before");
    }
    if (section.tombstones != 0 && header.kind == SnapshotKind::kBase) {
      return malformed("a base snapshot has no tombstones");
    }
    const uint64_t entries = uint64_t{section.count} + section.tombstones;
    if (entries == 0 || entries > kMaxSectionRows ||
        uint64_t{section.lines} * kEntriesPerLine < entries) {
      return malformed("its index has no room for its rows");
    }
    if (section.string_bytes > (has_strings ? kMaxSectionStrings : 0)) {
      return malformed("its string area must be empty or below 4 GiB");
    }
    const uint64_t block = ShapeOf(section, layout.stride(), layout.key_type()).bytes;
    if (block > footer.directory_offset - offset) return malformed("it reaches past the directory");
    offset += block;
    rows += section.count;
    tombstones += section.tombstones;
    string_bytes += section.string_bytes;
    contents = Crc32cExtend(contents, &section.crc, sizeof(section.crc));
  }
  contents = Crc32cExtend(contents, &stored, sizeof(stored));
  if (offset != footer.directory_offset || rows != footer.row_count ||
      string_bytes != footer.string_bytes || footer.tombstone_count != tombstones) {
    return Malformed(what, "its sections do not add up to what the footer says");
  }
  return CheckChecksum("the snapshot's contents", contents, footer.contents_crc);
}

}  // namespace de::engine
