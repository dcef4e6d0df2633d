// Snapshot files: reading returns what was written, and rejects everything else.
#include <gtest/gtest.h>

#include <unordered_map>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::AlignedBytes;
using testing::OpenAndRead;
using testing::ReadOnlySource;
using testing::Reseal;
using testing::SampleHeader;
using testing::SampleTable;

const std::vector<SlotSpec> kAdam = {{"m", DType::kFloat32, 3, 0.0},
                                     {"v", DType::kFloat32, 3, 0.5}};

RowLayout Layout(KeyType key_type, DType dtype, size_t dim, bool slots = false) {
  RowLayout layout(key_type, dtype, dim);
  if (slots) layout.Append("adam", kAdam);
  return layout;
}

Status Verify(std::string_view bytes) {
  std::unique_ptr<SnapshotReader> reader;
  return OpenAndRead(bytes, &reader);
}

/// Reads all sections and compares them with the table, row by row and byte by byte.
void ExpectHolds(const SnapshotReader& reader, const SampleTable& table) {
  ASSERT_EQ(reader.rows(), table.size());
  const RowLayout& layout = reader.header().layout;
  const bool string_keys = layout.key_type() == KeyType::kString;
  std::unordered_map<uint64_t, size_t> row_of;
  for (size_t i = 0; i < table.size(); ++i) row_of[table.WordOf(table.keys()[i])] = i;
  SectionBuffer buffer;
  for (size_t k = 0; k < reader.sections().size(); ++k) {
    const Status status = reader.ReadSection(k, &buffer);
    ASSERT_TRUE(status.ok()) << status.message;
    const SnapshotSection& section = buffer.section;
    for (size_t i = 0; i < section.count; ++i) {
      const auto found = row_of.find(section.words[i]);
      ASSERT_NE(found, row_of.end());
      const size_t original = found->second;
      row_of.erase(found);
      if (string_keys) {
        ASSERT_EQ(section.keys[i], table.keys()[original].text);
      }
      size_t end = string_keys ? layout.key_offset() : layout.stride();
      if (reader.header().values_only) end = layout.value_bytes();
      const std::string_view row(section.rows + i * layout.stride(), end);
      if (layout.value_dtype() != DType::kString) {
        ASSERT_EQ(row, table.row(original).substr(0, end));
        continue;
      }
      for (size_t j = 0; j < layout.dim(); ++j) {
        ASSERT_EQ(section.values[i * layout.dim() + j], table.value(original, j));
      }
    }
  }
  EXPECT_TRUE(row_of.empty());
}

struct Case {
  KeyType key_type;
  DType dtype;
  size_t dim;
  bool slots;
  bool values_only;
  size_t rows;
  uint32_t bits;
};

class RoundTrip : public ::testing::TestWithParam<Case> {};

TEST_P(RoundTrip, keeps_every_row_mapped_and_streamed) {
  const Case& c = GetParam();
  const SampleTable table(Layout(c.key_type, c.dtype, c.dim, c.slots), c.rows);
  SnapshotHeader header = SampleHeader();
  header.values_only = c.values_only;
  const std::string bytes = table.Bytes(header, c.bits);

  std::unique_ptr<SnapshotReader> reader;
  Status status = OpenAndRead(bytes, &reader);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(reader->header().layout.slots().size(), c.slots && !c.values_only ? 2U : 0U);
  ExpectHolds(*reader, table);

  status = SnapshotReader::Open(std::make_unique<ReadOnlySource>(bytes), &reader);
  ASSERT_TRUE(status.ok()) << status.message;
  ExpectHolds(*reader, table);
}

INSTANTIATE_TEST_SUITE_P(
    Tables, RoundTrip,
    ::testing::Values(Case{KeyType::kInt64, DType::kFloat32, 16, false, false, 0, 4},
                      Case{KeyType::kInt64, DType::kFloat32, 16, false, false, 1, 4},
                      Case{KeyType::kString, DType::kFloat32, 3, true, false, 1, 0},
                      Case{KeyType::kInt64, DType::kFloat32, 3, true, false, 100000, 4},
                      Case{KeyType::kInt64, DType::kFloat32, 3, true, true, 100000, 6},
                      Case{KeyType::kInt64, DType::kHalf, 3, true, false, 777, 2},
                      Case{KeyType::kInt64, DType::kHalf, 3, true, true, 777, 2},
                      Case{KeyType::kInt64, DType::kBFloat16, 1, false, false, 5000, 0},
                      Case{KeyType::kInt64, DType::kFloat64, 2, true, false, 500, 3},
                      Case{KeyType::kInt64, DType::kInt8, 5, false, false, 500, 3},
                      Case{KeyType::kInt64, DType::kBool, 1, false, false, 500, 3},
                      Case{KeyType::kInt64, DType::kInt32, 1, false, false, 500, 3},
                      Case{KeyType::kInt64, DType::kInt64, 4096, false, false, 50, 1},
                      Case{KeyType::kInt64, DType::kString, 2, false, false, 3000, 2},
                      Case{KeyType::kString, DType::kFloat32, 16, false, false, 100000, 5},
                      Case{KeyType::kString, DType::kHalf, 3, true, false, 1000, 2},
                      Case{KeyType::kString, DType::kHalf, 3, true, true, 1000, 2},
                      Case{KeyType::kString, DType::kInt64, 4096, false, false, 100, 0},
                      Case{KeyType::kString, DType::kString, 3, false, false, 3000, 4}));

class Delta : public ::testing::TestWithParam<KeyType> {};
INSTANTIATE_TEST_SUITE_P(Keys, Delta, ::testing::Values(KeyType::kInt64, KeyType::kString));

TEST_P(Delta, keeps_rows_and_tombstones) {
  const SampleTable table(Layout(GetParam(), DType::kFloat32, 2), 100);
  const std::string bytes = table.Bytes(testing::SampleDeltaHeader(SampleHeader()), 1);
  std::unique_ptr<SnapshotReader> reader;
  const Status status = OpenAndRead(bytes, &reader);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(reader->tombstones(), 34U);
  EXPECT_EQ(reader->rows(), 66U);
  size_t at = 0;
  SectionBuffer buffer;
  for (size_t i = 0; i < reader->sections().size(); ++i) {
    ASSERT_TRUE(reader->ReadSection(i, &buffer).ok());
    const SnapshotSection& section = buffer.section;
    size_t row = 0, gone = 0;
    for (; row + gone < section.count + section.tombstones; ++at) {
      const bool is_gone = SampleTable::IsGone(at);
      const uint64_t word = table.WordOf(table.keys()[at]);
      ASSERT_EQ(is_gone ? section.tombstone_words[gone] : section.words[row], word);
      if (GetParam() == KeyType::kString) {
        ASSERT_EQ(is_gone ? section.tombstone_keys[gone] : section.keys[row],
                  table.keys()[at].text);
      }
      ++(is_gone ? gone : row);
    }
  }
}

TEST(Snapshot, same_rows_give_the_same_bytes) {
  const SampleTable table(Layout(KeyType::kString, DType::kString, 2), 500);
  EXPECT_EQ(table.Bytes(SampleHeader(), 3), table.Bytes(SampleHeader(), 3));
}

TEST(Snapshot, takes_at_most_a_tenth_more_than_keys_and_values) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 16), 64000);
  const double payload = 64000.0 * (8 + 16 * 4);
  EXPECT_LE(static_cast<double>(table.Bytes(SampleHeader(), 4).size()), 1.1 * payload);
}

// --------------------------------------------------------------------------- damaged files
// ../fuzz/snapshot_fuzz.cc, which runs with these tests, also corrects checksums after the damage.

std::string SmallFile() {
  return SampleTable(Layout(KeyType::kString, DType::kFloat32, 2, true), 40)
      .Bytes(SampleHeader(), 2);
}

std::string SmallDelta(KeyType key_type) {
  return SampleTable(Layout(key_type, DType::kFloat32, 2), 100)
      .Bytes(testing::SampleDeltaHeader(SampleHeader()), 1);
}

class DamagedFile : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Files, DamagedFile,
    ::testing::Values(
        SmallFile(), SmallDelta(KeyType::kInt64), SmallDelta(KeyType::kString),
        SampleTable(Layout(KeyType::kInt64, DType::kString, 2), 40).Bytes(SampleHeader(), 2)),
    [](const auto& info) { return std::to_string(info.index); });

TEST_P(DamagedFile, every_truncation_is_named) {
  const std::string& bytes = GetParam();
  ASSERT_TRUE(Verify(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const AlignedBytes cut(std::string_view(bytes).substr(0, size));
    const Status mapped = Verify({cut.data(), size});
    ASSERT_EQ(mapped.code, Code::kDataLoss) << size;
    ASSERT_NE(mapped.message.find("truncated"), std::string::npos) << mapped.message;
    auto source = std::make_unique<ReadOnlySource>(std::string_view(bytes).substr(0, size));
    std::unique_ptr<SnapshotReader> reader;
    ASSERT_EQ(SnapshotReader::Open(std::move(source), &reader).message, mapped.message);
  }
}

TEST_P(DamagedFile, every_flipped_byte_and_bit_is_named) {
  std::string bytes = GetParam();
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int flip : {0xff, 1 << (i % 8)}) {
      const char kept = bytes[i];
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      const Status status = Verify(bytes);
      ASSERT_FALSE(status.ok()) << "byte " << i;
      ASSERT_NE(status.message, "");
      bytes[i] = kept;
    }
  }
}

TEST(DamagedSnapshot, another_file_is_not_a_snapshot) {
  const Status status = Verify("PK\x03\x04 is how a zip file begins and it goes on for a while");
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.message.find("not a snapshot"), std::string::npos);
}

TEST(DamagedSnapshot, appended_bytes_are_an_error) {
  EXPECT_EQ(Verify(SmallFile() + "x").code, Code::kDataLoss);
  EXPECT_EQ(Verify(SmallFile() + SmallFile()).code, Code::kDataLoss);
}

TEST(DamagedSnapshot, a_newer_version_is_refused_whatever_its_checksums) {
  std::string bytes = SmallFile();
  bytes[8] = 2;
  EXPECT_EQ(Verify(bytes).code, Code::kFailedPrecondition);
  Reseal(&bytes);
  const Status status = Verify(bytes);
  EXPECT_EQ(status.code, Code::kFailedPrecondition);
  EXPECT_NE(status.message.find("a version that this build reads"), std::string::npos)
      << status.message;
  EXPECT_NE(status.message.find("version=2"), std::string::npos) << status.message;
}

TEST(DamagedSnapshot, unknown_kinds_flags_and_hashes_are_refused) {
  for (const size_t at : {24, 27, 36, 40}) {
    std::string bytes = SmallFile();
    bytes[at] = 4;
    Reseal(&bytes);
    EXPECT_EQ(Verify(bytes).code, Code::kFailedPrecondition) << at;
  }
}

TEST(DamagedSnapshot, an_unknown_field_is_refused_only_if_required) {
  std::string bytes = SmallFile();
  const size_t field = sizeof(HeaderRecord);  // the first one: the initializer, tag 2, required
  ASSERT_EQ(bytes[field], 2);
  bytes[field] = 99;
  Reseal(&bytes);
  EXPECT_EQ(Verify(bytes).code, Code::kFailedPrecondition);
  bytes[field + 2] = 0;
  Reseal(&bytes);
  EXPECT_TRUE(Verify(bytes).ok());
}

TEST(DamagedSnapshot, a_key_that_is_there_twice_is_named) {
  for (const size_t rows : {2U, 400U}) {
    SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 2), rows);
    std::vector<testing::SampleKey> keys = table.keys();
    keys[0] = keys[rows / 2];
    table.SetKeys(keys);
    const Status status = Verify(table.Bytes(SampleHeader(), 0));
    EXPECT_EQ(status.code, Code::kDataLoss);
    EXPECT_NE(status.message.find("there twice"), std::string::npos) << status.message;
  }
}

TEST(DamagedSnapshot, a_key_that_no_search_finds_is_named) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 1), 2000);
  const std::string intact = table.Bytes(SampleHeader(), 0);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(OpenAndRead(intact, &reader).ok());
  const SectionRecord section = reader->sections()[0];
  size_t passed_lines = 0;
  for (uint32_t k = 0; k < section.lines && passed_lines < 20; ++k) {
    const uint64_t at = section.offset + sizeof(BlockRecord) + k * sizeof(IndexLine);
    if (intact[at + offsetof(IndexLine, overflow)] == 0) continue;
    ++passed_lines;
    for (const size_t part : {offsetof(IndexLine, overflow), offsetof(IndexLine, filter)}) {
      std::string damaged = intact;
      damaged[at + part] = 0;
      damaged[at + offsetof(IndexLine, filter) + 1] &= damaged[at + part];
      Reseal(&damaged);
      const Status status = Verify(damaged);
      EXPECT_EQ(status.code, Code::kDataLoss);
      EXPECT_NE(status.message.find("no search finds it"), std::string::npos) << status.message;
    }
  }
  EXPECT_EQ(passed_lines, 20U);
}

TEST(DamagedSnapshot, each_fault_of_an_index_is_named) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 1), 2000);
  const std::string intact = table.Bytes(SampleHeader(), 1);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(OpenAndRead(intact, &reader).ok());
  const SectionRecord section = reader->sections()[0];
  const auto verify = [&](const auto& damage) {
    std::string bytes = intact;
    IndexLine line;
    uint64_t at = section.offset + sizeof(BlockRecord);
    for (;; at += sizeof(line)) {
      std::memcpy(&line, bytes.data() + at, sizeof(line));
      if (line.used == kFullLine) break;
    }
    damage(&line);
    std::memcpy(&bytes[at], &line, sizeof(line));
    Reseal(&bytes);
    return Verify(bytes).message;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(verify([](IndexLine*) {}), "");
  const std::string missing = verify([](IndexLine* line) { line->used ^= 1; });
  EXPECT_TRUE(has(missing, "a row is missing from the index")) << missing;
  const std::string many = verify([](IndexLine* line) { line->used |= kFullLine + 1; });
  EXPECT_TRUE(has(many, "too many entries")) << many;
  const std::string stray = verify([&](IndexLine* line) { line->rows[0] = section.count; });
  EXPECT_TRUE(has(stray, "names a row that does not exist")) << stray;
  const std::string twice = verify([](IndexLine* line) { line->rows[1] = line->rows[0]; });
  EXPECT_TRUE(has(twice, "two index entries name the same row")) << twice;
  const std::string outside = verify([&](IndexLine* line) {
    while (Mix64(line->words[0]) <= section.hash_last) ++line->words[0];
  });
  EXPECT_TRUE(has(outside, "hashes outside its section")) << outside;
}

/// The index of a file's first section.
struct Index {
  explicit Index(const SampleTable& table) : bytes(table.Bytes(SampleHeader(), 0)) {
    std::unique_ptr<SnapshotReader> reader;
    if (!OpenAndRead({bytes.data(), bytes.size()}, &reader).ok()) return;
    const SectionRecord& section = reader->sections()[0];
    count = section.lines;
    lines = reinterpret_cast<const IndexLine*>(bytes.data() + section.offset + sizeof(BlockRecord));
  }

  AlignedBytes bytes;
  const IndexLine* lines = nullptr;
  uint32_t count = 0;
};

TEST(Snapshot, most_searches_for_unknown_keys_end_at_their_first_line) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 1), 4000);
  const Index index(table);
  ASSERT_NE(index.lines, nullptr);
  int going_on = 0;
  for (uint64_t word = 0; word < 10000; ++word) {
    const uint64_t hash = Mix64(word * 3 + 1);
    going_on += (Passed(index.lines[ReduceLow32(hash, index.count)]) & PassBit(hash)) != 0 ? 1 : 0;
  }
  EXPECT_LT(going_on, 2000);
}

TEST(Snapshot, no_key_takes_the_place_of_one_whose_home_it_is) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, 16), 4000);
  const Index index(table);
  ASSERT_NE(index.lines, nullptr);
  std::vector<bool> has_guest(index.count), misses_own(index.count);
  size_t at_home = 0;
  for (uint32_t at = 0; at < index.count; ++at) {
    for (uint32_t entry = 0; entry < kEntriesPerLine; ++entry) {
      if ((index.lines[at].used >> entry & 1) == 0) continue;
      const uint32_t home = ReduceLow32(Mix64(index.lines[at].words[entry]), index.count);
      at_home += home == at ? 1 : 0;
      if (home == at) continue;
      has_guest[at] = true;
      misses_own[home] = true;
    }
  }
  for (uint32_t at = 0; at < index.count; ++at) {
    EXPECT_FALSE(has_guest[at] && misses_own[at]) << "line " << at;
  }
  EXPECT_GT(at_home, table.size() * 86 / 100);
  // if every key were in its home line, this would have tested nothing
  EXPECT_LT(at_home, table.size());
}

}  // namespace
}  // namespace de::engine
