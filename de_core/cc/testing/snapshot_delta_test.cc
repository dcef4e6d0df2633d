// Deltas in files: tombstones, damage, chains that do not belong together, keys that are there
// twice.
#include <gtest/gtest.h>

#include "de_core/cc/engine/frozen_chain.h"
#include "de_core/cc/engine/snapshot_compact.h"
#include "de_core/cc/engine/snapshot_reader.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::AlignedBytes;
using testing::Reseal;
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

TEST_P(Delta, every_truncation_and_flipped_byte_is_named) {
  std::string bytes = Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const AlignedBytes cut(std::string_view(bytes).substr(0, size));
    ASSERT_EQ(Verify({cut.data(), size}).code, Code::kDataLoss) << size;
  }
  for (char& byte : bytes) {
    byte = static_cast<char>(byte ^ 0x41);
    ASSERT_FALSE(Verify(bytes).ok());
    byte = static_cast<char>(byte ^ 0x41);
  }
}

TEST_P(Delta, resealed_damage_never_reads_outside_the_file) {
  const std::string bytes = Bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 3 == 0 ? 0xff : 1 << (i % 8)));
    Reseal(&damaged);
    const AlignedBytes exact(damaged);
    (void)Verify({exact.data(), exact.size()});
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

/// Opens a chain over files that it keeps.
class Files {
 public:
  explicit Files(const std::vector<std::string>& files) {
    for (const std::string& bytes : files) {
      kept_.push_back(std::make_unique<AlignedBytes>(bytes));
      files_.push_back({kept_.back()->data(), kept_.back()->size()});
    }
  }
  Status Open() { return FrozenChain::Open(files_, {}, &chain_); }
  const FrozenChain& chain() const { return *chain_; }

 private:
  std::vector<std::unique_ptr<AlignedBytes>> kept_;
  std::vector<FrozenChain::File> files_;
  std::unique_ptr<FrozenChain> chain_;
};

TEST(FrozenChain, a_later_file_hides_an_earlier_one) {
  const RowLayout layout(KeyType::kInt64, DType::kInt64, 1);
  const SampleTable base(layout, 300, 1);
  SampleTable other(layout, 300, 2);
  other.SetKeys(base.keys());  // other rows for the same keys
  SnapshotHeader header = SampleHeader();
  header.initializer = {};
  const SnapshotHeader delta = SampleDeltaHeader(header);
  Files files({base.Bytes(header, 2), other.Bytes(delta, 1)});
  const Status opened = files.Open();
  ASSERT_TRUE(opened.ok()) << opened.message;
  for (size_t i = 0; i < base.size(); ++i) {
    const int64_t key = base.keys()[i].number;
    int64_t value = -1;
    bool found = false;
    ASSERT_TRUE(files.chain().Find({&key, nullptr, 1}, &value, &found).ok());
    EXPECT_EQ(found, !SampleTable::IsGone(i));
    int64_t expected = 0;
    if (found) std::memcpy(&expected, other.row(i).data(), sizeof(expected));
    EXPECT_EQ(value, expected);
  }
  uint64_t rows = 0;
  ASSERT_TRUE(files.chain().Size(&rows).ok());
  EXPECT_EQ(rows, 200U);
}

TEST(FrozenChain, an_unknown_key_is_an_error_only_if_no_file_has_it) {
  const RowLayout layout(KeyType::kInt64, DType::kInt64, 1);
  const SampleTable base(layout, 10, 1);
  const SampleTable more(layout, 40, 3);
  SnapshotHeader header = SampleHeader();
  header.initializer = {};
  header.metadata["oov"] = "error";
  Files files({base.Bytes(header, 0), more.Bytes(SampleDeltaHeader(header), 0)});
  ASSERT_TRUE(files.Open().ok());
  int64_t value = 0;
  for (size_t i = 0; i < more.size(); ++i) {
    const int64_t key = more.keys()[i].number;
    const Status status = files.chain().Find({&key, nullptr, 1}, &value, nullptr);
    EXPECT_EQ(status.code, SampleTable::IsGone(i) ? Code::kNotFound : Code::kOk);
    EXPECT_TRUE(files.chain().Find({&key, nullptr, 1}, nullptr, nullptr).ok());
  }
}

TEST(FrozenChain, files_that_do_not_follow_one_another_are_refused) {
  const RowLayout layout(KeyType::kInt64, DType::kFloat32, 1);
  const SampleTable table(layout, 30);
  const SnapshotHeader base = SampleHeader();
  const SnapshotHeader first = SampleDeltaHeader(base);
  const SnapshotHeader second = SampleDeltaHeader(first);
  SnapshotHeader stranger = SampleDeltaHeader(base);
  stranger.parent[3] ^= 1;
  const auto bytes = [&](const SnapshotHeader& header) { return table.Bytes(header, 0); };
  const std::vector<std::vector<std::string>> wrong = {
      {bytes(first)},
      {bytes(base), bytes(second)},
      {bytes(base), bytes(stranger)},
      {bytes(base), bytes(first), bytes(first)},
      {bytes(base), bytes(second), bytes(first)},
      {bytes(base), bytes(base)},
  };
  for (const auto& files : wrong) {
    EXPECT_EQ(Files(files).Open().code, Code::kFailedPrecondition);
  }
  EXPECT_TRUE(Files({bytes(base), bytes(first), bytes(second)}).Open().ok());
  const SampleTable wide(RowLayout(KeyType::kInt64, DType::kFloat32, 2), 30);
  EXPECT_EQ(Files({bytes(base), wide.Bytes(first, 0)}).Open().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace de::engine
