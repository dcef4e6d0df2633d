#include "de_core/cc/engine/snapshot/snapshot_header.h"

#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "de_core/cc/engine/base/crc32c.h"

namespace de::engine {
namespace {

// The magic bytes work as in PNG: the first byte occurs in no text, and a transfer in text mode
// would change the line ends.
constexpr uint8_t kMagic[8] = {0x89, 'D', 'E', 'S', '\r', '\n', 0x1a, '\n'};
constexpr uint32_t kEndianMark = 0x01020304;
// keys are hashed by Mix64 and HashBytes of hash.h, and searched as in line_index.h
constexpr uint8_t kHashMix64 = 1;
constexpr uint32_t kFlagValuesOnly = 1;
constexpr uint32_t kFlagReplaces = 2;

enum class FieldTag : uint16_t { kSlot = 1, kInitializer = 2, kMetadata = 3, kConverted = 4 };
constexpr uint16_t kFieldRequired = 1;

struct FieldRecord {
  uint16_t tag;
  uint16_t flags;
  uint32_t bytes;  // size of the payload; the next field starts at a multiple of 8
};
static_assert(sizeof(FieldRecord) == 8, "part of the format");

static_assert(static_cast<int>(InitializerOptions::Kind::kZeros) == 0 &&
                  static_cast<int>(InitializerOptions::Kind::kConstant) == 1 &&
                  static_cast<int>(InitializerOptions::Kind::kUniform) == 2 &&
                  static_cast<int>(InitializerOptions::Kind::kNormal) == 3 &&
                  static_cast<int>(InitializerOptions::Kind::kTruncatedNormal) == 4 &&
                  static_cast<int>(InitializerOptions::Kind::kRow) == 5 &&
                  static_cast<int>(InitializerOptions::Kind::kQuantile) == 6,
              "initializer kinds are stored by number");

template <typename T>
void Put(const T& value, std::string* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Reads values from a span of bytes, and remembers whether the span was too short.
class Cursor {
 public:
  Cursor(const char* data, uint64_t size) : at_(data), left_(size) {}

  template <typename T>
  T Get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = Bytes(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  std::string_view Bytes(uint64_t size) {
    ok_ = ok_ && size <= left_;
    if (!ok_) return {};
    const std::string_view bytes(at_, size);
    at_ += size;
    left_ -= size;
    return bytes;
  }
  bool ok() const { return ok_; }
  uint64_t left() const { return left_; }

 private:
  const char* at_;
  uint64_t left_;
  bool ok_ = true;
};

bool IsDType(uint8_t number) { return number >= 1 && number <= 9; }

std::string Number(const char* name, uint64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

Status BadField(const char* why) {
  return Status::DataLoss(std::string("the snapshot's header is malformed: ") + why);
}

void PutField(FieldTag tag, const std::string& payload, std::string* out) {
  Put(FieldRecord{static_cast<uint16_t>(tag), kFieldRequired,
                  static_cast<uint32_t>(payload.size())},
      out);
  out->append(payload);
  out->resize(RoundUpTo(out->size(), 8));
}

std::string SlotPayload(const RowSlot& slot) {
  std::string out;
  Put(static_cast<uint8_t>(slot.spec.dtype), &out);
  out.append(3, '\0');
  Put(static_cast<uint32_t>(slot.spec.width), &out);
  Put(slot.spec.initial, &out);
  Put(static_cast<uint32_t>(slot.offset), &out);
  Put(static_cast<uint32_t>(slot.owner.size()), &out);
  out.append(slot.owner).append(slot.spec.name);
  return out;
}

Status TakeSlot(Cursor in, RowLayout* layout) {
  const auto dtype = in.Get<uint8_t>();
  in.Bytes(3);
  SlotSpec spec{};
  spec.width = in.Get<uint32_t>();
  spec.initial = in.Get<double>();
  const auto offset = in.Get<uint32_t>();
  const std::string_view owner = in.Bytes(in.Get<uint32_t>());
  spec.name = std::string(in.Bytes(in.left()));
  if (!in.ok() || !IsDType(dtype) || static_cast<DType>(dtype) == DType::kString) {
    return BadField("a slot field is too short or has no numeric dtype");
  }
  spec.dtype = static_cast<DType>(dtype);
  if (spec.width == 0 || spec.width > kMaxDim || layout->slots().size() >= kMaxSlots) {
    return BadField("a slot must have 1 to 4096 elements, and a table at most 64 slots");
  }
  layout->Append(owner, {spec});
  if (layout->slots().back().offset != offset) {
    return BadField("a slot is not where the row layout puts it");
  }
  // Readers find this slot by owner and name alone, so check its dtype and width here.
  if (owner == kScaleOwner && spec.name == kScaleName &&
      (spec.dtype != DType::kFloat32 || spec.width != 1)) {
    return BadField("the scale of a row must be one float32");
  }
  return Status::Ok();
}

std::string InitializerPayload(const InitializerOptions& options) {
  std::string out;
  Put(static_cast<uint8_t>(options.kind), &out);
  out.append(7, '\0');
  Put(options.a, &out);
  Put(options.b, &out);
  Put(options.seed, &out);
  Put(static_cast<uint64_t>(options.table.size()), &out);
  out.append(reinterpret_cast<const char*>(options.table.data()),
             options.table.size() * sizeof(float));
  return out;
}

Status TakeInitializer(Cursor in, InitializerOptions* options) {
  const auto kind = in.Get<uint8_t>();
  in.Bytes(7);
  options->a = in.Get<double>();
  options->b = in.Get<double>();
  options->seed = in.Get<uint64_t>();
  const auto size = in.Get<uint64_t>();
  if (!in.ok() || in.left() % sizeof(float) != 0 || size != in.left() / sizeof(float)) {
    return BadField("the initializer field states another number of values than it holds");
  }
  if (kind > static_cast<uint8_t>(InitializerOptions::Kind::kQuantile)) {
    return BadField("the initializer is of an unknown kind");
  }
  options->kind = static_cast<InitializerOptions::Kind>(kind);
  options->table.resize(size);
  if (size > 0)
    std::memcpy(options->table.data(), in.Bytes(in.left()).data(), size * sizeof(float));
  return Status::Ok();
}

Status TakeMetadata(Cursor in, std::map<std::string, std::string>* metadata) {
  const std::string_view name = in.Bytes(in.Get<uint32_t>());
  if (!in.ok()) return BadField("a metadata field is too short for its name");
  (*metadata)[std::string(name)] = std::string(in.Bytes(in.left()));
  return Status::Ok();
}

Status TakeConverted(Cursor in, SnapshotHeader* header) {
  const auto dtype = in.Get<uint8_t>();
  if (!in.ok() || !IsDType(dtype) || !IsFloating(static_cast<DType>(dtype))) {
    return BadField("stored values must read as a floating-point dtype");
  }
  header->converted = static_cast<DType>(dtype);
  return Status::Ok();
}

/// Checks that the stored dtype can be converted to the dtype that values read as.
Status CheckConverted(const SnapshotHeader& header) {
  if (!header.converted.has_value()) return Status::Ok();
  const DType stored = header.layout.value_dtype();
  const bool scaled = header.layout.FindSlot(kScaleOwner, kScaleName) != nullptr;
  if (IsFloating(stored) || (stored == DType::kInt8 && scaled)) return Status::Ok();
  return BadField("its values cannot be stored as one dtype and read as the other");
}

Status TakeField(const FieldRecord& field, std::string_view payload, SnapshotHeader* header) {
  const Cursor in(payload.data(), payload.size());
  switch (static_cast<FieldTag>(field.tag)) {
    case FieldTag::kSlot:
      return TakeSlot(in, &header->layout);
    case FieldTag::kInitializer:
      return TakeInitializer(in, &header->initializer);
    case FieldTag::kMetadata:
      return TakeMetadata(in, &header->metadata);
    case FieldTag::kConverted:
      return TakeConverted(in, header);
  }
  if ((field.flags & kFieldRequired) == 0) return Status::Ok();
  return Status::FailedPrecondition(
      "the snapshot needs a feature that this build does not have; read it with the version that "
      "wrote it. Received: " +
      Number("header field", field.tag));
}

}  // namespace

Status CheckChecksum(const std::string& what, uint32_t computed, uint32_t stored) {
  if (computed == stored) return Status::Ok();
  return Status::DataLoss(what + " is corrupt: its checksum must be the stored one. Received: " +
                          "checksum=" + Hex32(computed) + ", stored=" + Hex32(stored));
}

std::string Hex32(uint32_t value) {
  std::string text = "0x";
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

std::string HexOf(const SnapshotId& id) {
  std::string text;
  for (const uint8_t byte : id) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

bool IdOf(std::string_view text, SnapshotId* id) {
  if (text.size() != 2 * id->size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = std::string_view("0123456789abcdef").find(text[i]);
    if (digit == std::string_view::npos) return false;
    uint8_t& byte = (*id)[i / 2];
    byte = static_cast<uint8_t>(i % 2 == 0 ? digit << 4 : byte | digit);
  }
  return true;
}

Status EncodeHeader(const SnapshotHeader& header, std::string* bytes,
                    std::array<uint32_t, 2>* checksums) {
  std::string fields;
  uint32_t count = 1;
  PutField(FieldTag::kInitializer, InitializerPayload(header.initializer), &fields);
  for (const RowSlot& slot : header.layout.slots()) {
    PutField(FieldTag::kSlot, SlotPayload(slot), &fields);
    ++count;
  }
  if (header.converted.has_value()) {
    PutField(FieldTag::kConverted, std::string(1, static_cast<char>(*header.converted)), &fields);
    ++count;
  }
  for (const auto& [name, value] : header.metadata) {
    std::string payload;
    Put(static_cast<uint32_t>(name.size()), &payload);
    PutField(FieldTag::kMetadata, payload.append(name).append(value), &fields);
    ++count;
  }
  const uint64_t total = RoundUpTo(sizeof(HeaderRecord) + fields.size() + sizeof(uint32_t), 64);
  if (total > kMaxHeaderBytes) {
    return Status::InvalidArgument(
        "initializer and metadata of a table must fit in 4 GiB. Received: " +
        Number("bytes", total));
  }
  if (header.layout.slots().size() > kMaxSlots) {
    return Status::InvalidArgument("a table has at most 64 slots. Received: " +
                                   Number("slots", header.layout.slots().size()));
  }
  HeaderRecord record{};
  std::memcpy(record.magic, kMagic, sizeof(kMagic));
  record.version = kSnapshotVersion;
  record.endian_mark = kEndianMark;
  record.header_bytes = total;
  record.kind = static_cast<uint8_t>(header.kind);
  record.key_type = static_cast<uint8_t>(header.layout.key_type());
  record.value_dtype = static_cast<uint8_t>(header.layout.value_dtype());
  record.hash_kind = kHashMix64;
  record.dim = static_cast<uint32_t>(header.layout.dim());
  record.row_stride = static_cast<uint32_t>(header.layout.stride());
  record.flags = (header.values_only ? kFlagValuesOnly : 0) | (header.replaces ? kFlagReplaces : 0);
  record.created_micros = header.created_micros;
  record.sequence = header.sequence;
  std::memcpy(record.id, header.id.data(), sizeof(record.id));
  std::memcpy(record.parent, header.parent.data(), sizeof(record.parent));
  record.field_count = count;
  record.crc = Crc32c(&record, offsetof(HeaderRecord, crc));

  fields.resize(total - sizeof(HeaderRecord) - sizeof(uint32_t));
  *checksums = {record.crc, Crc32c(fields.data(), fields.size())};
  bytes->clear();
  Put(record, bytes);
  bytes->append(fields);
  Put((*checksums)[1], bytes);
  return Status::Ok();
}

Status DecodeHeaderRecord(const char* prefix, uint64_t file_bytes, HeaderRecord* record) {
  const auto truncated = [&](const char* inside) {
    return Status::DataLoss(std::string("the snapshot is truncated inside its ") + inside +
                            ". Received: " + Number("file size", file_bytes));
  };
  if (file_bytes < sizeof(kMagic)) return truncated("first 8 bytes");
  if (std::memcmp(prefix, kMagic, sizeof(kMagic)) != 0) {
    return Status::InvalidArgument(
        "the file is not a snapshot: it does not begin with a snapshot's magic bytes");
  }
  if (file_bytes < sizeof(HeaderRecord)) return truncated("header");
  std::memcpy(record, prefix, sizeof(HeaderRecord));
  if (record->endian_mark != kEndianMark) {
    return Status::DataLoss("the snapshot's endianness mark must be " + Hex32(kEndianMark) +
                            ". Received: " + Hex32(record->endian_mark));
  }
  if (record->version > kSnapshotVersion) {
    return Status::FailedPrecondition(
        "the snapshot must have a version that this build reads; upgrade de_core. Received: " +
        Number("version", record->version) + ", " + Number("newest known", kSnapshotVersion));
  }
  DE_RETURN_IF_ERROR(CheckChecksum("the snapshot's header",
                                   Crc32c(prefix, offsetof(HeaderRecord, crc)), record->crc));
  if (record->version == 0) return BadField("version 0 does not exist");
  if (record->header_bytes < 192 || record->header_bytes % 64 != 0 ||
      record->header_bytes > kMaxHeaderBytes) {
    return BadField("its size is not a multiple of 64 from 192 to 4 Gi");
  }
  return file_bytes < record->header_bytes ? truncated("header") : Status::Ok();
}

Status DecodeHeader(const char* bytes, const HeaderRecord& record, SnapshotHeader* header,
                    std::array<uint32_t, 2>* checksums) {
  const uint64_t fields = record.header_bytes - sizeof(HeaderRecord) - sizeof(uint32_t);
  Cursor in(bytes + sizeof(HeaderRecord), fields);
  uint32_t stored;
  std::memcpy(&stored, bytes + record.header_bytes - sizeof(stored), sizeof(stored));
  const uint32_t computed = Crc32c(bytes + sizeof(HeaderRecord), fields);
  DE_RETURN_IF_ERROR(CheckChecksum("the snapshot's header", computed, stored));
  *checksums = {record.crc, stored};

  const bool base = record.kind == static_cast<uint8_t>(SnapshotKind::kBase);
  if ((record.flags & ~(kFlagValuesOnly | kFlagReplaces)) != 0 || record.hash_kind != kHashMix64 ||
      record.hash_seed != 0 ||
      (!base && record.kind != static_cast<uint8_t>(SnapshotKind::kDelta))) {
    return Status::FailedPrecondition(
        "the snapshot needs a feature that this build does not have; read it with the version "
        "that wrote it. Received: " +
        Number("kind", record.kind) + ", " + Number("flags", record.flags) + ", " +
        Number("hash", record.hash_kind) + ", " + Number("hash seed", record.hash_seed));
  }
  if (record.key_type < 1 || record.key_type > 2 || !IsDType(record.value_dtype) ||
      record.dim == 0 || record.dim > kMaxDim) {
    return BadField("its key type, value dtype or dim does not exist");
  }
  if (base && (record.flags & kFlagReplaces) != 0) {
    return BadField("a base has no parent to replace");
  }
  header->kind = static_cast<SnapshotKind>(record.kind);
  header->replaces = (record.flags & kFlagReplaces) != 0;
  header->values_only = (record.flags & kFlagValuesOnly) != 0;
  header->layout = RowLayout(static_cast<KeyType>(record.key_type),
                             static_cast<DType>(record.value_dtype), record.dim);
  header->created_micros = record.created_micros;
  header->sequence = record.sequence;
  std::memcpy(header->id.data(), record.id, sizeof(record.id));
  std::memcpy(header->parent.data(), record.parent, sizeof(record.parent));
  for (uint32_t i = 0; i < record.field_count; ++i) {
    const auto field = in.Get<FieldRecord>();
    const std::string_view payload = in.Bytes(field.bytes);
    in.Bytes(RoundUpTo(field.bytes, 8) - field.bytes);
    if (!in.ok()) return BadField("its fields are longer than the header");
    DE_RETURN_IF_ERROR(TakeField(field, payload, header));
  }
  if (header->layout.stride() != record.row_stride) {
    return BadField("its row stride does not match its row layout");
  }
  return CheckConverted(*header);
}

}  // namespace de::engine
