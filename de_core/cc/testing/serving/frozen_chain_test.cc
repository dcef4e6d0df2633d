// A base and its deltas, looked up as one table.
#include "de_core/cc/engine/serving/frozen_chain.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "de_core/cc/testing/batches.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine::testing {
namespace {

/// Returns the header of a base whose unknown keys read as zeros.
SnapshotHeader HeaderOfZeros() {
  SnapshotHeader header = SampleHeader();
  header.initializer = {};
  return header;
}

/// Owns files and opens a chain of them.
class Files {
 public:
  explicit Files(const std::vector<std::string>& files) {
    for (const std::string& bytes : files) {
      kept_.push_back(std::make_unique<AlignedBytes>(bytes));
      files_.emplace_back(kept_.back()->data(), kept_.back()->size());
    }
  }
  Status Open() { return OpenChain(files_, &chain_); }
  const FrozenChain& chain() const { return *chain_; }

 private:
  std::vector<std::unique_ptr<AlignedBytes>> kept_;
  std::vector<std::string_view> files_;
  std::unique_ptr<FrozenChain> chain_;
};

TEST(FrozenChain, an_unknown_key_is_an_error_only_if_no_file_has_it) {
  const RowLayout layout(KeyType::kInt64, DType::kInt64, 1);
  const SampleTable base(layout, 10, 1);
  const SampleTable more(layout, 40, 3);
  SnapshotHeader header = HeaderOfZeros();
  header.metadata["oov"] = "error";
  Files files({base.Bytes(header, 0), more.Bytes(SampleDeltaHeader(header), 0)});
  ASSERT_TRUE(files.Open().ok());
  int64_t value = 0;
  for (size_t i = 0; i < more.size(); ++i) {
    const int64_t key = more.keys()[i].number;
    const Status status = files.chain().Find({&key, nullptr, 1}, {&value}, nullptr);
    EXPECT_EQ(status.code, SampleTable::IsGone(i) ? Code::kNotFound : Code::kOk);
    EXPECT_TRUE(files.chain().Find({&key, nullptr, 1}, {}, nullptr).ok());
  }
}

TEST(FrozenChain, no_file_and_a_damaged_one_are_named_and_leave_the_open_chain) {
  const SampleTable table(RowLayout(KeyType::kInt64, DType::kFloat32, 1), 30);
  const SnapshotHeader header = SampleHeader();
  const std::string base = table.Bytes(header, 0);
  const std::string delta = table.Bytes(SampleDeltaHeader(header), 0);
  Files none({});
  EXPECT_EQ(none.Open().message, "there must be at least one snapshot file. Received: none");

  const AlignedBytes whole(base), torn(delta.substr(0, delta.size() - 1));
  std::unique_ptr<FrozenChain> chain;
  ASSERT_TRUE(OpenChain({{whole.data(), whole.size()}}, &chain).ok());
  const FrozenChain* const before = chain.get();
  const Status status =
      OpenChain({{whole.data(), whole.size()}, {torn.data(), torn.size()}}, &chain);
  EXPECT_EQ(status.code, Code::kDataLoss);
  EXPECT_NE(status.message.find("Received: "), std::string::npos) << status.message;
  EXPECT_EQ(chain.get(), before);
  EXPECT_EQ(chain->deltas(), 0U);
}

/// A base file and three delta files, and the contents that result from all four. Each file has
/// some of the same kKeys keys; the second delta has no keys.
class Layers : public ::testing::TestWithParam<std::pair<KeyType, DType>> {
 protected:
  static constexpr size_t kKeys = 4000;  // some of them are in no file

  Layers() : layout_(GetParam().first, GetParam().second, 1), pool_(layout_, kKeys) {
    Add([](size_t i) { return i % 4 != 3; });
    Add([](size_t i) { return i % 5 < 2; });
    Add([](size_t) { return false; });
    Add([](size_t i) { return i % 7 < 2; });
    for (const SampleKey& key : pool_.keys()) {
      numbers_.push_back(key.number);
      texts_.push_back(key.text);
    }
  }

  template <typename In>
  void Add(const In& in) {
    std::vector<SampleKey> keys;
    for (size_t i = 0; i < kKeys; ++i) {
      if (in(i)) keys.push_back(pool_.keys()[i]);
    }
    SampleTable table(layout_, keys.size(), files_.size() + 2);
    table.SetKeys(std::move(keys));
    const bool delta = !files_.empty();
    if (delta) header_ = SampleDeltaHeader(header_);
    for (size_t i = 0; i < table.size(); ++i) {
      const bool gone = delta && SampleTable::IsGone(i);
      in_deltas_ += delta ? 1 : 0;
      if (gone) {
        rows_.erase(table.keys()[i].text);
      } else if (layout_.value_dtype() == DType::kString) {
        rows_[table.keys()[i].text] = table.value(i, 0);
      } else {
        rows_[table.keys()[i].text] = std::string(table.row(i).substr(0, layout_.value_bytes()));
      }
    }
    files_.push_back(table.Bytes(header_, 2));
  }

  Keys AllKeys() const {
    if (layout_.key_type() == KeyType::kString) return KeysOf(texts_);
    return KeysOf(numbers_);
  }

  /// Reads all keys from the chain. The values are bytes.
  Status Read(const FrozenChain& chain, bool* found, std::vector<std::string>* values) const {
    if (layout_.value_dtype() == DType::kString) {
      std::vector<std::string_view> views(kKeys);
      const Status status = chain.Find(AllKeys(), {nullptr, views.data()}, found);
      values->assign(views.begin(), views.end());
      return status;
    }
    std::vector<int64_t> numbers(kKeys, 77);
    const Status status = chain.Find(AllKeys(), {numbers.data()}, found);
    for (const int64_t& number : numbers) {
      values->emplace_back(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    return status;
  }

  const std::string& unknown() const {
    static const std::string zeros(sizeof(int64_t), '\0'), empty;
    return layout_.value_dtype() == DType::kString ? empty : zeros;
  }

  const RowLayout layout_;
  const SampleTable pool_;
  SnapshotHeader header_ = HeaderOfZeros();
  std::vector<std::string> files_;
  std::vector<int64_t> numbers_;
  std::vector<std::string_view> texts_;
  std::map<std::string, std::string> rows_;  ///< by the key's text
  uint64_t in_deltas_ = 0;
};

TEST_P(Layers, a_batch_reads_of_each_key_what_the_newest_file_says) {
  Files files(files_);
  const Status opened = files.Open();
  ASSERT_TRUE(opened.ok()) << opened.message;
  bool found[kKeys], contained[kKeys];
  std::vector<std::string> values, without_found;
  ASSERT_TRUE(Read(files.chain(), found, &values).ok());
  ASSERT_TRUE(Read(files.chain(), nullptr, &without_found).ok());
  EXPECT_EQ(values, without_found);
  ASSERT_TRUE(files.chain().Find(AllKeys(), {}, contained).ok());
  for (size_t i = 0; i < kKeys; ++i) {
    const auto row = rows_.find(pool_.keys()[i].text);
    ASSERT_EQ(found[i], row != rows_.end()) << i;
    ASSERT_EQ(contained[i], found[i]) << i;
    ASSERT_EQ(values[i], found[i] ? row->second : unknown()) << i;
  }

  EXPECT_EQ(files.chain().deltas(), 3U);
  EXPECT_EQ(files.chain().header().id, header_.id);
  uint64_t bytes = 0;
  for (const std::string& file : files_) bytes += file.size();
  EXPECT_EQ(files.chain().file_bytes(), bytes);
  EXPECT_GE(files.chain().filter_bytes(), 2 * in_deltas_);
  EXPECT_LE(files.chain().filter_bytes(), 4 * in_deltas_);
}

TEST_P(Layers, threads_that_count_and_look_up_at_once_agree) {
  Files files(files_);
  ASSERT_TRUE(files.Open().ok());
  std::vector<std::thread> threads;
  std::vector<uint64_t> sizes(4);
  std::vector<std::vector<std::string>> values(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(files.chain().Size(&sizes[i]).ok());
      EXPECT_TRUE(Read(files.chain(), nullptr, &values[i]).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sizes, std::vector<uint64_t>(sizes.size(), rows_.size()));
  for (const auto& seen : values) EXPECT_EQ(seen, values[0]);
}

TEST_P(Layers, a_delta_without_keys_changes_nothing_but_the_last_header) {
  const SnapshotHeader base = HeaderOfZeros();
  const SampleTable empty(layout_, 0);
  Files alone({files_[0]}), with({files_[0], empty.Bytes(SampleDeltaHeader(base), 2)});
  ASSERT_TRUE(alone.Open().ok());
  ASSERT_TRUE(with.Open().ok());
  bool found[2][kKeys];
  std::vector<std::string> values[2];
  ASSERT_TRUE(Read(alone.chain(), found[0], &values[0]).ok());
  ASSERT_TRUE(Read(with.chain(), found[1], &values[1]).ok());
  EXPECT_EQ(values[0], values[1]);
  EXPECT_TRUE(std::equal(found[0], found[0] + kKeys, found[1]));
  uint64_t sizes[2] = {};
  ASSERT_TRUE(alone.chain().Size(&sizes[0]).ok());
  ASSERT_TRUE(with.chain().Size(&sizes[1]).ok());
  EXPECT_EQ(sizes[0], kKeys * 3 / 4);
  EXPECT_EQ(sizes[1], kKeys * 3 / 4);
  EXPECT_EQ(with.chain().header().sequence, base.sequence + 1);
}

INSTANTIATE_TEST_SUITE_P(Tables, Layers,
                         ::testing::Values(std::pair(KeyType::kInt64, DType::kInt64),
                                           std::pair(KeyType::kString, DType::kInt64),
                                           std::pair(KeyType::kInt64, DType::kString),
                                           std::pair(KeyType::kString, DType::kString)));

/// Files on a disk, mapped as a server maps files that are larger than memory.
class MappedFile {
 public:
  explicit MappedFile(const std::string& bytes)
      : path_(::testing::TempDir() + "frozen_chain_mapped"), size_(bytes.size()) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(::write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::fsync(file_), 0);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
    EXPECT_EQ(::madvise(data_, size_, MADV_RANDOM), 0);
  }
  ~MappedFile() {
    ::munmap(data_, size_);
    ::close(file_);
    ::unlink(path_.c_str());
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  /// Removes the file from the page cache. Returns false if it stays there, as in a tmpfs.
  bool Drop() {
    EXPECT_EQ(::madvise(data_, size_, MADV_DONTNEED), 0);
    EXPECT_EQ(::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED), 0);
    std::vector<unsigned char> pages(size_ / 4096 + 1);
    EXPECT_EQ(::mincore(data_, size_, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; }) == 0;
  }

 private:
  std::string path_;
  size_t size_;
  int file_ = -1;
  void* data_ = nullptr;
};

int64_t PageFaults() {
  rusage usage{};
  (void)::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

TEST(FrozenChain, a_lookup_waits_for_no_page_that_was_read_ahead) {
  for (const DType dtype : {DType::kFloat32, DType::kString}) {
    const bool strings = dtype == DType::kString;
    SCOPED_TRACE(NameOf(dtype));
    const RowLayout layout(strings ? KeyType::kString : KeyType::kInt64, dtype, strings ? 1 : 200);
    const SampleTable base(layout, strings ? 60000 : 8000, 1);
    const SampleTable newer(layout, strings ? 60000 : 8000, 1);
    const SnapshotHeader header = HeaderOfZeros();
    const size_t offset = RoundUpTo(base.Bytes(header, 4).size(), 4096);
    std::string bytes = base.Bytes(header, 4);
    const size_t base_size = bytes.size();
    bytes.resize(offset);
    bytes += newer.Bytes(SampleDeltaHeader(header), 4);
    MappedFile file(bytes);
    const std::string_view both = file.bytes();
    std::unique_ptr<FrozenChain> chain;
    ASSERT_TRUE(OpenChain({both.substr(0, base_size), both.substr(offset)}, &chain).ok());
    std::vector<int64_t> ints;
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < base.size(); i += base.size() / 200) {
      ints.push_back(base.keys()[i].number);
      texts.push_back(base.keys()[i].text);
    }
    const Keys keys = strings ? KeysOf(texts) : KeysOf(ints);
    const auto faults_of_lookup = [&] {
      const int64_t before = PageFaults();
      std::vector<float> rows(keys.size * 200);
      std::vector<std::string_view> values(keys.size);
      const FrozenOut out = strings ? FrozenOut{nullptr, values.data()} : FrozenOut{rows.data()};
      const Status status = chain->Find(keys, out, nullptr);
      EXPECT_TRUE(status.ok()) << status.message;
      size_t sum = 0;  // reads the strings
      for (const std::string_view value : values) sum += std::string(value).size();
      EXPECT_GE(sum, size_t{0});
      return PageFaults() - before;
    };
    if (!file.Drop()) GTEST_SKIP() << "the folder for tests has no page cache";
    EXPECT_GT(faults_of_lookup(), 100);
    ASSERT_TRUE(file.Drop());
    ASSERT_TRUE(chain->ReadAhead(keys).ok());
    EXPECT_LE(faults_of_lookup(), 2);  // the system may evict a page at any time
  }
}

}  // namespace
}  // namespace de::engine::testing
