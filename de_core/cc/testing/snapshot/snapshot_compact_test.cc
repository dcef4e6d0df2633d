// A compacted base with deltas, compared with a map that applies them in order; and which files
// form a chain.
#include "de_core/cc/engine/snapshot/snapshot_compact.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "de_core/cc/engine/snapshot/snapshot_chain.h"
#include "de_core/cc/testing/snapshot_fixture.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine {
namespace {

using testing::SampleDeltaHeader;
using testing::SampleHeader;
using testing::SampleKey;
using testing::SampleTable;

/// Files in memory with their readers.
class Files {
 public:
  explicit Files(std::vector<std::string> files) : bytes_(std::move(files)) {
    for (const std::string& bytes : bytes_) {
      const Status status = SnapshotReader::Open(std::make_unique<testing::ReadOnlySource>(bytes),
                                                 &readers_.emplace_back());
      EXPECT_TRUE(status.ok()) << status.message;
    }
  }
  std::vector<const SnapshotReader*> readers() const {
    std::vector<const SnapshotReader*> all;
    for (const auto& reader : readers_) all.push_back(reader.get());
    return all;
  }
  Status Check(std::vector<ChainSpan>* chains) const { return CheckChains(readers(), chains); }

 private:
  std::vector<std::string> bytes_;
  std::vector<std::unique_ptr<SnapshotReader>> readers_;
};

/// A key in a map: its word and, for a string key, its bytes.
using Key = std::pair<uint64_t, std::string>;
/// A row's value bytes and its strings.
using Row = std::pair<std::string, std::vector<std::string>>;

Key KeyOf(const SampleTable& table, size_t i) {
  const bool strings = table.layout().key_type() == KeyType::kString;
  return {table.WordOf(table.keys()[i]), strings ? table.keys()[i].text : ""};
}

/// Returns the rows of a file without tombstones.
std::map<Key, Row> RowsOf(const SnapshotReader& file) {
  std::map<Key, Row> rows;
  SectionBuffer buffer;
  const RowLayout& layout = file.header().layout;
  for (size_t k = 0; k < file.sections().size(); ++k) {
    const Status status = file.ReadSection(k, &buffer);
    EXPECT_TRUE(status.ok()) << status.message;
    const SnapshotSection& section = buffer.section;
    EXPECT_EQ(section.tombstones, 0U);
    for (size_t i = 0; i < section.count; ++i) {
      Row row;
      if (section.values != nullptr) {
        row.second.assign(section.values + i * layout.dim(),
                          section.values + (i + 1) * layout.dim());
      } else {
        row.first.assign(section.rows + i * layout.stride(), layout.value_bytes());
      }
      const std::string key = section.keys == nullptr ? "" : std::string(section.keys[i]);
      EXPECT_TRUE(rows.emplace(Key{section.words[i], key}, row).second) << "a key is there twice";
    }
  }
  return rows;
}

struct Case {
  KeyType key_type;
  DType dtype;
};

class Compact : public ::testing::TestWithParam<Case> {
 protected:
  /// Returns a table of keys [first, first + 400), in the order of the fixture's keys.
  SampleTable Table(size_t first, uint64_t seed) const {
    SampleTable table(RowLayout(GetParam().key_type, GetParam().dtype, 2), 400, seed);
    std::vector<SampleKey> keys(400);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = {static_cast<int64_t>(first + i), "key " + std::to_string(first + i)};
    }
    table.SetKeys(keys);
    return table;
  }

  static void Apply(const SampleTable& table, bool delta, std::map<Key, Row>* rows) {
    for (size_t i = 0; i < table.size(); ++i) {
      rows->erase(KeyOf(table, i));
      if (delta && SampleTable::IsGone(i)) continue;
      Row row;
      if (table.layout().value_dtype() == DType::kString) {
        row.second = {table.value(i, 0), table.value(i, 1)};
      } else {
        row.first = table.row(i).substr(0, table.layout().value_bytes());
      }
      (*rows)[KeyOf(table, i)] = row;
    }
  }
};

TEST_P(Compact, is_what_the_files_say_one_after_the_other) {
  // The tables share some keys. Their sections start and end at different hashes.
  const SampleTable tables[] = {Table(0, 1), Table(200, 2), Table(100, 3), Table(500, 4)};
  const uint32_t bits[] = {3, 0, 2, 5};
  for (const size_t replaces : {size_t{0}, size_t{1}, size_t{3}}) {
    std::vector<SnapshotHeader> headers = {SampleHeader()};
    std::vector<std::string> files = {tables[0].Bytes(headers[0], bits[0])};
    std::map<Key, Row> wanted;
    Apply(tables[0], false, &wanted);
    for (size_t i = 1; i < 4; ++i) {
      headers.push_back(SampleDeltaHeader(headers.back()));
      headers[i].replaces = replaces == i;
      headers[i].metadata["at"] = std::to_string(i);
      if (headers[i].replaces) wanted.clear();
      files.push_back(tables[i].Bytes(headers[i], bits[i]));
      Apply(tables[i], true, &wanted);
    }
    StringSink sink;
    CompactReport report;
    const Status status = CompactSnapshots(Files(files).readers(), &sink, &report);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(report.rows, wanted.size());
    EXPECT_EQ(report.bytes, sink.bytes().size());
    const Files made({sink.bytes()});
    const SnapshotReader& file = *made.readers()[0];
    EXPECT_EQ(RowsOf(file), wanted);
    EXPECT_EQ(file.header().kind, SnapshotKind::kBase);
    EXPECT_EQ(file.header().id, headers[3].id);
    EXPECT_EQ(file.header().sequence, 3U);
    EXPECT_EQ(file.header().parent, SnapshotId{});
    EXPECT_FALSE(file.header().replaces);
    EXPECT_EQ(file.header().metadata.at("at"), "3");
    // The next delta can follow the result, like the last file.
    std::vector<ChainSpan> chains;
    const SnapshotHeader next = SampleDeltaHeader(headers[3]);
    EXPECT_TRUE(Files({sink.bytes(), tables[0].Bytes(next, 1)}).Check(&chains).ok());
  }
}

TEST_P(Compact, merged_deltas_say_what_the_deltas_say) {
  const SampleTable tables[] = {Table(0, 1), Table(200, 2), Table(100, 3), Table(500, 4)};
  const uint32_t bits[] = {3, 0, 2, 5};
  for (const size_t replaces : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
    std::vector<SnapshotHeader> headers = {SampleHeader()};
    std::vector<std::string> files = {tables[0].Bytes(headers[0], bits[0])};
    for (size_t i = 1; i < 4; ++i) {
      headers.push_back(SampleDeltaHeader(headers.back()));
      headers[i].replaces = replaces == i;
      files.push_back(tables[i].Bytes(headers[i], bits[i]));
    }
    const auto compacted = [](const std::vector<std::string>& of) {
      StringSink sink;
      CompactReport report;
      const Status status = CompactSnapshots(Files(of).readers(), &sink, &report);
      EXPECT_TRUE(status.ok()) << status.message;
      return sink.bytes();
    };
    const auto rows = [&](const std::vector<std::string>& of) {
      return RowsOf(*Files({compacted(of)}).readers()[0]);
    };
    for (const size_t begin : {size_t{1}, size_t{2}}) {
      const auto at = static_cast<std::ptrdiff_t>(begin);
      std::vector<std::string> chain(files.begin(), files.begin() + at);
      chain.push_back(compacted({files.begin() + at, files.end()}));
      EXPECT_EQ(rows(chain), rows(files));
      const Files made({chain.back()});
      const SnapshotHeader& header = made.readers()[0]->header();
      EXPECT_EQ(header.kind, SnapshotKind::kDelta);
      EXPECT_EQ(header.parent, headers[begin].parent);
      EXPECT_EQ(header.id, headers[3].id);
      EXPECT_EQ(header.replaces, replaces >= begin);
      EXPECT_EQ(made.readers()[0]->tombstones() > 0, replaces < begin);
      // The next delta follows the merged one.
      chain.push_back(tables[0].Bytes(SampleDeltaHeader(headers[3]), 1));
      std::vector<ChainSpan> spans;
      EXPECT_TRUE(Files(chain).Check(&spans).ok());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Compact,
                         ::testing::Values(Case{KeyType::kInt64, DType::kFloat32},
                                           Case{KeyType::kString, DType::kInt8},
                                           Case{KeyType::kString, DType::kString}));

TEST(Compact, files_that_are_no_chain_or_damaged_are_refused) {
  const SampleTable table(RowLayout(KeyType::kInt64, DType::kFloat32, 1), 50);
  const SnapshotHeader base = SampleHeader();
  SnapshotHeader other = base;
  ++other.id[5];
  const std::string bytes = table.Bytes(base, 1);
  StringSink sink;
  CompactReport report;
  const auto compact = [&](const std::vector<std::string>& files) {
    return CompactSnapshots(Files(files).readers(), &sink, &report);
  };
  EXPECT_EQ(compact({}).code, Code::kInvalidArgument);
  const Status two = compact({bytes, table.Bytes(other, 1)});
  EXPECT_EQ(two.code, Code::kFailedPrecondition);
  EXPECT_NE(two.message.find("Received: chains=2"), std::string::npos) << two.message;
  std::string damaged = bytes;
  const Files intact({bytes});
  damaged[intact.readers()[0]->sections()[1].offset + 100] ^= 1;
  EXPECT_EQ(compact({damaged, table.Bytes(SampleDeltaHeader(base), 0)}).code, Code::kDataLoss);
}

TEST(CheckChains, splits_files_where_bases_begin_and_skips_what_a_delta_replaces) {
  const SampleTable table(RowLayout(KeyType::kInt64, DType::kFloat32, 1), 5);
  std::vector<SnapshotHeader> headers = {SampleHeader()};
  for (int i = 0; i < 3; ++i) headers.push_back(SampleDeltaHeader(headers.back()));
  headers[2].replaces = true;
  headers.push_back(SampleHeader());
  ++headers.back().id[9];
  headers.push_back(SampleDeltaHeader(headers.back()));
  std::vector<std::string> files;
  for (const SnapshotHeader& header : headers) files.push_back(table.Bytes(header, 0));
  std::vector<ChainSpan> chains = {{7, 7, 7}};
  const Status status = Files(files).Check(&chains);
  ASSERT_TRUE(status.ok()) << status.message;
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[0].first, 0U);
  EXPECT_EQ(chains[0].from, 2U);
  EXPECT_EQ(chains[0].end, 4U);
  EXPECT_EQ(chains[1].first, 4U);
  EXPECT_EQ(chains[1].from, 4U);
  EXPECT_EQ(chains[1].end, 6U);
}

TEST(CheckChains, names_the_file_that_does_not_belong) {
  const SampleTable table(RowLayout(KeyType::kInt64, DType::kFloat32, 1), 5);
  const SampleTable half(RowLayout(KeyType::kInt64, DType::kHalf, 1), 5);
  const SnapshotHeader base = SampleHeader();
  const SnapshotHeader delta = SampleDeltaHeader(base);
  SnapshotHeader late = delta;
  late.sequence = base.sequence;
  std::vector<ChainSpan> chains;
  const auto named = [&](const std::vector<std::string>& files, const std::string& received) {
    const Status status = Files(files).Check(&chains);
    EXPECT_NE(status.message.find("Received: " + received), std::string::npos) << status.message;
    return status.code;
  };
  const auto bytes = [&](const SnapshotHeader& header) { return table.Bytes(header, 0); };
  EXPECT_EQ(named({bytes(delta)}, "file 0, delta " + HexOf(delta.id)), Code::kFailedPrecondition);
  EXPECT_EQ(named({bytes(base), bytes(late)}, "file 1, delta " + HexOf(late.id) + " (sequence 0"),
            Code::kFailedPrecondition);
  EXPECT_EQ(named({bytes(base), bytes(delta), bytes(base)}, "file 2, base " + HexOf(base.id)),
            Code::kFailedPrecondition);
  EXPECT_EQ(named({bytes(base), half.Bytes(delta, 0)}, "file 1, delta"), Code::kInvalidArgument);
  // A delta stored as another dtype still reads as the table's dtype.
  EXPECT_TRUE(Files({bytes(base), table.Bytes(delta, 0, DType::kHalf)}).Check(&chains).ok());
}

TEST(KeySet, holds_words_and_texts_apart) {
  KeySet keys;
  EXPECT_TRUE(keys.empty());
  for (const uint64_t word : {~uint64_t{0}, uint64_t{0}, uint64_t{7}, uint64_t{7}}) keys.Add(word);
  const std::string_view empty = "", nul("\0", 1), text = "text", tex = "tex";
  for (const std::string_view each : {text, empty}) keys.Add(each);
  keys.Seal();
  EXPECT_FALSE(keys.empty());
  EXPECT_TRUE(keys.Contains(0, nullptr));
  EXPECT_TRUE(keys.Contains(~uint64_t{0}, nullptr));
  EXPECT_FALSE(keys.Contains(1, nullptr));
  EXPECT_TRUE(keys.Contains(1, &text)) << "of a string key the bytes say which it is";
  EXPECT_TRUE(keys.Contains(1, &empty));
  EXPECT_FALSE(keys.Contains(0, &nul));
  EXPECT_FALSE(keys.Contains(0, &tex));
}

}  // namespace
}  // namespace de::engine
