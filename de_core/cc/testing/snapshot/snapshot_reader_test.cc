// The reader of snapshot files: sources whose reads fail, reused buffers, several threads.
#include "de_core/cc/engine/snapshot/snapshot_reader.h"

#include <gtest/gtest.h>

#include <thread>

#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using testing::Open;
using testing::OpenAndRead;
using testing::ReadAll;
using testing::ReadOnlySource;
using testing::SampleDeltaHeader;
using testing::SampleHeader;
using testing::SampleTable;

/// A source that fails at one of its reads.
class FailingSource final : public ByteSource {
 public:
  FailingSource(std::string_view bytes, int reads) : source_(bytes), reads_(reads) {}
  uint64_t size() const noexcept override { return source_.size(); }
  Status Read(uint64_t offset, size_t size, void* out) const override {
    return reads_-- > 0 ? source_.Read(offset, size, out) : Status::Internal("medium fails");
  }

 private:
  ReadOnlySource source_;
  mutable int reads_;
};

std::string Delta(uint32_t bits) {
  return SampleTable(RowLayout(KeyType::kString, DType::kString, 2), 300)
      .Bytes(SampleDeltaHeader(SampleHeader()), bits);
}

/// Returns the whole contents of a section.
std::string Said(const SectionBuffer& buffer) {
  const SnapshotSection& section = buffer.section;
  std::string said;
  for (size_t i = 0; i < section.count; ++i) {
    EXPECT_EQ(HashBytes(section.keys[i]), section.words[i]);
    said.append(section.keys[i]).append("=").append(section.values[2 * i]);
    said.append(",").append(section.values[2 * i + 1]).append(";");
  }
  for (size_t i = 0; i < section.tombstones; ++i) {
    EXPECT_EQ(HashBytes(section.tombstone_keys[i]), section.tombstone_words[i]);
    said.append("gone ").append(section.tombstone_keys[i]);
  }
  return said;
}

TEST(SnapshotReader, an_error_of_the_medium_is_passed_on_wherever_it_comes) {
  const std::string bytes = Delta(2);
  int reads = 0;
  for (;; ++reads) {
    std::unique_ptr<SnapshotReader> reader;
    Status status = SnapshotReader::Open(std::make_unique<FailingSource>(bytes, reads), &reader);
    EXPECT_EQ(reader == nullptr, !status.ok());
    if (reader != nullptr) status = ReadAll(*reader);
    if (status.ok()) break;
    EXPECT_EQ(status.code, Code::kInternal);
    EXPECT_NE(status.message.find("medium fails"), std::string::npos) << status.message;
  }
  // four reads before the sections (two for the header, one each for footer and directory), and one
  // for each of four sections
  EXPECT_EQ(reads, 4 + 4);
}

TEST(SnapshotReader, a_file_that_is_refused_leaves_the_reader_that_was_open) {
  const std::string bytes = Delta(1);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(OpenAndRead(bytes, &reader).ok());
  const SnapshotReader* const before = reader.get();
  for (const size_t size : {size_t{0}, size_t{1}, bytes.size() - 1}) {
    EXPECT_EQ(Open({bytes.data(), size}, &reader).code, Code::kDataLoss);
    ASSERT_EQ(reader.get(), before);
  }
  EXPECT_TRUE(ReadAll(*reader).ok());
  EXPECT_EQ(reader->file_bytes(), bytes.size());
}

TEST(SnapshotReader, headers_alone_are_checked_when_a_file_is_opened) {
  std::string bytes = Delta(1);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(Open(bytes, &reader).ok());
  bytes[reader->sections()[1].offset + 64] ^= 1;
  EXPECT_TRUE(Open(bytes, &reader).ok());
  EXPECT_EQ(ReadAll(*reader).code, Code::kDataLoss);
}

TEST(SnapshotReader, the_checksum_of_a_section_covers_each_of_its_bytes) {
  std::string bytes = Delta(1);
  std::unique_ptr<SnapshotReader> mapped, streamed;
  ASSERT_TRUE(Open(bytes, &mapped).ok());
  ASSERT_TRUE(SnapshotReader::Open(std::make_unique<ReadOnlySource>(bytes), &streamed).ok());
  const SectionRecord& section = mapped->sections()[1];
  const size_t begin = section.offset;
  const size_t stride = mapped->header().layout.stride();
  const size_t end = begin + ShapeOf(section, stride, KeyType::kString).bytes;
  SectionBuffer buffer;
  for (const auto* reader : {mapped.get(), streamed.get()}) {
    for (size_t at = begin; at < end; at += at + 97 < end ? 97 : 1) {
      bytes[at] ^= 4;
      EXPECT_TRUE(reader->CheckSection(0, &buffer).ok());
      const Status status = reader->CheckSection(1, &buffer);
      EXPECT_EQ(status.code, Code::kDataLoss) << at;
      const std::string name = "section 1 at offset " + std::to_string(begin) + " is corrupt";
      EXPECT_EQ(status.message.substr(0, name.size()), name);
      EXPECT_EQ(reader->ReadSection(1, &buffer).code, Code::kDataLoss) << at;
      bytes[at] ^= 4;
    }
    EXPECT_TRUE(reader->CheckSection(1, &buffer).ok());
    EXPECT_EQ(reader->CheckSection(2, &buffer).code, Code::kInvalidArgument);
  }
}

TEST(SnapshotReader, a_section_that_is_not_there_is_named) {
  const std::string bytes = Delta(1);
  std::unique_ptr<SnapshotReader> reader;
  ASSERT_TRUE(Open(bytes, &reader).ok());
  SectionBuffer buffer;
  for (const size_t number : {size_t{2}, ~size_t{0}}) {
    const Status status = reader->ReadSection(number, &buffer);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_EQ(status.message,
              "the snapshot has 2 sections. Received: section=" + std::to_string(number));
  }
}

TEST(SnapshotReader, threads_read_with_a_buffer_each_what_one_reads) {
  const std::string bytes = Delta(4);
  std::unique_ptr<SnapshotReader> mapped, streamed;
  ASSERT_TRUE(Open(bytes, &mapped).ok());
  ASSERT_TRUE(SnapshotReader::Open(std::make_unique<ReadOnlySource>(bytes), &streamed).ok());
  const size_t sections = mapped->sections().size();
  std::vector<std::string> said(sections);
  for (size_t i = 0; i < sections; ++i) {
    SectionBuffer fresh;
    ASSERT_TRUE(mapped->ReadSection(i, &fresh).ok());
    said[i] = Said(fresh);
  }
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      SectionBuffer buffer;  // reused for small sections after large ones, and back
      for (size_t i = 0; i < 4 * sections; ++i) {
        const size_t number = (i * (2 * thread + 1)) % sections;
        const SnapshotReader& reader = i % 2 == 0 ? *mapped : *streamed;
        ASSERT_TRUE(reader.ReadSection(number, &buffer).ok());
        ASSERT_EQ(Said(buffer), said[number]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace de::engine
