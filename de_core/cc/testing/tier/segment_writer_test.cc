// Appends on a thread of their own, in order, and errors in between.
#include "de_core/cc/engine/tier/segment_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>

namespace de::engine {
namespace {

class SegmentWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/segment_writer_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    std::unique_ptr<SegmentFile> made;
    const auto layout = std::make_shared<const RowLayout>(KeyType::kInt64, DType::kFloat32, 1);
    std::shared_ptr<Disk> disk;
    ASSERT_TRUE(FolderDisk::Open(directory_, 1, false, &disk).ok());
    ASSERT_TRUE(SegmentFile::Create(disk, directory_ + "/rows", layout, &made).ok());
    file_ = std::move(made);
  }
  void TearDown() override {
    file_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Append(SegmentWriter* writer, char fill) {
    BlockBuffer* const blocks = writer->Next();
    blocks->Reserve(kBlockBytes);
    std::memset(blocks->data(), fill, kBlockBytes);
    writer->Append(file_, kBlockBytes);
  }
  /// Returns the first byte of each block of the file.
  std::string Blocks() const {
    std::string first;
    BlockBuffer block;
    block.Reserve(kBlockBytes);
    for (uint64_t at = 0; at < file_->end(); at += kBlockBytes) {
      const ssize_t got =
          pread(file_->descriptor(), block.data(), kBlockBytes, static_cast<off_t>(at));
      first += got == static_cast<ssize_t>(kBlockBytes) ? block.data()[0] : '?';
    }
    return first;
  }

  std::string directory_;
  std::shared_ptr<SegmentFile> file_;
};

TEST_F(SegmentWriterTest, AppendsInOrder) {
  std::string wanted;
  SegmentWriter writer;
  for (int i = 0; i < 50; ++i) {
    wanted += static_cast<char>('a' + i % 26);
    Append(&writer, wanted.back());
    if (i % 17 == 0) {
      EXPECT_TRUE(writer.Wait().ok());
    }
  }
  EXPECT_TRUE(writer.Wait().ok());
  EXPECT_EQ(Blocks(), wanted);
}

TEST_F(SegmentWriterTest, FinishesBeforeItEnds) {
  {
    SegmentWriter writer;
    for (const char fill : {'a', 'b', 'c'}) Append(&writer, fill);
  }
  EXPECT_EQ(Blocks(), "abc");
}

TEST_F(SegmentWriterTest, LeavesOutWhatFollowsAFailedAppend) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{2 * kBlockBytes, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  SegmentWriter writer;
  for (const char fill : {'a', 'b', 'c', 'd', 'e', 'f'}) Append(&writer, fill);
  writer.Next();  // at most two of six appends are not done, so the third has failed
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  Append(&writer, 'g');  // could succeed, but is left out
  const Status status = writer.Wait();
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_NE(status.message.find("rows must be written"), std::string::npos) << status.message;
  EXPECT_EQ(Blocks(), "ab");
  EXPECT_TRUE(writer.Wait().ok());
  Append(&writer, 'h');
  EXPECT_TRUE(writer.Wait().ok());
  EXPECT_EQ(Blocks(), "abh");
}

}  // namespace
}  // namespace de::engine
