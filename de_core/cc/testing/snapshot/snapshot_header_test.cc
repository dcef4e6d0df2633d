// The header of a snapshot file: decoding returns what was encoded, and rejects malformed bytes.
#include "de_core/cc/engine/snapshot/snapshot_header.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::SampleHeader;

/// Decodes a copy of exactly these bytes, so that a sanitizer detects a read past the end.
Status Decode(const std::string& bytes, SnapshotHeader* header) {
  const testing::AlignedBytes copy(bytes);
  HeaderRecord record;
  DE_RETURN_IF_ERROR(DecodeHeaderRecord(copy.data(), copy.size(), &record));
  std::array<uint32_t, 2> checksums;
  return DecodeHeader(copy.data(), record, header, &checksums);
}

Status Decode(const std::string& bytes) {
  SnapshotHeader header;
  return Decode(bytes, &header);
}

std::string Encode(const SnapshotHeader& header) {
  std::string bytes;
  std::array<uint32_t, 2> checksums;
  const Status status = EncodeHeader(header, &bytes, &checksums);
  EXPECT_TRUE(status.ok()) << status.message;
  return bytes;
}

/// Corrects the header's checksums.
std::string Sealed(std::string bytes) {
  const auto seal = [&](size_t begin, size_t end) {
    const uint32_t crc = Crc32c(bytes.data() + begin, end - begin);
    std::memcpy(bytes.data() + end, &crc, sizeof(crc));
  };
  seal(0, offsetof(HeaderRecord, crc));
  seal(sizeof(HeaderRecord), bytes.size() - sizeof(uint32_t));
  return bytes;
}

/// Returns a header with only these fields, each (tag, payload), all required.
std::string WithFields(const std::vector<std::pair<uint16_t, std::string>>& fields,
                       uint32_t stride = 4) {
  std::string bytes = Encode(SnapshotHeader(RowLayout(KeyType::kInt64, DType::kInt8, 4)));
  bytes.resize(sizeof(HeaderRecord));
  for (const auto& [tag, payload] : fields) {
    const uint16_t begin[2] = {tag, 1};
    const auto size = static_cast<uint32_t>(payload.size());
    bytes.append(reinterpret_cast<const char*>(begin), sizeof(begin));
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(payload);
    bytes.resize(RoundUpTo(bytes.size(), 8));
  }
  bytes.resize(std::max<size_t>(RoundUpTo(bytes.size() + sizeof(uint32_t), 64), 192));
  const uint64_t total = bytes.size();
  const auto count = static_cast<uint32_t>(fields.size());
  std::memcpy(&bytes[offsetof(HeaderRecord, header_bytes)], &total, sizeof(total));
  std::memcpy(&bytes[offsetof(HeaderRecord, field_count)], &count, sizeof(count));
  std::memcpy(&bytes[offsetof(HeaderRecord, row_stride)], &stride, sizeof(stride));
  return bytes;
}

template <typename T>
void Append(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Returns a slot field as docs/reference/snapshot-format.md specifies it.
std::string Slot(DType dtype, uint32_t width, uint32_t offset, const std::string& owner,
                 const std::string& name) {
  std::string out;
  Append(static_cast<uint32_t>(dtype), &out);
  Append(width, &out);
  Append(0.0, &out);
  Append(offset, &out);
  Append(static_cast<uint32_t>(owner.size()), &out);
  return out + owner + name;
}

void ExpectMalformed(std::string bytes, const std::string& why) {
  const Status status = Decode(Sealed(std::move(bytes)));
  EXPECT_EQ(status.code, Code::kDataLoss) << why;
  EXPECT_NE(status.message.find(why), std::string::npos) << status.message;
}

TEST(SnapshotHeader, everything_in_it_is_read_back) {
  SnapshotHeader header = SampleHeader();
  header.layout = RowLayout(KeyType::kString, DType::kHalf, kMaxDim);
  header.layout.Append(
      "adam", {{"m", DType::kFloat32, kMaxDim, -0.0}, {"v", DType::kFloat64, 1, std::nan("")}});
  header.layout.Append("", {{"", DType::kBool, 3, 1}});
  header.kind = SnapshotKind::kDelta;
  header.values_only = header.replaces = true;
  header.converted = DType::kFloat32;
  header.parent[3] = 9;
  header.sequence = ~uint64_t{0};
  header.created_micros = INT64_MIN;
  header.initializer.kind = InitializerOptions::Kind::kQuantile;
  header.initializer.table = {1, 2, 3};
  header.metadata = {{"", "no name"}, {"nothing", ""}, {std::string("\0\xff", 2), "bytes"}};
  SnapshotHeader read;
  const Status status = Decode(Encode(header), &read);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(read.kind, SnapshotKind::kDelta);
  EXPECT_TRUE(read.values_only);
  EXPECT_TRUE(read.replaces);
  EXPECT_EQ(read.converted, DType::kFloat32);
  EXPECT_EQ(read.reads_as(), DType::kFloat32);
  EXPECT_EQ(read.layout.key_type(), KeyType::kString);
  EXPECT_EQ(read.layout.value_dtype(), DType::kHalf);
  EXPECT_EQ(read.layout.dim(), kMaxDim);
  EXPECT_EQ(read.layout.stride(), header.layout.stride());
  ASSERT_EQ(read.layout.slots().size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const RowSlot &slot = read.layout.slots()[i], &wanted = header.layout.slots()[i];
    EXPECT_EQ(slot.owner, wanted.owner);
    EXPECT_EQ(slot.spec.name, wanted.spec.name);
    EXPECT_EQ(slot.spec.dtype, wanted.spec.dtype);
    EXPECT_EQ(slot.spec.width, wanted.spec.width);
    EXPECT_EQ(slot.offset, wanted.offset);
    EXPECT_EQ(BitsOf(slot.spec.initial), BitsOf(wanted.spec.initial));
  }
  EXPECT_EQ(read.id, header.id);
  EXPECT_EQ(read.parent, header.parent);
  EXPECT_EQ(read.sequence, header.sequence);
  EXPECT_EQ(read.created_micros, header.created_micros);
  EXPECT_EQ(read.initializer.table, header.initializer.table);
  EXPECT_EQ(read.metadata, header.metadata);
  EXPECT_EQ(Encode(read), Encode(header));
}

TEST(SnapshotHeader, is_padded_to_64_bytes_and_returns_its_checksums) {
  for (size_t length = 0; length < 80; ++length) {
    SnapshotHeader header;
    header.metadata["x"] = std::string(length, 'y');
    std::string bytes;
    std::array<uint32_t, 2> written, read;
    ASSERT_TRUE(EncodeHeader(header, &bytes, &written).ok());
    EXPECT_EQ(bytes.size() % 64, 0U);
    HeaderRecord record;
    ASSERT_TRUE(DecodeHeaderRecord(bytes.data(), bytes.size(), &record).ok());
    EXPECT_EQ(record.header_bytes, bytes.size());
    ASSERT_TRUE(DecodeHeader(bytes.data(), record, &header, &read).ok());
    EXPECT_EQ(read, written);
  }
}

TEST(SnapshotHeader, slots_that_cannot_be_are_refused) {
  const std::string good = Slot(DType::kFloat32, 1, 4, "o", "n");
  EXPECT_TRUE(Decode(Sealed(WithFields({{1, good}}, 8))).ok());
  const char* const kShort = "a slot field is too short or has no numeric dtype";
  for (size_t size = 0; size < 25; ++size) {
    ExpectMalformed(WithFields({{1, good.substr(0, size)}}), kShort);
  }
  ExpectMalformed(WithFields({{1, Slot(DType::kString, 1, 8, "o", "n")}}), kShort);
  ExpectMalformed(WithFields({{1, Slot(static_cast<DType>(0), 1, 4, "o", "n")}}), kShort);
  ExpectMalformed(WithFields({{1, Slot(static_cast<DType>(10), 1, 4, "o", "n")}}), kShort);
  const char* const kWidth = "a slot must have 1 to 4096 elements";
  for (const uint32_t width : {0U, 4097U, ~0U}) {
    ExpectMalformed(WithFields({{1, Slot(DType::kFloat32, width, 4, "o", "n")}}), kWidth);
  }
  ExpectMalformed(WithFields({{1, Slot(DType::kFloat32, 1, 8, "o", "n")}}),
                  "a slot is not where the row layout puts it");
  std::vector<std::pair<uint16_t, std::string>> many;
  for (uint32_t i = 0; i < kMaxSlots + 1; ++i) {
    many.emplace_back(1, Slot(DType::kBool, 1, 4 + i, "o", std::to_string(i)));
  }
  ExpectMalformed(WithFields(many), kWidth);
}

TEST(SnapshotHeader, the_scale_of_int8_is_one_float) {
  const std::string owner(kScaleOwner), name(kScaleName);
  const std::string converted(1, static_cast<char>(DType::kFloat32));
  EXPECT_FALSE(Decode(Sealed(WithFields({{4, converted}}))).ok());
  const auto with = [&](DType dtype, uint32_t width, uint32_t offset) {
    return WithFields({{1, Slot(dtype, width, offset, owner, name)}}, 8);
  };
  const char* const kWhy = "the scale of a row must be one float32";
  // Reading the scale takes four bytes, whether or not the header says that values are converted.
  ExpectMalformed(with(DType::kInt8, 1, 4), kWhy);
  ExpectMalformed(with(DType::kFloat64, 1, 8), kWhy);
  ExpectMalformed(with(DType::kFloat32, 2, 4), kWhy);
  EXPECT_TRUE(Decode(Sealed(with(DType::kFloat32, 1, 4))).ok());
}

TEST(SnapshotHeader, other_fields_that_cannot_be_are_refused) {
  const std::string initializer = [] {
    std::string out;
    Append(uint64_t{6}, &out);                                    // the kind
    for (const uint64_t word : {0, 0, 0, 2}) Append(word, &out);  // a, b, seed, count
    Append(uint64_t{0}, &out);
    return out;
  }();
  EXPECT_TRUE(Decode(Sealed(WithFields({{2, initializer}}))).ok());
  const char* const kCount = "the initializer field states another number of values than it holds";
  for (size_t size = 0; size < initializer.size(); ++size) {
    ExpectMalformed(WithFields({{2, initializer.substr(0, size)}}), kCount);
  }
  std::string huge = initializer;
  huge[39] = '\x40';  // a count whose size in bytes (times four) overflows to the actual size
  ExpectMalformed(WithFields({{2, huge}}), kCount);
  std::string kind = initializer;
  kind[0] = 7;
  ExpectMalformed(WithFields({{2, kind}}), "the initializer is of an unknown kind");
  for (const std::string name :
       {std::string(), std::string(3, '\0'), std::string("\5\0\0\0abcd", 8),
        std::string("\xff\xff\xff\xff", 4)}) {
    ExpectMalformed(WithFields({{3, name}}), "a metadata field is too short for its name");
  }
  for (const std::string dtype : {"", "\5", "\x0a", "\x09"}) {
    ExpectMalformed(WithFields({{4, dtype}}), "stored values must read as a floating-point dtype");
  }
}

TEST(SnapshotHeader, more_fields_than_it_has_room_for_are_refused) {
  std::string bytes = Encode(SnapshotHeader());
  bytes[offsetof(HeaderRecord, field_count) + 3] = '\x7f';
  ExpectMalformed(bytes, "its fields are longer than the header");
  bytes = Encode(SnapshotHeader());
  std::memcpy(&bytes[sizeof(HeaderRecord) + 4], "\xff\xff\xff\xff", 4);  // size of the first field
  ExpectMalformed(bytes, "its fields are longer than the header");
}

TEST(SnapshotHeader, records_that_cannot_be_are_refused) {
  const auto with = [](size_t at, uint64_t value, size_t bytes) {
    std::string header = Encode(SnapshotHeader());
    std::memcpy(&header[at], &value, bytes);
    return header;
  };
  const char* const kType = "its key type, value dtype or dim does not exist";
  for (const uint64_t key_type : {0, 3}) {
    ExpectMalformed(with(offsetof(HeaderRecord, key_type), key_type, 1), kType);
  }
  for (const uint64_t dtype : {0, 10, 255}) {
    ExpectMalformed(with(offsetof(HeaderRecord, value_dtype), dtype, 1), kType);
  }
  for (const uint64_t dim : {0, 4097}) {
    ExpectMalformed(with(offsetof(HeaderRecord, dim), dim, 4), kType);
  }
  ExpectMalformed(with(offsetof(HeaderRecord, row_stride), 8, 4), "its row stride does not match");
  ExpectMalformed(with(offsetof(HeaderRecord, flags), 2, 4), "a base has no parent to replace");
  ExpectMalformed(with(offsetof(HeaderRecord, version), 0, 4), "version 0 does not exist");
  for (const uint64_t size : {uint64_t{0}, uint64_t{128}, uint64_t{193}, kMaxHeaderBytes + 64}) {
    ExpectMalformed(with(offsetof(HeaderRecord, header_bytes), size, 8),
                    "its size is not a multiple of 64 from 192 to 4 Gi");
  }
}

TEST(SnapshotHeader, more_slots_than_can_be_read_are_not_written) {
  std::string bytes;
  std::array<uint32_t, 2> checksums;
  SnapshotHeader slots;
  for (size_t i = 0; i < kMaxSlots; ++i) slots.layout.Append("o", {{"n", DType::kBool, 1, 0}});
  EXPECT_TRUE(EncodeHeader(slots, &bytes, &checksums).ok());
  slots.layout.Append("o", {{"one more", DType::kBool, 1, 0}});
  EXPECT_EQ(EncodeHeader(slots, &bytes, &checksums).code, Code::kInvalidArgument);
}

TEST(SnapshotId, is_32_lower_case_digits_and_nothing_else) {
  const SnapshotId id = SampleHeader().id;
  EXPECT_EQ(HexOf(id), "0102030405060708090a0b0c0d0e0f10");
  SnapshotId read{};
  ASSERT_TRUE(IdOf(HexOf(id), &read));
  EXPECT_EQ(read, id);
  const std::string text = HexOf(id);
  EXPECT_FALSE(IdOf("", &read));
  EXPECT_FALSE(IdOf(text.substr(1), &read));
  EXPECT_FALSE(IdOf(text + '0', &read));
  for (const char wrong : {'g', 'A', ' ', '\0'}) {
    for (const size_t at : {size_t{0}, size_t{31}}) {
      std::string other = text;
      other[at] = wrong;
      EXPECT_FALSE(IdOf(other, &read)) << wrong << at;
    }
  }
  EXPECT_EQ(Hex32(0x00c0ffee), "0x00c0ffee");
}

}  // namespace
}  // namespace de::engine
