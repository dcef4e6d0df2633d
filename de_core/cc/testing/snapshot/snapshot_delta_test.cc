// Deltas in files: tombstones, and keys that are there twice.
#include <gtest/gtest.h>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::SampleDeltaHeader;
using testing::SampleHeader;
using testing::SampleTable;

Status Verify(std::string_view bytes) {
  std::unique_ptr<SnapshotReader> reader;
  return SnapshotReader::Open(bytes.data(), bytes.size(), SnapshotVerify::kFull, &reader);
}

class Delta : public ::testing::TestWithParam<KeyType> {
 protected:
  Delta() : table_(RowLayout(GetParam(), DType::kFloat32, 2), 100) {}

  std::string Bytes() const { return table_.Bytes(SampleDeltaHeader(SampleHeader()), 1); }

  SampleTable table_;
};

TEST_P(Delta, keeps_rows_and_tombstones) {
  const std::string bytes = Bytes();
  std::unique_ptr<SnapshotReader> reader;
  const Status status =
      SnapshotReader::Open(bytes.data(), bytes.size(), SnapshotVerify::kFull, &reader);
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
      const uint64_t word = table_.WordOf(table_.keys()[at]);
      ASSERT_EQ(is_gone ? section.tombstone_words[gone] : section.words[row], word);
      if (GetParam() == KeyType::kString) {
        ASSERT_EQ(is_gone ? section.tombstone_keys[gone] : section.keys[row],
                  table_.keys()[at].text);
      }
      ++(is_gone ? gone : row);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, Delta, ::testing::Values(KeyType::kInt64, KeyType::kString));

TEST(DamagedSnapshot, a_key_that_is_there_twice_is_named) {
  for (const size_t rows : {2U, 400U}) {
    SampleTable table(RowLayout(KeyType::kInt64, DType::kFloat32, 2), rows);
    std::vector<testing::SampleKey> keys = table.keys();
    keys[0] = keys[rows / 2];
    table.SetKeys(keys);
    const Status status = Verify(table.Bytes(SampleHeader(), 0));
    EXPECT_EQ(status.code, Code::kDataLoss);
    EXPECT_NE(status.message.find("there twice"), std::string::npos) << status.message;
  }
}

}  // namespace
}  // namespace de::engine
