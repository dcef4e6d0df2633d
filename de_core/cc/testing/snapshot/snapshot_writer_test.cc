// The writer of snapshot files: what it accepts, refuses and counts.
#include "de_core/cc/engine/snapshot/snapshot_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "de_core/cc/engine/snapshot/snapshot_reader.h"
#include "de_core/cc/testing/full_sink.h"
#include "de_core/cc/testing/snapshot_fixture.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine {
namespace {

using testing::FullSink;
using testing::OpenAndRead;
using testing::SampleHeader;
using testing::SampleTable;

SnapshotSection Section(const std::vector<uint64_t>& words, const std::vector<float>& rows,
                        uint64_t begin, uint64_t last) {
  SnapshotSection section;
  section.hash_begin = begin;
  section.hash_last = last;
  section.count = words.size();
  section.words = words.data();
  section.rows = reinterpret_cast<const char*>(rows.data());
  return section;
}

class SnapshotWriterOf : public ::testing::Test {
 protected:
  void SetUp() override {
    SnapshotHeader header = SampleHeader();
    header.layout = RowLayout(KeyType::kInt64, DType::kFloat32, 1);
    ASSERT_TRUE(SnapshotWriter::Create(&sink_, header, &writer_).ok());
  }
  const uint64_t hash_ = Mix64(5);
  const std::vector<uint64_t> words_ = {5};
  const std::vector<float> rows_ = {1.5F};
  StringSink sink_;
  std::unique_ptr<SnapshotWriter> writer_;
};

TEST_F(SnapshotWriterOf, refuses_sections_out_of_order) {
  ASSERT_TRUE(writer_->Append(Section(words_, rows_, hash_, hash_)).ok());
  const Status status = writer_->Append(Section(words_, rows_, hash_, hash_ + 1));
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.message.find("ascending"), std::string::npos) << status.message;
}

TEST_F(SnapshotWriterOf, refuses_a_key_that_hashes_outside_its_section) {
  EXPECT_EQ(writer_->Append(Section(words_, rows_, hash_ + 1, hash_ + 2)).code,
            Code::kInvalidArgument);
}

TEST_F(SnapshotWriterOf, an_error_stays) {
  EXPECT_FALSE(writer_->Append(Section(words_, rows_, 1, 0)).ok());
  EXPECT_FALSE(writer_->Append(Section(words_, rows_, hash_, hash_)).ok());
  EXPECT_FALSE(writer_->Finish().ok());
  std::unique_ptr<SnapshotReader> reader;
  EXPECT_FALSE(OpenAndRead(sink_.bytes(), &reader).ok());
}

TEST_F(SnapshotWriterOf, refuses_what_comes_after_finish) {
  ASSERT_TRUE(writer_->Finish().ok());
  EXPECT_EQ(writer_->Append(Section(words_, rows_, hash_, hash_)).code, Code::kFailedPrecondition);
}

TEST_F(SnapshotWriterOf, an_empty_section_leaves_nothing) {
  const uint64_t header = writer_->bytes();
  ASSERT_TRUE(writer_->Append(Section({}, {}, 0, 9)).ok());
  ASSERT_TRUE(writer_->Append(Section({}, {}, 0, 9)).ok()) << "nor does its range";
  EXPECT_EQ(writer_->bytes(), header);
  ASSERT_TRUE(writer_->Finish().ok());
  EXPECT_EQ(writer_->bytes(), sink_.bytes().size());
  EXPECT_EQ(writer_->Finish().code, Code::kFailedPrecondition);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(OpenAndRead(sink_.bytes(), &reader).ok());
  EXPECT_EQ(reader->rows(), 0U);
  EXPECT_TRUE(reader->sections().empty());
}

TEST_F(SnapshotWriterOf, what_a_section_lacks_or_must_not_have_is_refused) {
  SnapshotSection gone = Section({}, {}, hash_, hash_);
  gone.tombstones = 1;
  gone.tombstone_words = words_.data();
  const std::string_view text = "five";
  SnapshotSection strings = Section(words_, rows_, hash_, hash_);
  strings.keys = &text;
  SnapshotSection rowless = Section(words_, rows_, hash_, hash_);
  rowless.rows = nullptr;
  SnapshotSection reversed = Section(words_, rows_, hash_, hash_ - 1);
  const std::vector<std::pair<SnapshotSection, std::string>> wrong = {
      {gone, "a base has no tombstones"},
      {strings, "the strings of a table with strings"},
      {rowless, "must hold words, rows"},
      {reversed, "must not be empty"}};
  EncodedSection encoded;
  for (const auto& [section, said] : wrong) {
    const Status status = writer_->Encode(section, &encoded);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_NE(status.message.find(said), std::string::npos) << status.message;
    EXPECT_NE(status.message.find("Received: a section of"), std::string::npos) << status.message;
  }
  EXPECT_TRUE(writer_->Append(Section(words_, rows_, hash_, hash_)).ok()) << "nothing was written";
}

TEST(SnapshotWriter, a_string_key_of_another_word_is_refused) {
  SnapshotHeader header = SampleHeader();
  header.layout = RowLayout(KeyType::kString, DType::kFloat32, 1);
  StringSink sink;
  std::unique_ptr<SnapshotWriter> writer;
  ASSERT_TRUE(SnapshotWriter::Create(&sink, header, &writer).ok());
  const std::vector<char> row(header.layout.stride());
  const std::string_view key = "a";
  const uint64_t word = HashBytes("b");
  SnapshotSection section;
  section.hash_last = ~uint64_t{0};
  section.count = 1;
  section.words = &word;
  section.rows = row.data();
  section.keys = &key;
  const Status status = writer->Append(section);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_NE(status.message.find("row 0 does not have the word of its key"), std::string::npos);
}

TEST(SnapshotWriter, layouts_that_no_file_can_have_are_refused) {
  const auto create = [](DType dtype, size_t dim, std::optional<DType> store_as) {
    SnapshotHeader header = SampleHeader();
    header.layout = RowLayout(KeyType::kInt64, dtype, dim);
    StringSink sink;
    std::unique_ptr<SnapshotWriter> writer;
    const Status status = SnapshotWriter::Create(&sink, header, store_as, &writer);
    EXPECT_EQ(writer == nullptr, !status.ok());
    EXPECT_EQ(sink.bytes().empty(), !status.ok());
    return status.message;
  };
  EXPECT_NE(create(DType::kFloat32, 0, {}).find("Received: dim=0"), std::string::npos);
  EXPECT_NE(create(DType::kFloat32, kMaxDim + 1, {}).find("Received: dim="), std::string::npos);
  EXPECT_NE(create(DType::kInt32, 1, DType::kHalf).find("Received: int32 values"),
            std::string::npos);
  EXPECT_NE(create(DType::kFloat32, 1, DType::kInt32).find("stored as int32"), std::string::npos);
  EXPECT_EQ(create(DType::kFloat32, kMaxDim, DType::kInt8), "");
}

TEST(SnapshotWriter, sections_that_threads_encoded_are_those_of_one) {
  constexpr uint32_t kBits = 3;
  SnapshotHeader header = SampleHeader();
  header.layout = RowLayout(KeyType::kInt64, DType::kFloat32, 3);
  const SampleTable table(header.layout, 5000);
  std::vector<RowBatch> rows(1U << kBits);
  for (size_t i = 0; i < table.size(); ++i) {
    const uint64_t word = table.WordOf(table.keys()[i]);
    const std::string_view row = table.row(i);
    std::memcpy(rows[Mix64(word) >> (64 - kBits)].Add(word, row.size()), row.data(), row.size());
  }
  for (RowBatch& batch : rows) batch.Finish(header.layout);
  StringSink sink;
  std::unique_ptr<SnapshotWriter> writer;
  ASSERT_TRUE(SnapshotWriter::Create(&sink, header, DType::kInt8, &writer).ok());
  std::vector<EncodedSection> encoded(rows.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < rows.size(); ++i) {
    threads.emplace_back([&, i] {
      const uint64_t begin = uint64_t{i} << (64 - kBits);
      const SnapshotSection section = SectionOf(rows[i], begin, begin | ~uint64_t{0} >> kBits);
      EXPECT_TRUE(writer->Encode(section, &encoded[i]).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (EncodedSection& section : encoded) ASSERT_TRUE(writer->Append(&section).ok());
  EXPECT_EQ(writer->rows(), table.size());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(sink.bytes(), table.Bytes(SampleHeader(), kBits, DType::kInt8));
}

TEST(SnapshotWriter, a_failing_sink_is_reported_wherever_it_fails) {
  const SampleTable table(RowLayout(KeyType::kString, DType::kFloat32, 2), 100);
  const size_t size = table.Bytes(SampleHeader(), 2).size();
  for (size_t room = 0; room < size; room += 50) {
    FullSink sink(room);
    const Status status = table.Write(&sink, SampleHeader(), 2);
    EXPECT_EQ(status.code, Code::kResourceExhausted);
    EXPECT_EQ(status.message, "no room");
  }
}

}  // namespace
}  // namespace de::engine
